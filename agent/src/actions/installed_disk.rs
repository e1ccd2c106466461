//! Which disk carries the system that a run installed.

use landfall_api::{DiskFacts, DiskSelector, ErrorCode, Problem, ReceiptState};
use uuid::Uuid;

use super::{Machine, final_failure, list, select};
use crate::runner::{Failure, Job};

/// The disk that `selector` means; without one, the disk that this run wrote.
pub(super) fn installed_disk(
    machine: &Machine,
    job: &Job,
    selector: Option<&DiskSelector>,
) -> Result<DiskFacts, Failure> {
    selector.map_or_else(|| written_disk(machine, job), select)
}

/// The disk that this run wrote, or one whose work it takes over: by the receipt on it, which outlives a restart of the
/// agent, else from memory.
fn written_disk(machine: &Machine, job: &Job) -> Result<DiskFacts, Failure> {
    let disks = list()?;
    let receipts = landfall_disk::scan_receipts(&disks);
    let own = |uid: Uuid| uid == job.run.workflow_uid || job.run.earlier_runs.contains(&uid);
    let ours = receipts
        .iter()
        .filter(|r| own(r.receipt.workflow_uid) && r.receipt.state == ReceiptState::Done)
        .max_by_key(|r| r.receipt.action_index)
        .map(|r| r.disk.clone());
    let wanted = ours.or_else(|| machine.remembered(job.run.workflow_uid));
    let found = wanted.and_then(|id| disks.into_iter().find(|d| d.id.same_disk(&id)));
    found.ok_or_else(|| {
        let hint = "put a writeImage action before it, or name the disk in its field disk";
        final_failure(
            Problem::new(ErrorCode::NoDiskMatches, "this run has written no disk that is still here").hint(hint),
        )
    })
}

/// A disk without an installed root file system.
pub(super) fn no_root(error: &dyn std::error::Error, disk: &str) -> Failure {
    let hint = "the image needs an ext4, xfs or btrfs root file system that holds /etc/os-release";
    final_failure(Problem::new(ErrorCode::NoRootFilesystem, error.to_string()).hint(hint).at(disk))
}
