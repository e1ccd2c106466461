//! `clearDisks`: chooses the disks, checks all of them before it clears the first, and calls `landfall_disk`.

use landfall_api::{
    ClearDisksSpec, DiskFacts, DiskReceipt, ErrorCode, Problem, Progress,
    message::{ActionResult, ClearDisksResult, EventBody},
};
use landfall_disk::{ClearRequest, LeaseGuard, LogLevel, Observer, ReceiptIntent, Unobserved};

use super::{final_failure, list, select};
use crate::runner::{Failure, Job};

/// Clears the disks. Blocks until all are cleared, or until one is refused or fails.
pub(super) fn perform(job: &Job, spec: &ClearDisksSpec) -> Result<ActionResult, Failure> {
    let disks = choose(job, spec)?;
    let requests: Vec<ClearRequest> = disks.iter().map(|disk| request(job, disk)).collect();
    let failure = |e: landfall_disk::WriteError| Failure { problem: e.problem(), retryable: e.retryable() };
    // If one disk must not be cleared, no disk is cleared.
    for request in &requests {
        landfall_disk::may_clear(request, &Unobserved).map_err(failure)?;
    }
    for request in &requests {
        let cleared = landfall_disk::clear_disk(request, &ToRun { job }).map_err(failure)?;
        let what = if cleared { "is cleared" } else { "was already clear" };
        tracing::info!("disk {} {what}", request.disk.id.name);
    }
    Ok(ActionResult::ClearDisks(ClearDisksResult { disks: disks.into_iter().map(|disk| disk.id).collect() }))
}

/// The disks that the action names; else every disk that carries, or is believed to carry, a receipt of this machine.
/// (A disk without the believed receipt was cleared by an attempt whose report was lost, or it is refused below.)
fn choose(job: &Job, spec: &ClearDisksSpec) -> Result<Vec<DiskFacts>, Failure> {
    let mut chosen: Vec<DiskFacts> = Vec::new();
    if spec.disks.is_empty() {
        let disks = list()?;
        let found = landfall_disk::scan_receipts(&disks);
        let own = |r: &&DiskReceipt| r.receipt.machine_uid == job.run.machine_uid;
        let marked: Vec<&DiskReceipt> = found.iter().chain(&job.run.expected_receipts).filter(own).collect();
        chosen = disks.into_iter().filter(|disk| marked.iter().any(|r| r.disk.same_disk(&disk.id))).collect();
    }
    for selector in &spec.disks {
        let disk = select(selector)?;
        if !chosen.iter().any(|known| known.id.same_disk(&disk.id)) {
            chosen.push(disk);
        }
    }
    if chosen.is_empty() {
        let text = "no disk carries a receipt of this machine";
        return Err(final_failure(Problem::new(ErrorCode::NoDiskMatches, text).hint("name the disks to clear")));
    }
    Ok(chosen)
}

fn request(job: &Job, disk: &DiskFacts) -> ClearRequest {
    let lease = job.lease.clone();
    ClearRequest {
        disk: disk.clone(),
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
    }
}

/// Forwards the reports of the clearing.
struct ToRun<'a> {
    job: &'a Job,
}

impl Observer for ToRun<'_> {
    fn progress(&self, progress: &Progress) {
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
