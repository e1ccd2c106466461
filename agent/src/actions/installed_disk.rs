//! Which disk carries the system that a workflow installed.

use std::collections::BTreeSet;

use landfall_api::{
    DiskFacts, DiskReceipt, DiskSelector, ErrorCode, Problem, Receipt, ReceiptState,
    message::{ActionKind, AssignedAction},
};
use landfall_disk::{RealDevice, device_path};
use uuid::Uuid;

use super::{
    Machine,
    chosen_disk::{list, one},
    final_failure,
};
use crate::{
    rootfs::{Kept, NotFound, SystemDisk},
    runner::{Failure, Job},
};

/// The disk that `selector` selects; without a selector, the disk that this workflow wrote. With it, what on the disk is
/// known not to be the image's.
pub(super) fn system_disk(
    machine: &Machine,
    job: &Job,
    selector: Option<&DiskSelector>,
) -> Result<SystemDisk, Failure> {
    let disks = list()?;
    let receipts = machine.disks.receipts().on(&disks).receipts;
    let disk = match selector {
        Some(selector) => one(selector, &disks)?,
        None => written_disk(machine, job, &disks, &receipts)?,
    };
    let receipt = receipts.iter().find(|found| found.disk.same_disk(&disk.id)).map(|found| &found.receipt);
    let kept = Kept { guids: recorded(&disk)?, labels: stated(&job.run.actions, |uid| is_own(job, uid), receipt) };
    let others = receipts.iter().filter(|found| is_done(job, &found.receipt) && !found.disk.same_disk(&disk.id));
    Ok(SystemDisk { name: disk.id.name.clone(), kept, others: others.map(|found| found.disk.name.clone()).collect() })
}

/// The partitions that the last install kept, by the disk's own record: it outlives the agent and the workflow.
fn recorded(disk: &DiskFacts) -> Result<BTreeSet<Uuid>, Failure> {
    let path = device_path(disk);
    let read = RealDevice::open_read_only(&path).and_then(|device| landfall_disk::kept_partitions(&device));
    read.map(|kept| kept.into_iter().collect()).map_err(|e| {
        let message = format!("cannot read which partitions of {} were kept", path.display());
        let hint = "check the disk's cabling and health";
        let problem =
            Problem::new(ErrorCode::DeviceIo, message).caused_by(&e).hint(hint).at(path.display().to_string());
        Failure { problem, retryable: true }
    })
}

/// The names of partitions that the list itself says were kept: where the disk has no room for a receipt, or one that an
/// older agent wrote. Without a receipt it is not known which action wrote the disk, so the names of all count.
fn stated(actions: &[AssignedAction], own: impl Fn(Uuid) -> bool, receipt: Option<&Receipt>) -> BTreeSet<String> {
    let wrote = |index: usize| match receipt {
        Some(receipt) => own(receipt.workflow_uid) && receipt.action_index as usize == index,
        None => true,
    };
    let keeps = |(index, action): (usize, &AssignedAction)| match &action.kind {
        ActionKind::WriteImage(spec) if wrote(index) => spec.keep.clone(),
        _ => Vec::new(),
    };
    actions.iter().enumerate().flat_map(keeps).collect()
}

fn is_own(job: &Job, uid: Uuid) -> bool {
    uid == job.run.workflow_uid || job.run.earlier_runs.contains(&uid)
}

fn is_done(job: &Job, receipt: &Receipt) -> bool {
    is_own(job, receipt.workflow_uid) && receipt.state == ReceiptState::Done
}

/// Every disk that this workflow wrote, or that a workflow it continues wrote.
pub(super) fn written_disks(machine: &Machine, job: &Job) -> Result<Vec<DiskFacts>, Failure> {
    let disks = list()?;
    let receipts = machine.disks.receipts().on(&disks).receipts;
    let wrote =
        |disk: &DiskFacts| receipts.iter().any(|found| is_done(job, &found.receipt) && found.disk.same_disk(&disk.id));
    Ok(disks.into_iter().filter(wrote).collect())
}

/// The disk that this workflow wrote, or that a workflow it continues wrote: found by its receipt, which outlives a
/// restart of the agent, else from memory.
fn written_disk(
    machine: &Machine,
    job: &Job,
    disks: &[DiskFacts],
    receipts: &[DiskReceipt],
) -> Result<DiskFacts, Failure> {
    let ours = receipts.iter().filter(|found| is_done(job, &found.receipt));
    let ours = ours.max_by_key(|found| found.receipt.action_index).map(|found| found.disk.clone());
    let wanted = ours.or_else(|| machine.remembered(job.run.workflow_uid));
    let found = wanted.and_then(|id| disks.iter().find(|disk| disk.id.same_disk(&id)).cloned());
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
pub(super) fn no_root(error: &NotFound, disk: &str) -> Failure {
    final_failure(Problem::new(ErrorCode::NoRootFilesystem, error.to_string()).hint(error.hint()).at(disk))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::{
        Digest, ImageAccess, ImageProof, ImageSource,
        message::{Retry, WriteImage},
    };

    use super::*;
    use crate::disks::done_by;

    fn write(keep: &str) -> AssignedAction {
        let second = Duration::from_secs(1);
        let image = ImageSource {
            urls: vec!["http://h/i".into()],
            proof: ImageProof::Stored(Digest::from_sha256([1; 32])),
            format: None,
            no_table: false,
            access: ImageAccess::default(),
        };
        AssignedAction {
            name: keep.to_owned(),
            timeout: second,
            retry: Retry { max_attempts: 1, initial_backoff: second, max_backoff: second },
            branch: None,
            when: None,
            kind: ActionKind::WriteImage(WriteImage {
                disk: DiskSelector::default(),
                image,
                keep: vec![keep.to_owned()],
                read_back: false,
            }),
        }
    }

    #[test]
    fn kept_names_come_from_the_action_that_wrote_the_disk() {
        let own = Uuid::from_u128(7);
        let receipt = |workflow, action_index| Receipt { action_index, ..done_by(workflow) };
        let list = [write("data"), write("home")];
        let named = |receipt: Option<&Receipt>| {
            stated(&list, |uid| uid == own, receipt).into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(named(Some(&receipt(7, 0))), "data");
        assert_eq!(named(Some(&receipt(7, 1))), "home");
        assert_eq!(named(Some(&receipt(8, 1))), "", "another workflow's list is not known");
        assert_eq!(named(None), "data home");
    }
}
