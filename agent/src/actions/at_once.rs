//! Work on several disks at once, which reports and fails as one action.

use std::sync::{Mutex, PoisonError};
use std::thread;

use landfall_api::message::EventBody;
use landfall_api::{DiskFacts, DiskReceipt, ErrorCode, Problem, Progress};
use landfall_disk::{LogLevel, Observer, WriteError};

use super::final_failure;
use crate::runner::{Failure, Job};

/// The disks of one action, which report as one.
pub(super) struct Together<'a> {
    job: &'a Job,
    /// Of each disk: its device file, what it last said, and whether it has ended.
    disks: Mutex<Vec<(String, Progress, bool)>>,
}

impl<'a> Together<'a> {
    /// None of them has begun.
    pub(super) fn new(job: &'a Job, disks: &[DiskFacts]) -> Self {
        let named = |disk: &DiskFacts| {
            let total = Progress { raw_total: disk.id.size_bytes, ..Progress::default() };
            (landfall_disk::device_path(disk).display().to_string(), total, false)
        };
        Self { job, disks: Mutex::new(disks.iter().map(named).collect()) }
    }

    /// Does that to each, by its number: one alone may take a day. Fails if one does, after all have ended.
    pub(super) fn at_once(
        &self, act: impl Fn(usize, &dyn Observer) -> Result<(), WriteError> + Sync,
    ) -> Result<(), Failure> {
        let count = self.disks.lock().unwrap_or_else(PoisonError::into_inner).len();
        let ends: Vec<Result<(), Failure>> = thread::scope(|scope| {
            let begin = |n| {
                let act = &act;
                scope.spawn(move || {
                    let done = act(n, &self.of(n)).map_err(|e| failure(&e));
                    self.ended(n);
                    done
                })
            };
            let running: Vec<_> = (0..count).map(begin).collect();
            running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(panicked()))).collect()
        });
        let mut failures = ends.into_iter().filter_map(Result::err);
        let Some(mut first) = failures.next() else { return Ok(()) };
        for other in failures {
            first.problem.causes.push(other.problem.to_string());
            first.retryable &= other.retryable;
        }
        Err(first)
    }

    /// What hears of that one.
    pub(super) const fn of(&self, disk: usize) -> ToRun<'_> {
        ToRun { all: self, disk }
    }

    fn said(&self, disk: usize, progress: &Progress) {
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks[disk].1 = progress.clone();
        self.name_the_rest(&disks, &progress.stage);
        let sum = |of: fn(&Progress) -> u64| disks.iter().map(|(_, progress, _)| of(progress)).sum();
        let (raw_bytes, raw_total, written_bytes) =
            (sum(|p| p.raw_bytes), sum(|p| p.raw_total), sum(|p| p.written_bytes));
        drop(disks);
        let sum = Progress { raw_bytes, raw_total, written_bytes, ..progress.clone() };
        self.job.report.progress(self.job.action, sum);
    }

    fn ended(&self, disk: usize) {
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks[disk].2 = true;
        let total = disks[disk].1.raw_total;
        disks[disk].1.raw_bytes = total;
        let stage = disks[disk].1.stage.clone();
        self.name_the_rest(&disks, &stage);
    }

    /// A problem names the disks that it may be about.
    fn name_the_rest(&self, disks: &[(String, Progress, bool)], stage: &str) {
        let rest: Vec<&str> = disks.iter().filter(|(_, _, ended)| !ended).map(|(name, _, _)| name.as_str()).collect();
        self.job.doing.begin(stage, &rest.join(", "));
    }
}

/// Forwards the reports of one disk.
pub(super) struct ToRun<'a> {
    all: &'a Together<'a>,
    disk: usize,
}

impl Observer for ToRun<'_> {
    fn progress(&self, progress: &Progress) {
        self.all.said(self.disk, progress);
    }

    fn receipt_written(&self, receipt: &DiskReceipt) {
        let event = EventBody::ReceiptWritten { receipt: receipt.clone() };
        let job = self.all.job;
        if job.report.report_blocking(job.action, event).is_err() {
            // The receipt is on the disk, and every hello contains it.
            tracing::warn!("the session has ended; the next session reports the receipt on {}", receipt.disk.name);
        }
    }

    fn log(&self, level: LogLevel, message: &str) {
        match level {
            LogLevel::Info => tracing::info!("{message}"),
            LogLevel::Warn => tracing::warn!("{message}"),
        }
    }

    fn cannot_stop(&self, begun: bool) {
        self.all.job.doing.cannot_stop(begun);
    }
}

/// As the runner takes it.
pub(super) fn failure(error: &WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}

fn panicked() -> Failure {
    final_failure(Problem::new(ErrorCode::Internal, "a fault of the agent ended the work on a disk"))
}
