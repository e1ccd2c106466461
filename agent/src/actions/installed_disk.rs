//! Which disk carries the system that a workflow installed.

use std::collections::BTreeSet;

use landfall_api::message::{ActionKind, AssignedAction};
use landfall_api::{DiskFacts, DiskId, DiskReceipt, DiskSelector, ErrorCode, Problem, Receipt, ReceiptState};
use landfall_disk::{RealDevice, device_path};
use uuid::Uuid;

use super::chosen_disk::{is_own, list, one};
use super::{Machine, final_failure};
use crate::rootfs::{Kept, NotFound, SystemDisk};
use crate::runner::{Failure, Job};

/// The disk that `selector` selects, if this workflow may change the system on it; without a selector, the disk that this
/// workflow wrote. With it, what on the disk is known not to be the image's.
pub(super) fn system_disk(
    machine: &Machine, job: &Job, selector: Option<&DiskSelector>,
) -> Result<SystemDisk, Failure> {
    let disks = list()?;
    let receipts = machine.disks.receipts().on(&disks).receipts;
    let disk = match selector {
        Some(selector) => {
            let disk = one(selector, &disks)?;
            may_change(job, selector, &disk.id, &receipts)?;
            disk
        }
        None => written_disk(machine, job, &disks, &receipts)?,
    };
    let receipt = receipts.iter().find(|found| found.disk.same_disk(&disk.id)).map(|found| &found.receipt);
    let kept = Kept { guids: recorded(&disk)?, labels: stated(&job.run.actions, |uid| is_own(job, uid), receipt) };
    let others = receipts.iter().filter(|found| is_done(job, &found.receipt) && !found.disk.same_disk(&disk.id));
    Ok(SystemDisk { name: disk.id.name.clone(), kept, others: others.map(|found| found.disk.name.clone()).collect() })
}

/// What names a disk wherever it is plugged in, and what changes when the machine restarts.
const LASTING: [&str; 4] = ["serial", "wwn", "byId", "path"];
const PASSING: [&str; 2] = ["name", "hctl"];

/// Refuses a system that this workflow must not change: another's without a person's request, and, where a name or an address
/// chose it, any but those that this workflow wrote.
fn may_change(job: &Job, selector: &DiskSelector, chosen: &DiskId, receipts: &[DiskReceipt]) -> Result<(), Failure> {
    let on_chosen = receipts.iter().filter(|found| found.disk.same_disk(chosen)).map(|found| &found.receipt);
    let (mut installed, mut written) = (false, false);
    for receipt in on_chosen.filter(|receipt| receipt.state == ReceiptState::Done) {
        installed |= receipt.machine_uid == job.run.machine_uid;
        written |= is_own(job, receipt.workflow_uid);
    }
    let name = &chosen.name;
    if !installed && !job.run.person_authorised {
        let message = format!("disk {name} carries no receipt of this machine, and no person requested this workflow");
        let hint = "request the workflow with landfall provision";
        return Err(final_failure(Problem::new(ErrorCode::DiskNotBlank, message).hint(hint).at(name)));
    }
    let has = |fields: &[&str]| selector.0.iter().any(|(field, _)| fields.contains(&field.as_str()));
    let passing = has(&PASSING) && !has(&LASTING);
    let Some(other) = receipts.iter().find(|found| is_done(job, &found.receipt)).filter(|_| passing && !written) else {
        return Ok(());
    };
    let message = format!("this workflow wrote disk {}, and its selector matches disk {name} now", other.disk.name);
    let hint = "leave out the field disk, or select the disk by serial or wwn: kernel names and addresses change when the \
        machine restarts";
    Err(final_failure(Problem::new(ErrorCode::AmbiguousDisk, message).hint(hint).at(name)))
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

/// Whether the receipt says that this workflow, or one that it continues, finished its install.
pub(super) fn is_done(job: &Job, receipt: &Receipt) -> bool {
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
    machine: &Machine, job: &Job, disks: &[DiskFacts], receipts: &[DiskReceipt],
) -> Result<DiskFacts, Failure> {
    let wanted = with_system(job, receipts).or_else(|| machine.remembered(job.run.workflow_uid));
    let found = wanted.and_then(|id| disks.iter().find(|disk| disk.id.same_disk(&id)).cloned());
    found.ok_or_else(|| {
        let hint = "put a writeImage action before it, or name the disk in its field disk";
        final_failure(
            Problem::new(ErrorCode::NoDiskMatches, "this workflow has not written any disk that is still present")
                .hint(hint),
        )
    })
}

/// Of the disks that this workflow wrote, the last that an action gave a system: a layout of data disks has none.
fn with_system(job: &Job, receipts: &[DiskReceipt]) -> Option<DiskId> {
    let gives_system = |receipt: &Receipt| match job.run.actions.get(receipt.action_index as usize).map(|a| &a.kind) {
        Some(ActionKind::Storage(spec)) => spec.layout.mounts_root(),
        Some(_) => true,
        None => false,
    };
    let ours = receipts.iter().filter(|found| is_done(job, &found.receipt) && gives_system(&found.receipt));
    ours.max_by_key(|found| found.receipt.action_index).map(|found| found.disk.clone())
}

/// A disk without an installed root file system.
pub(super) fn no_root(error: &NotFound, disk: &str) -> Failure {
    final_failure(Problem::new(ErrorCode::NoRootFilesystem, error.to_string()).hint(error.hint()).at(disk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::testing::{heard, listed, write_image};
    use crate::disks::done_by;

    fn disk(serial: &str) -> DiskId {
        DiskId { name: format!("sd{serial}"), serial: serial.into(), ..DiskId::default() }
    }

    #[test]
    fn a_named_system_is_changed_only_by_who_may() {
        let (job, _) = heard(ActionKind::Hold(landfall_api::HoldSpec { message: "x".into() }));
        let by = |person_authorised: bool| {
            let run = landfall_api::message::Assignment { person_authorised, ..(*job.run).clone() };
            Job { run: std::sync::Arc::new(run), ..job.clone() }
        };
        let of = |workflow: u128, machine: u128, on: &str| {
            let receipt = Receipt { machine_uid: Uuid::from_u128(machine), ..done_by(workflow) };
            DiskReceipt { disk: disk(on), receipt }
        };
        let (name, serial) = (serde_json::json!({"name": "sdb"}), serde_json::json!({"serial": "b"}));
        let (refused, other) = (Err(ErrorCode::DiskNotBlank), Err(ErrorCode::AmbiguousDisk));
        for (person, selector, receipts, expected) in [
            (false, &serial, vec![], refused),
            (false, &serial, vec![of(9, 9, "b")], refused),
            (false, &serial, vec![of(9, 2, "b")], Ok(())),
            (false, &serial, vec![of(1, 2, "b")], Ok(())),
            (true, &serial, vec![], Ok(())),
            (true, &name, vec![], Ok(())),
            (true, &name, vec![of(1, 2, "b")], Ok(())),
            // After a restart another disk has the name.
            (true, &name, vec![of(1, 2, "a")], other),
            (false, &name, vec![of(1, 2, "a"), of(9, 2, "b")], other),
            (true, &serial, vec![of(1, 2, "a")], Ok(())),
        ] {
            let parsed: DiskSelector = serde_json::from_value(selector.clone()).unwrap();
            let may = may_change(&by(person), &parsed, &disk("b"), &receipts).map_err(|failure| failure.problem.code);
            assert_eq!(may, expected, "{person} {selector} {receipts:?}");
        }
    }

    #[test]
    fn the_last_disk_with_a_system_is_meant() {
        let storage = |role: &str| {
            let layout = serde_json::json!({"disks": [{"partitions": [{"role": role}]}]});
            let spec = serde_json::from_value::<landfall_api::StorageSpec>(layout).unwrap();
            ActionKind::Storage(spec.resolved())
        };
        let (image, data, root) = (write_image("x"), storage("data"), storage("root"));
        let (job, _) = heard(image.clone());
        for (list, expected) in
            [(vec![&image, &data], "0"), (vec![&image, &image], "1"), (vec![&image, &root, &data], "1")]
        {
            let actions = list.into_iter().map(|kind| listed("step", kind.clone())).collect::<Vec<_>>();
            let receipts: Vec<_> = (0..3)
                .map(|index: u32| DiskReceipt {
                    disk: disk(&index.to_string()),
                    receipt: Receipt { action_index: index, ..done_by(1) },
                })
                .take(actions.len())
                .collect();
            let run = landfall_api::message::Assignment { actions, ..(*job.run).clone() };
            let job = Job { run: std::sync::Arc::new(run), ..job.clone() };
            assert_eq!(with_system(&job, &receipts).unwrap().serial, expected);
        }
    }

    #[test]
    fn kept_names_come_from_the_action_that_wrote_the_disk() {
        let own = Uuid::from_u128(7);
        let receipt = |workflow, action_index| Receipt { action_index, ..done_by(workflow) };
        let list = ["data", "home"].map(|keep| listed(keep, write_image(keep)));
        let named = |receipt: Option<&Receipt>| {
            stated(&list, |uid| uid == own, receipt).into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(named(Some(&receipt(7, 0))), "data");
        assert_eq!(named(Some(&receipt(7, 1))), "home");
        assert_eq!(named(Some(&receipt(8, 1))), "", "another workflow's list is not known");
        assert_eq!(named(None), "data home");
    }
}
