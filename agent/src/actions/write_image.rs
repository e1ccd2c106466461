//! `writeImage`: chooses the disk, hands the work to `landfall_disk`, and passes on what it says.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use landfall_api::{DiskReceipt, ErrorCode, Problem, Progress};
use landfall_disk::{Access, Image, LeaseGuard, Observer, Proof, ReceiptIntent, WriteRequest};
use landfall_session::{ActionResult, EventKind, Expectation as Stated, WriteImage, WriteImageResult};

use super::{Machine, final_failure, select};
use crate::runner::{Failure, Job};

/// Progress goes out this often; a change of stage at once.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Writes the image. Blocks until the write ended or obeyed `job.cancel`.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &WriteImage) -> Result<ActionResult, Failure> {
    let disk = select(&spec.disk)?;
    let format = spec.format.as_deref().map(str::parse).transpose().map_err(|e: landfall_disk::UnknownFormat| {
        final_failure(Problem::new(ErrorCode::BadFormat, e.to_string()).hint("mend image.format in the template"))
    })?;
    let lease = job.lease.clone();
    let request = WriteRequest {
        disk: disk.clone(),
        image: Image {
            urls: vec![spec.url.clone()],
            proof: match spec.expectation {
                Stated::Digest(digest) => Proof::Stored(digest),
                Stated::Waived => Proof::Waived,
            },
            format,
            access: Access::default(),
        },
        keep: Vec::new(),
        read_back: false,
        receipt: ReceiptIntent {
            machine_uid: job.run.machine_uid,
            workflow_uid: job.run.workflow_uid,
            workflow_name: job.run.workflow_name.clone(),
            generation: job.run.generation,
            action_index: job.action.action_index,
        },
        expected: job.run.expected_receipts.clone(),
        person_authorised: job.run.person_authorised,
        force: job.run.force,
        lease: LeaseGuard::new(move || lease.is_valid()),
        cancel: job.cancel.clone(),
    };
    let observer = ToRun { job, thinned: Mutex::new(None) };
    let outcome = landfall_disk::write_image(&request, &observer)
        .map_err(|e| Failure { problem: e.problem(), retryable: e.retryable() })?;
    if let Some(why) = &outcome.no_receipt {
        tracing::warn!("the disk carries no receipt: {why}");
    }
    machine.remember(job.run.workflow_uid, disk.id);
    Ok(ActionResult::WriteImage(WriteImageResult {
        receipt: outcome.receipt,
        written: outcome.written,
        stored_bytes: outcome.stored_bytes,
        raw_bytes: outcome.raw_bytes,
        written_bytes: outcome.written_bytes,
        elapsed: outcome.elapsed,
    }))
}

/// Passes what the write says on to the run.
struct ToRun<'a> {
    job: &'a Job,
    thinned: Mutex<Option<(Instant, String)>>,
}

impl Observer for ToRun<'_> {
    fn progress(&self, progress: &Progress) {
        let mut last = self.thinned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let soon = last.as_ref().is_some_and(|(at, stage)| now - *at < PROGRESS_INTERVAL && *stage == progress.stage);
        if !soon {
            *last = Some((now, progress.stage.clone()));
            self.job.report.progress(self.job.action, progress.clone());
        }
    }

    fn receipt_written(&self, receipt: &DiskReceipt) {
        let event = EventKind::ReceiptWritten(receipt.clone());
        if self.job.report.report_blocking(self.job.action, event).is_err() {
            // The mark is on the disk, and every hello tells of it.
            tracing::warn!("the session is gone; the receipt on {} is told with the next one", receipt.disk.name);
        }
    }

    fn log(&self, level: landfall_disk::LogLevel, message: &str) {
        // Through the log, which the console shows and the telemetry follows.
        match level {
            landfall_disk::LogLevel::Info => tracing::info!("{message}"),
            landfall_disk::LogLevel::Warn => tracing::warn!("{message}"),
        }
    }
}
