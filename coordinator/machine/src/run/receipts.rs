//! What receipts on the disks prove of a workflow's writes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_api::{
    ActionSpec, ActionStatus, DiskReceipt, ErrorCode, Problem, ReceiptState, WorkflowPhase, WorkflowStatus,
};
use uuid::Uuid;

use super::{frontier::frontier, policy};

pub(super) fn is_done(receipt: &DiskReceipt) -> bool {
    receipt.receipt.state == ReceiptState::Done
}

/// This workflow's receipt, or one of a workflow whose work it took over.
pub(super) fn is_own(workflow: Uuid, status: &WorkflowStatus, receipt: &DiskReceipt) -> bool {
    let uid = receipt.receipt.workflow_uid;
    uid == workflow || status.takes_over.contains(&uid)
}

/// The receipts by which this workflow is known to have committed a disk.
pub(super) fn known_done(workflow: Uuid, status: &WorkflowStatus) -> impl Iterator<Item = &DiskReceipt> {
    status.expected_receipts.iter().filter(move |r| is_own(workflow, status, r) && is_done(r))
}

/// A receipt of this workflow replaces the known one of its disk. `done` is not reverted, but by a layout that is open again.
pub(super) fn note_receipt(workflow: Uuid, status: &mut WorkflowStatus, new: &DiskReceipt) {
    if !is_own(workflow, status, new) {
        return;
    }
    let same = |known: &DiskReceipt| known.disk.same_disk(&new.disk);
    let index = new.receipt.action_index;
    let is_same = |known: &DiskReceipt| {
        let of = |receipt: &DiskReceipt| (receipt.receipt.workflow_uid, receipt.receipt.action_index);
        same(known) && of(known) == of(new)
    };
    if !is_open_layout(status, index as usize) && known_done(workflow, status).any(is_same) {
        return;
    }
    status.expected_receipts.retain(|known| !same(known));
    status.expected_receipts.push(new.clone());
}

/// Whether a disk shows that this action has begun to write: its condition held then, and is not asked again.
pub fn has_begun_to_write(workflow: Uuid, status: &WorkflowStatus, index: usize) -> bool {
    let of_action = |known: &&DiskReceipt| known.receipt.action_index as usize == index;
    status.expected_receipts.iter().filter(of_action).any(|known| is_own(workflow, status, known))
}

/// Whether a disk that this action is known to have finished may say that it is not: an interrupted layout is made anew on all its
/// disks, and one that is filled, or committed, once more starts nothing until that has ended.
pub(super) fn may_be_open(status: &WorkflowStatus, index: usize) -> bool {
    status.action(index).is_some_and(|action| !action.is_over()) || is_open_layout(status, index)
}

/// Whether a layout is still made, or an action that fills it or has it committed is still to end.
fn is_open_layout(status: &WorkflowStatus, index: usize) -> bool {
    let Some(action) = status.action(index).filter(|a| matches!(a.action.spec, ActionSpec::Storage(_))) else {
        return false;
    };
    !action.is_over() || status.actions.iter().skip(index + 1).any(|a| !a.is_over() && opens(&a.action.spec))
}

/// As landfall-api's `layout_commit` has it of what agents are sent.
const fn opens(spec: &ActionSpec) -> bool {
    match spec {
        ActionSpec::Unpack(unpack) => unpack.disk.is_none(),
        ActionSpec::Exec(_)
        | ActionSpec::RunContainer(_)
        | ActionSpec::InstallBootloader(_)
        | ActionSpec::EfiBoot(_)
        | ActionSpec::Identity(_)
        | ActionSpec::GrowRoot(_)
        | ActionSpec::Kexec(_)
        | ActionSpec::Reboot(_)
        | ActionSpec::PowerOff(_)
        | ActionSpec::WriteImage(_)
        | ActionSpec::Storage(_) => true,
        _ => false,
    }
}

/// A write that had begun and left no receipt may have been committed: an image whose table has no room for a receipt
/// takes the receipt of the beginning away with its commit. It is not done again by itself, not even under `--force`.
pub(super) fn may_be_done(workflow: Uuid, status: &WorkflowStatus, found: &[DiskReceipt]) -> Option<Problem> {
    let at = frontier(status);
    let begun = status.expected_receipts.iter().find(|known| {
        let index = known.receipt.action_index;
        known.receipt.workflow_uid == workflow
            && at.contains(&(index as usize))
            && !found.iter().any(|r| r.receipt.action_index == index && r.disk.same_disk(&known.disk))
    })?;
    let name = status.action(begun.receipt.action_index as usize).map_or("?", |a| a.action.name.as_str());
    let message = format!(
        "action \"{name}\" had begun to write disk {}, but its receipt is gone: the write may have been completed",
        disk_name(begun)
    );
    let hint = "an image without room for a receipt leaves none; check the machine, then provision it again";
    Some(Problem::new(ErrorCode::ReceiptMismatch, message).hint(hint))
}

/// How many actions from the first a phone-home proves to be done: in a list without branches those up to the seed that
/// carries its token. A retry shares its token with the workflow before it, and so a phone-home proves none of it.
pub(super) fn proven(status: &WorkflowStatus) -> usize {
    let linear = status.actions.iter().all(|a| a.action.branch.is_none()) && status.takes_over.is_empty();
    let seed = status.actions.iter().position(|a| matches!(a.action.spec, ActionSpec::CloudInit(_)));
    seed.filter(|_| linear).map_or(0, |seed| seed + 1)
}

/// A run that failed may be retried for so long with the system that it has installed: its unit is there, since it is asked to phone home
/// again.
pub(super) const RETRY_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// The first action that is still to be done although the installed system speaks, and for which it is asked to speak again: none that a
/// phone-home proves, and not the restart. Of a run that failed or was cancelled, a retry may do it.
pub fn open_at_phone_home(status: &WorkflowStatus, now: Timestamp) -> Option<&ActionStatus> {
    let may_be_done = match status.phase {
        // Pending: a retry whose agent has not come yet.
        WorkflowPhase::Pending | WorkflowPhase::Running => true,
        WorkflowPhase::Failed | WorkflowPhase::Cancelled => {
            let is_recent = |ended| now.duration_since(ended) < RETRY_WINDOW;
            waits_for_phone_home(status) && status.ended_at.is_some_and(is_recent)
        }
        WorkflowPhase::Rebooting | WorkflowPhase::Succeeded => false,
    };
    let mut behind = status.actions.iter().skip(proven(status));
    behind.find(|a| !a.is_over() && !a.action.spec.info().is_last_step()).filter(|_| may_be_done)
}

/// Whether such a list ends by a phone-home.
pub(super) fn waits_for_phone_home(status: &WorkflowStatus) -> bool {
    policy::phone_home(status, Duration::ZERO).is_some()
}

/// Who has to do that action, for a person to read.
pub fn hint_at_phone_home(status: &WorkflowStatus) -> &'static str {
    if status.phase.is_terminal() {
        "retry the workflow (landfall retry), or provision the machine again"
    } else {
        "restart the machine so that it netboots and its agent goes on"
    }
}

/// How people know the disk of a receipt.
pub(super) fn disk_name(receipt: &DiskReceipt) -> &str {
    let disk = &receipt.disk;
    [&disk.name, &disk.serial, &disk.wwn, &disk.path].into_iter().find(|s| !s.is_empty()).map_or("?", String::as_str)
}
