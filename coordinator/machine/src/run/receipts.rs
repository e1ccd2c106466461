//! What receipts on the disks prove of a workflow's writes.

use landfall_api::{ActionSpec, DiskReceipt, ErrorCode, Problem, ReceiptState, WorkflowStatus};
use uuid::Uuid;

use super::frontier::{frontier, is_write};

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

/// A receipt of this workflow replaces the known one of its disk; `done` is never reverted.
pub(super) fn note_receipt(workflow: Uuid, status: &mut WorkflowStatus, new: &DiskReceipt) {
    if !is_own(workflow, status, new) {
        return;
    }
    let same = |known: &DiskReceipt| known.disk.same_disk(&new.disk);
    let index = new.receipt.action_index;
    if known_done(workflow, status).any(|known| same(known) && known.receipt.action_index == index) {
        return;
    }
    status.expected_receipts.retain(|known| !same(known));
    status.expected_receipts.push(new.clone());
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

/// Whether a disk is still to be written that a phone-home does not prove to be: in a list without branches it proves
/// the writes before the seed that carries its token. A retry shares its token with the workflow before it, and proves nothing.
pub(super) fn writes_unproven(status: &WorkflowStatus) -> bool {
    let actions = &status.actions;
    let linear = actions.iter().all(|a| a.action.branch.is_none()) && status.takes_over.is_empty();
    let seed = actions.iter().position(|a| matches!(a.action.spec, ActionSpec::CloudInit(_)));
    let proven = seed.filter(|_| linear).unwrap_or_default();
    actions.iter().enumerate().any(|(n, a)| n >= proven && is_write(a) && !a.is_over())
}

/// How people know the disk of a receipt.
pub(super) fn disk_name(receipt: &DiskReceipt) -> &str {
    let disk = &receipt.disk;
    [&disk.name, &disk.serial, &disk.wwn, &disk.path].into_iter().find(|s| !s.is_empty()).map_or("?", String::as_str)
}
