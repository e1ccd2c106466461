//! `clearDisks`: chooses the disks, checks all of them before it clears the first, and calls `landfall_disk`.

use landfall_api::{
    ClearDisksSpec, DiskFacts, DiskReceipt, ErrorCode, Problem, Progress,
    message::{ActionResult, ClearDisksResult, EventBody},
};
use landfall_disk::{ClearRequest, LogLevel, Observer, SelectionGuard, Unobserved};

use super::{Machine, chosen_disk::list, final_failure, lease_of, receipt_of};
use crate::runner::{Failure, Job};

/// Clears the disks. Blocks until all are cleared, or until one is refused or fails.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &ClearDisksSpec) -> Result<ActionResult, Failure> {
    // If one disk must not be cleared, no disk is cleared.
    let (disks, requests) = allowed(machine, job, spec)?;
    for request in &requests {
        let device = landfall_disk::device_path(&request.disk).display().to_string();
        let cleared = landfall_disk::clear_disk(request, &ToRun { job, device }).map_err(|e| failure(&e))?;
        let what = if cleared { "is cleared" } else { "was already clear" };
        tracing::info!("disk {} {what}", request.disk.id.name);
    }
    Ok(ActionResult::ClearDisks(ClearDisksResult { disks: disks.into_iter().map(|(disk, _)| disk.id).collect() }))
}

/// Whether it would clear them. Blocks while the disks are looked at; nothing is written.
pub(super) fn check(machine: &Machine, job: &Job, spec: &ClearDisksSpec) -> Result<(), Failure> {
    allowed(machine, job, spec).map(drop)
}

type Chosen = Vec<(DiskFacts, SelectionGuard)>;

/// The disks, and a request for each, which may be carried out.
fn allowed(machine: &Machine, job: &Job, spec: &ClearDisksSpec) -> Result<(Chosen, Vec<ClearRequest>), Failure> {
    let disks = choose(machine, job, spec)?;
    let requests: Vec<ClearRequest> = disks.iter().map(|(disk, guard)| request(job, disk, guard)).collect();
    for request in &requests {
        landfall_disk::may_clear(request, &Unobserved).map_err(|e| failure(&e))?;
    }
    Ok((disks, requests))
}

fn failure(error: &landfall_disk::WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}

/// The disks that the action names; else every disk that carries, or is believed to carry, a receipt of this machine.
/// (A disk without the believed receipt was cleared by an attempt whose report was lost, or it is refused below.)
fn choose(machine: &Machine, job: &Job, spec: &ClearDisksSpec) -> Result<Chosen, Failure> {
    let mut chosen: Chosen = Vec::new();
    if spec.disks.is_empty() {
        let disks = list()?;
        let found = machine.disks.receipts().on(&disks).receipts;
        let own = |r: &&DiskReceipt| r.receipt.machine_uid == job.run.machine_uid;
        let marked: Vec<&DiskReceipt> = found.iter().chain(&job.run.expected_receipts).filter(own).collect();
        let carries = |disk: &DiskFacts| marked.iter().any(|r| r.disk.same_disk(&disk.id));
        // Each is meant by its own receipt: a disk that appears later changes nothing for it.
        chosen = disks.into_iter().filter(carries).map(|disk| (disk, SelectionGuard::named())).collect();
    }
    for selector in &spec.disks {
        let (disk, guard) = machine.choose(job, selector)?;
        if !chosen.iter().any(|(known, _)| known.id.same_disk(&disk.id)) {
            chosen.push((disk, guard));
        }
    }
    if chosen.is_empty() {
        let text = "no disk carries a receipt of this machine";
        return Err(final_failure(Problem::new(ErrorCode::NoDiskMatches, text).hint("name the disks to clear")));
    }
    Ok(chosen)
}

fn request(job: &Job, disk: &DiskFacts, selection: &SelectionGuard) -> ClearRequest {
    ClearRequest {
        disk: disk.clone(),
        receipt: receipt_of(job),
        expected: job.run.expected_receipts.clone(),
        person_authorised: job.run.person_authorised,
        force: job.run.force,
        selection: selection.clone(),
        lease: lease_of(job),
        cancel: job.cancel.clone(),
    }
}

/// Forwards the reports of the clearing.
struct ToRun<'a> {
    job: &'a Job,
    /// The disk's device file.
    device: String,
}

impl Observer for ToRun<'_> {
    fn progress(&self, progress: &Progress) {
        self.job.doing.begin(&progress.stage, &self.device);
        self.job.report.progress(self.job.action, progress.clone());
    }

    fn receipt_written(&self, receipt: &DiskReceipt) {
        let event = EventBody::ReceiptWritten { receipt: receipt.clone() };
        if self.job.report.report_blocking(self.job.action, event).is_err() {
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
}
