//! `wipe`: chooses the disks, checks all of them before it wipes the first, and calls `landfall_disk`.

use std::sync::{Mutex, PoisonError};
use std::thread;

use landfall_api::message::{ActionResult, EventBody, WipeResult};
use landfall_api::{DiskFacts, DiskReceipt, ErrorCode, Problem, Progress, WipeReport, WipeSpec};
use landfall_disk::{Disk, LogLevel, Observer, SelectionGuard, Unobserved, WipeRequest};

use super::chosen_disk::{list, not_begun_elsewhere};
use super::{Machine, authority, final_failure};
use crate::efi;
use crate::runner::{Failure, Job};

/// Wipes the disks, all at once: one alone may take a day. Blocks until each is wiped or has failed.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<ActionResult, Failure> {
    let requests = requests(machine, job, spec)?;
    let all = Together::new(job, &requests);
    // If one disk must not be wiped, or supports no level that will do, no disk is wiped.
    for (n, request) in requests.iter().enumerate() {
        landfall_disk::wait_to_wipe(request, &all.of(n)).map_err(|e| failure(&e))?;
    }
    let ends: Vec<Result<(), Failure>> = thread::scope(|scope| {
        let begin = |(n, request)| {
            let all = &all;
            scope.spawn(move || {
                let wiped = landfall_disk::wipe_disk(request, &all.of(n)).map_err(|e| failure(&e)).map(|report| {
                    machine.note_wiped(job.run.workflow_uid, report.disk.clone());
                    tell(job, report);
                });
                all.ended(n);
                wiped
            })
        };
        let running: Vec<_> = requests.iter().enumerate().map(begin).collect();
        running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let mut failures = ends.into_iter().filter_map(Result::err);
    if let Some(mut first) = failures.next() {
        for other in failures {
            first.problem.causes.push(other.problem.to_string());
            first.retryable &= other.retryable;
        }
        return Err(first);
    }
    forget(&requests);
    Ok(ActionResult::Wipe(WipeResult { disks: requests.into_iter().map(|request| request.disk.id).collect() }))
}

/// The firmware no longer lists the disks; where it does not take that, its entries lead nowhere.
fn forget(requests: &[WipeRequest]) {
    if !efi::is_ours() {
        return;
    }
    match efi::forget(&requests.iter().map(|request| &request.disk).collect::<Vec<_>>()) {
        Ok(0) => {}
        Ok(n) => tracing::info!("{n} boot entries of the wiped disks are removed from the firmware"),
        Err(error) => {
            tracing::warn!("{error}. The firmware keeps boot entries of the wiped disks, which start nothing")
        }
    }
}

/// Reports a disk at once: another that fails later changes nothing of it.
fn tell(job: &Job, report: WipeReport) {
    tracing::info!("disk {} is wiped: {}, {} samples", report.disk.name, report.method, report.samples);
    let disk = report.disk.name.clone();
    if job.report.report_blocking(job.action, EventBody::DiskWiped { report }).is_err() {
        tracing::warn!("the session has ended before the coordinator got the report of disk {disk}");
    }
}

fn panicked() -> Failure {
    final_failure(Problem::new(ErrorCode::Internal, "a fault of the agent ended the wiping of a disk"))
}

/// Whether it would wipe them. Blocks while the disks are looked at; nothing is written.
pub(super) fn check(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<(), Failure> {
    for request in &requests(machine, job, spec)? {
        landfall_disk::may_wipe(request, &Unobserved).map_err(|e| failure(&e))?;
    }
    Ok(())
}

type Chosen = Vec<(DiskFacts, SelectionGuard)>;

/// A request for each disk.
fn requests(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<Vec<WipeRequest>, Failure> {
    let disks = choose(machine, job, spec)?;
    Ok(disks.into_iter().map(|(disk, guard)| request(job, spec, disk, guard)).collect())
}

fn failure(error: &landfall_disk::WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}

/// The disks that the action names; else every disk that carries, or is believed to carry, a receipt of this machine.
/// (A disk without the believed receipt was cleared by an attempt whose report was lost, or it is refused below.)
fn choose(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<Chosen, Failure> {
    let mut chosen: Chosen = Vec::new();
    if spec.disks.is_empty() {
        let disks = list()?;
        let found = machine.disks.receipts().on(&disks).receipts;
        let own = |r: &&DiskReceipt| r.receipt.machine_uid == job.run.machine_uid;
        let marked: Vec<&DiskReceipt> = found.iter().chain(&job.run.expected_receipts).filter(own).collect();
        chosen = carrying(&disks, &marked)?;
    }
    for selector in &spec.disks {
        let (disk, guard) = machine.choose(job, selector)?;
        if !chosen.iter().any(|(known, _)| known.id.same_disk(&disk.id)) {
            chosen.push((disk, guard));
        }
    }
    if !spec.disks.is_empty() && !job.run.force {
        let ids: Vec<_> = chosen.iter().map(|(disk, _)| &disk.id).collect();
        not_begun_elsewhere(job, &ids, &machine.disks.receipts().on(&list()?).receipts)?;
    }
    if chosen.is_empty() {
        let text = "no disk carries a receipt of this machine";
        return Err(final_failure(Problem::new(ErrorCode::NoDiskMatches, text).hint("name the disks to wipe")));
    }
    Ok(chosen)
}

/// The disks that carry one of these receipts.
fn carrying(disks: &[DiskFacts], marked: &[&DiskReceipt]) -> Result<Chosen, Failure> {
    let mut chosen = Vec::new();
    for disk in disks.iter().filter(|disk| marked.iter().any(|mark| mark.disk.same_disk(&disk.id))) {
        // Each path of a unit shows its receipt.
        Disk::no_lone_path(disk, disks).map_err(|error| final_failure(error.problem()))?;
        // Each is meant by its own receipt: a disk that appears later changes nothing for it.
        chosen.push((disk.clone(), SelectionGuard::named()));
    }
    Ok(chosen)
}

fn request(job: &Job, spec: &WipeSpec, disk: DiskFacts, selection: SelectionGuard) -> WipeRequest {
    WipeRequest { disk, level: spec.level, fallback: spec.fallback.clone(), authority: authority(job, selection) }
}

/// The wipes of one action, which report as one.
struct Together<'a> {
    job: &'a Job,
    /// Of each disk: its device file, what it last said, and whether it has ended.
    disks: Mutex<Vec<(String, Progress, bool)>>,
}

impl<'a> Together<'a> {
    fn new(job: &'a Job, requests: &[WipeRequest]) -> Self {
        let named = |request: &WipeRequest| {
            let total = Progress { raw_total: request.disk.id.size_bytes, ..Progress::default() };
            (landfall_disk::device_path(&request.disk).display().to_string(), total, false)
        };
        Self { job, disks: Mutex::new(requests.iter().map(named).collect()) }
    }

    const fn of(&self, disk: usize) -> ToRun<'_> {
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
struct ToRun<'a> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_api::DiskId;
    use landfall_api::message::{ActionKind, Assignment};
    use uuid::Uuid;

    use super::*;
    use crate::actions::testing::{heard, write_image};
    use crate::disks::{Disks, done_by};

    #[test]
    fn both_paths_of_one_unit_are_not_wiped_at_once() {
        let disk = |name: &str, wwn: &str| {
            let id = DiskId { name: name.into(), wwn: wwn.into(), size_bytes: 10, ..DiskId::default() };
            DiskFacts { id, ..DiskFacts::default() }
        };
        let disks = [disk("sda", "0x5"), disk("sdb", "0x5"), disk("sdc", "0x6")];
        let mark = |disk: &DiskFacts| DiskReceipt { disk: disk.id.clone(), receipt: done_by(9) };
        let failure = carrying(&disks, &[&mark(&disks[0])]).map(drop).unwrap_err();
        assert_eq!(failure.problem.code, ErrorCode::AmbiguousDisk, "{}", failure.problem);
        let chosen = carrying(&disks, &[&mark(&disks[2])]).unwrap();
        assert_eq!(chosen.iter().map(|(disk, _)| disk.id.name.as_str()).collect::<Vec<_>>(), ["sdc"]);
    }

    #[tokio::test]
    async fn a_receipt_that_was_wiped_is_expected_no_more() {
        let machine = Machine::new(Disks::watch(None));
        let disk = |serial: &str| DiskId { serial: serial.into(), ..DiskId::default() };
        let (job, _) = heard(write_image("x"));
        let expected_receipts = ["a", "b"].map(|on| DiskReceipt { disk: disk(on), receipt: done_by(9) }).to_vec();
        let job = Job { run: Arc::new(Assignment { expected_receipts, ..(*job.run).clone() }), ..job };
        let expected = |job: &Job| {
            let after = machine.after_wipes(job.clone());
            assert!(matches!(after.kind, ActionKind::WriteImage(_)));
            after.run.expected_receipts.iter().map(|known| known.disk.serial.clone()).collect::<Vec<_>>().concat()
        };
        assert_eq!(expected(&job), "ab");
        machine.note_wiped(Uuid::from_u128(8), disk("b"));
        assert_eq!(expected(&job), "ab", "another workflow wiped it");
        machine.note_wiped(job.run.workflow_uid, disk("a"));
        assert_eq!(expected(&job), "b");
    }
}
