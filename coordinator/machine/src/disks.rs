//! What an agent says of its disks: with its hello, or in a report where it still scanned its buses then.

use jiff::Timestamp;
use landfall_api::{ConditionType as Type, Machine, Reason, Workflow, message::DiskReport};

use crate::connect::connect;
use crate::context::Step;
use crate::effect::Refusal;
use crate::epoch::Epoch;
use crate::receipts::Found;
use crate::restore::Horizon;
use crate::{derive, receipts, restore};

/// Every disk is known now, or other disks are there.
pub(crate) fn reported(step: &mut Step<'_>, epoch: Epoch, report: &DiskReport, known: &[bool]) -> Result<(), Refusal> {
    let now = step.now;
    let session = step.session(epoch)?;
    session.hears(now);
    let (first, acts) = (session.scanning, session.lease.may_act(now.steady));
    if acts && !first {
        // Its workflow reports its own receipts, and a look from before one was written would contradict it.
        return Ok(());
    }
    session.scanning = false;
    session.disks.clone_from(&report.disks);
    session.receipts.clone_from(&report.receipts);
    let (machine, workflow) = (&mut step.state.machine, step.state.newest.as_deref());
    let at = (now.wall, machine.metadata.generation);
    let holder = machine.status.as_mut().and_then(|status| status.session.as_mut());
    // What this boot's disks carry was reported before, unless its hello left that open.
    let same_boot = holder.as_ref().is_some_and(|holder| !holder.scanning);
    if let Some(holder) = holder {
        holder.disks.clone_from(&report.disks);
        holder.scanning = false;
    }
    take_in(machine, &Found { report, known, same_boot }, workflow, &step.limits.horizon, at);
    derive::conditions(machine, workflow, now.wall);
    let held = machine.status.as_ref().is_some_and(|status| derive::held(&status.conditions).is_some());
    step.stores_machine();
    let Some(session) = &mut step.state.session else { return Ok(()) };
    session.held = held;
    if first && !acts && !session.settling {
        connect(step, false);
    }
    Ok(())
}

/// Takes in what the disks carry, and says of which that is unknown.
pub(crate) fn take_in(
    machine: &mut Machine, found: &Found<'_>, workflow: Option<&Workflow>, horizon: &Horizon, at: (Timestamp, u64),
) {
    restore::judge_disks(machine, &found.report.receipts, found.same_boot, workflow, at);
    receipts::take_in(machine, found, workflow, horizon, at);
    note_unreadable(machine, found.report, at);
}

/// The agent still scans its buses.
pub(crate) fn note_scanning(machine: &mut Machine, at: (Timestamp, u64)) {
    let conditions = &mut machine.status.get_or_insert_default().conditions;
    let message = "the agent scans its buses; nothing is assigned before it knows every disk";
    derive::set(conditions, Type::DisksKnown, false, Reason::Scanning, message, at);
}

fn note_unreadable(machine: &mut Machine, report: &DiskReport, at: (Timestamp, u64)) {
    let conditions = &mut machine.status.get_or_insert_default().conditions;
    if !report.unreadable.is_empty() {
        let disks: Vec<String> =
            report.unreadable.iter().map(|unread| format!("{} ({})", unread.disk.name, unread.reason)).collect();
        let message = format!("cannot read {}; check cables and the kernel log", disks.join(", "));
        derive::set(conditions, Type::DisksKnown, false, Reason::Unreadable, message, at);
    } else if derive::find(conditions, &Type::DisksKnown).is_some() {
        let message = format!("{} disks, all readable", report.disks.len());
        derive::set(conditions, Type::DisksKnown, true, Reason::Complete, message, at);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::message::UnreadableDisk;
    use landfall_api::{
        API_VERSION, ConditionStatus, DiskId, DiskReceipt, Kind, MachineSpec, Metadata, Receipt, ReceiptState,
    };
    use uuid::Uuid;

    use super::*;

    fn disk(serial: &str) -> DiskId {
        DiskId { serial: serial.into(), name: format!("vd{serial}"), size_bytes: 1 << 30, ..DiskId::default() }
    }

    fn receipt(serial: &str) -> DiskReceipt {
        let receipt = Receipt {
            machine_uid: Uuid::from_u128(1),
            workflow_uid: Uuid::from_u128(2),
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state: ReceiptState::Done,
            written_at: Timestamp::UNIX_EPOCH,
        };
        DiskReceipt { disk: disk(serial), receipt }
    }

    /// Its disk "a" was installed.
    fn installed() -> Machine {
        let mut status =
            landfall_api::MachineStatus { receipts: vec![receipt("a")], ..landfall_api::MachineStatus::default() };
        let at = (Timestamp::UNIX_EPOCH, 1);
        derive::set(&mut status.conditions, Type::Provisioned, true, Reason::PhonedHome, "up", at);
        Machine {
            api_version: API_VERSION.into(),
            kind: Kind::Machine,
            metadata: Metadata { uid: Some(Uuid::from_u128(1)), ..Metadata::default() },
            spec: MachineSpec::default(),
            status: Some(status),
        }
    }

    fn after(report: &DiskReport) -> Machine {
        let mut machine = installed();
        let known = vec![true; report.receipts.len()];
        let horizon = Horizon { as_of: None, started: Timestamp::UNIX_EPOCH, lease: Duration::from_secs(60) };
        let found = Found { report, known: &known, same_boot: false };
        take_in(&mut machine, &found, None, &horizon, (Timestamp::UNIX_EPOCH, 1));
        machine
    }

    fn condition(machine: &Machine, kind: Type) -> Option<(ConditionStatus, Reason, String)> {
        let found = derive::find(&machine.status.as_ref()?.conditions, &kind)?;
        Some((found.status, found.reason.clone(), found.message.clone()))
    }

    #[test]
    fn a_disk_that_hangs_keeps_the_receipt_it_had() {
        let unread = UnreadableDisk { disk: disk("a"), reason: "no answer for 10 s".into() };
        let report =
            DiskReport { disks: vec![disk("a"), disk("b")], unreadable: vec![unread], ..DiskReport::default() };
        let machine = after(&report);
        assert_eq!(machine.status.as_ref().unwrap().receipts, [receipt("a")]);
        assert_eq!(condition(&machine, Type::NoReceipt), None);
        let (status, reason, message) = condition(&machine, Type::DisksKnown).unwrap();
        assert_eq!((status, reason), (ConditionStatus::False, Reason::Unreadable));
        assert!(message.contains("vda (no answer for 10 s)"), "{message}");
    }

    #[test]
    fn a_disk_that_was_read_without_its_receipt_lost_it() {
        let machine = after(&DiskReport { disks: vec![disk("a")], ..DiskReport::default() });
        assert!(machine.status.as_ref().unwrap().receipts.is_empty());
        assert_eq!(condition(&machine, Type::NoReceipt).unwrap().1, Reason::Lost);
        assert_eq!(condition(&machine, Type::DisksKnown), None, "it was never open");
    }

    #[test]
    fn a_scan_that_ended_makes_every_disk_known() {
        let mut machine = installed();
        let at = (Timestamp::UNIX_EPOCH, 1);
        note_scanning(&mut machine, at);
        assert_eq!(condition(&machine, Type::DisksKnown).unwrap().1, Reason::Scanning);
        note_unreadable(&mut machine, &DiskReport { disks: vec![disk("a")], ..DiskReport::default() }, at);
        assert_eq!(condition(&machine, Type::DisksKnown).unwrap().0, ConditionStatus::True);
    }
}
