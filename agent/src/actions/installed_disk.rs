//! Which disk carries the system that a workflow installed.

use landfall_api::{DiskFacts, DiskSelector, ErrorCode, Problem, ReceiptState};
use uuid::Uuid;

use super::{Machine, final_failure, list, select};
use crate::runner::{Failure, Job};

/// The disk that `selector` selects; without a selector, the disk that this workflow wrote.
pub(super) fn installed_disk(
    machine: &Machine,
    job: &Job,
    selector: Option<&DiskSelector>,
) -> Result<DiskFacts, Failure> {
    selector.map_or_else(|| written_disk(machine, job), select)
}

/// The disk that this workflow wrote, or that a workflow it continues wrote: found by its receipt, which outlives a
/// restart of the agent, else from memory.
fn written_disk(machine: &Machine, job: &Job) -> Result<DiskFacts, Failure> {
    let disks = list()?;
    let receipts = machine.disks.receipts().on(&disks).receipts;
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
            Problem::new(
                ErrorCode::NoDiskMatches,
                "this workflow has not written any disk that is still \
                present",
            )
            .hint(hint),
        )
    })
}

/// A disk without an installed root file system.
pub(super) fn no_root(error: &dyn std::error::Error, disk: &str) -> Failure {
    let hint = "use an image with an ext4, xfs or btrfs root file system that contains /etc/os-release";
    final_failure(Problem::new(ErrorCode::NoRootFilesystem, error.to_string()).hint(hint).at(disk))
}
