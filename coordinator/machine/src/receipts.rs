//! The receipts that an agent finds on its disks, against those that the store knows.

use jiff::Timestamp;
use landfall_api::message::DiskReport;
use landfall_api::{
    ConditionType as Type, DiskId, DiskReceipt, Machine, MachineStatus, Reason, ReceiptState, Workflow, WorkflowPhase,
};

use crate::{derive, restore};

/// What an agent found on its disks, as the store sees it.
pub(crate) struct Found<'a> {
    pub(crate) report: &'a DiskReport,
    /// For each receipt: whether the store has the workflow that it names.
    pub(crate) known: &'a [bool],
    /// The agent is the one whose disks the store heard of last.
    pub(crate) same_boot: bool,
}

impl Found<'_> {
    /// Whether this disk is there and could be read: only then does a missing receipt say that there is none.
    fn was_read(&self, disk: &DiskId) -> bool {
        let unread = self.report.unreadable.iter().any(|unread| unread.disk.same_disk(disk));
        !unread && self.report.disks.iter().any(|there| there.same_disk(disk))
    }
}

/// Takes in what an agent found. A receipt that the store does not know holds the machine, and then none of what was found
/// is believed.
pub(crate) fn take_in(
    machine: &mut Machine, found: &Found<'_>, workflow: Option<&Workflow>, horizon: &restore::Horizon,
    at: (Timestamp, u64),
) {
    let receipts = &found.report.receipts;
    let open = workflow.filter(|w| w.status.as_ref().is_some_and(|s| !s.phase.is_terminal()));
    let newer = open.and_then(|run| restore::newer(horizon, receipts, found.same_boot, run));
    let uid = machine.metadata.uid;
    let status = machine.status.get_or_insert_default();
    // Taken over as it was, and nothing asked for since: what was there then is as it should be.
    let adopted = status.adopted.as_ref().filter(|_| open.is_none()).map(|by| by.at);
    let unknown = receipts.iter().zip(found.known).find(|(found, known)| {
        let ours = **known && uid == Some(found.receipt.machine_uid);
        let seen = status.receipts.iter().any(|r| r.receipt == found.receipt && r.disk.same_disk(&found.disk));
        !ours
            && !seen
            && adopted.is_none_or(|at| at < found.receipt.written_at)
            && !open.is_some_and(|run| is_meant(run, found))
    });
    let unknown = unknown.map(|(found, _)| (found, "which this store does not know"));
    let conflict =
        newer.map(|newer| (newer, Reason::NewerThanStore)).or(unknown.map(|found| (found, Reason::UnknownReceipt)));
    // Only a person ends the hold: a hello without that receipt may be another computer's, or the disk may be out of sight.
    let held = conflict.is_some() || derive::holds(&status.conditions, &Type::ReceiptConflict);
    match conflict {
        Some(((found, what), reason)) => {
            let receipt = &found.receipt;
            let message = format!(
                "disk {} carries a receipt of run \"{}\" ({}, {:?}), {what}; check whether the store was restored \
                    from an old copy, then adopt the machine, or provision it with --force",
                found.disk.name, receipt.workflow_name, receipt.workflow_uid, receipt.state
            );
            derive::set(&mut status.conditions, Type::ReceiptConflict, true, reason, message, at);
        }
        None if held => {}
        None => {
            let message = "every receipt found is known";
            derive::set(&mut status.conditions, Type::ReceiptConflict, false, Reason::Known, message, at);
        }
    }
    let under_way = open.and_then(|w| w.status.as_ref()).is_some_and(|s| s.phase != WorkflowPhase::Pending);
    note_lost(status, found, under_way, at);
    if !held {
        // Of a disk that is not there now, or that cannot be read, nothing is known anew.
        status.receipts.retain(|known| !found.was_read(&known.disk));
        status.receipts.retain(|known| !receipts.iter().any(|r| r.disk.same_disk(&known.disk)));
        status.receipts.extend(receipts.iter().cloned());
    }
}

/// Whether the person who said `--force` for this workflow can have meant this receipt: it was shown to them, or is older
/// than their word. (Forcing is for what was there, not for what a workflow in between has installed.)
fn is_meant(run: &Workflow, found: &DiskReceipt) -> bool {
    let shown = |known: &DiskReceipt| known.receipt == found.receipt && known.disk.same_disk(&found.disk);
    run.spec.authority.as_ref().is_some_and(|by| {
        let shown = run.status.as_ref().is_some_and(|s| s.expected_receipts.iter().any(shown));
        by.force && (shown || found.receipt.written_at <= by.at)
    })
}

/// `NoReceipt`: we installed it, the disk is there, and the receipt is not. From now on only a person starts an install.
fn note_lost(status: &mut MachineStatus, found: &Found<'_>, under_way: bool, at: (Timestamp, u64)) {
    let there = |known: &&DiskReceipt| found.was_read(&known.disk);
    let marked = |known: &DiskReceipt| found.report.receipts.iter().any(|r| r.disk.same_disk(&known.disk));
    let mut installed = status.receipts.iter().filter(|r| r.receipt.state == ReceiptState::Done).filter(there);
    let lost = installed.find(|known| !marked(known));
    let conditions = &mut status.conditions;
    match lost {
        Some(lost) if !under_way && derive::holds(conditions, &Type::Provisioned) => {
            let (disk, run) = (&lost.disk, &lost.receipt.workflow_name);
            let disk = [&disk.name, &disk.serial, &disk.wwn, &disk.path].into_iter().find(|s| !s.is_empty());
            let disk = disk.map_or("?", String::as_str);
            let message = format!(
                "disk {disk} was installed by workflow \"{run}\" but no longer carries its receipt: it was probably \
                    repartitioned; only a person can start an install of it"
            );
            derive::set(conditions, Type::NoReceipt, true, Reason::Lost, message, at);
        }
        _ if !found.report.receipts.is_empty() && derive::holds(conditions, &Type::NoReceipt) => {
            derive::set(conditions, Type::NoReceipt, false, Reason::Found, "a disk carries a receipt", at);
        }
        _ => {}
    }
}
