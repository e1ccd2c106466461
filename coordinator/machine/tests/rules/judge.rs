//! What must hold of every step and after each thing that happens, by what is true rather than by what the machine believes.

use std::collections::{HashMap, HashSet};

use landfall_api::{Condition, ConditionType, DiskReceipt, Machine, WorkflowPhase, WorkflowStatus};
use landfall_machine::{BEAT_EVERY, MachineState, derive, has_begun, is_held, is_open, life::wants_agent};
use proptest::{prelude::*, test_runner::TestCaseError};
use uuid::Uuid;

use super::computer::Computer;
use super::site::{LEASE, Site, wall};

/// A time of which the store has no data, by true time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Rule 4: a workflow begins on no machine that a receipt newer than the store, or unknown to it, is to hold.
pub(crate) fn begins(site: &Site, state: &MachineState) {
    let (Some(workflow), Some(session)) = (&state.newest, &state.session) else { return };
    assert!(is_held(&state.machine).is_none(), "rule 4: a workflow begins on a machine that is held");
    for found in session.receipts() {
        let uid = found.receipt.workflow_uid;
        assert_ne!(Some(uid), workflow.metadata.uid, "rule 4: a workflow begins on a disk that carries its receipt");
        let decided = site.clock_was_set || found.receipt.written_at <= wall(site.stored.decided, 0);
        assert!(site.workflow(uid).is_some() || decided, "rule 4: an unknown receipt is overwritten");
    }
}

/// Rule 4: what a receipt holds only a person lets go.
pub(crate) fn stays_held(before: &Machine, after: &Machine, decides: bool) {
    let holds = |machine: &Machine| {
        let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        derive::holds(conditions, &ConditionType::ReceiptConflict)
    };
    assert!(
        decides || !holds(before) || holds(after),
        "rule 4: a machine that a receipt held is let go without a person"
    );
}

/// A receipt that an agent found, that its workflow wrote while the store was not, and of which its agent cannot tell any
/// more.
pub(crate) fn misses(site: &Site, boot_id: &str, receipts: &[DiskReceipt]) -> Option<DiskReceipt> {
    let workflow = site.newest().filter(|workflow| is_open(workflow))?;
    let holder = site.stored.machine.status.as_ref().and_then(|status| status.session.as_ref());
    let same_boot = holder.is_some_and(|holder| holder.boot_id == boot_id && !holder.scanning);
    let gap = site.gap.filter(|gap| gap.to - gap.from > LEASE + BEAT_EVERY.as_secs())?;
    let expected = &workflow.status.as_ref()?.expected_receipts;
    let of = |r: &DiskReceipt| (r.receipt.workflow_uid, r.receipt.state);
    let missed = |found: &&DiskReceipt| {
        let at = found.receipt.written_at;
        Some(found.receipt.workflow_uid) == workflow.metadata.uid
            && (wall(gap.from + 1, 0)..wall(gap.to, 0)).contains(&at)
            && !expected.iter().any(|known| of(known) == of(found))
    };
    receipts.iter().find(missed).filter(|_| !same_boot && !site.clock_was_set).cloned()
}

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Judge {
    /// Terminal states as they were first seen, and when.
    ended: HashMap<Uuid, (WorkflowStatus, u64)>,
}

impl Judge {
    /// The store was put back: what it holds now is another story.
    pub(crate) fn forgets(&mut self) {
        self.ended.clear();
    }

    /// After each thing that happens.
    pub(crate) fn check(&mut self, site: &Site, computers: &[Computer; 2]) -> Result<(), TestCaseError> {
        self.one_writer(site, computers)?;
        self.ends_stay(site)?;
        for computer in computers {
            let distinct: HashSet<_> = computer.commits.iter().collect();
            prop_assert_eq!(distinct.len(), computer.commits.len(), "rule 4: one request wrote one disk twice");
        }
        nothing_lost(site, computers)?;
        as_listed(site)?;
        if let Some(newest) = site.newest()
            && let Some(status) = &newest.status
            && matches!(status.phase, WorkflowPhase::Rebooting | WorkflowPhase::Succeeded)
        {
            let agent = wants_agent(&site.stored.machine, Some(newest));
            prop_assert!(!agent, "rule 11: an installed machine does not boot its disk");
        }
        Ok(())
    }

    fn one_writer(&mut self, site: &Site, computers: &[Computer; 2]) -> Result<(), TestCaseError> {
        let acting: Vec<Uuid> = computers.iter().filter_map(|computer| computer.acts_for(site.now)).collect();
        prop_assert!(acting.len() < 2, "rule 5: two computers can write at once");
        prop_assert!(acting.is_empty() || !site.removed, "rule 5: a machine is removed while its agent can write");
        for uid in acting {
            let over = match site.workflow(uid).and_then(|workflow| workflow.status.as_ref()) {
                Some(status) if !status.phase.is_terminal() => continue,
                status => self.ended.entry(uid).or_insert_with(|| (frozen(status), site.now)).1,
            };
            prop_assert!(site.now < over + LEASE, "rule 5: an agent acts on for longer than a lease after the end");
        }
        Ok(())
    }

    fn ends_stay(&mut self, site: &Site) -> Result<(), TestCaseError> {
        for workflow in &site.stored.workflows {
            let (Some(uid), Some(status)) = (workflow.metadata.uid, &workflow.status) else { continue };
            if let Some((first, _)) = self.ended.get(&uid) {
                prop_assert_eq!(first, &frozen(Some(status)), "rule 5: a terminal state changed");
            } else if status.phase.is_terminal() {
                self.ended.insert(uid, (frozen(Some(status)), site.now));
            }
        }
        Ok(())
    }
}

/// Rule 6: what is acknowledged is in its workflow, and what the log holds too, whichever side ended.
fn nothing_lost(site: &Site, computers: &[Computer; 2]) -> Result<(), TestCaseError> {
    let applied = |of: Uuid| site.workflow(of).and_then(|workflow| workflow.status.as_ref()).map(|s| s.applied);
    for (of, position) in computers.iter().flat_map(|computer| &computer.acknowledged) {
        let read = applied(*of).is_none_or(|applied| applied >= *position);
        prop_assert!(read, "rule 6: an acknowledged event has no effect");
    }
    // Of a workflow that has not begun the log can hold something after a restore: reports from the time that the store has
    // lost. They have no effect on it, and were not acknowledged if the process ended before they were handed in.
    if let Some(newest) = site.newest().filter(|newest| is_open(newest) && has_begun(newest)) {
        let of = |position: &usize| Some(site.stored.log[*position].workflow_uid) == newest.metadata.uid;
        let last = (0..site.stored.log.len()).rfind(of).map_or(0, |position| position as u64 + 1);
        let applied = newest.status.as_ref().map_or(0, |status| status.applied);
        prop_assert!(applied >= last, "rule 6: the log holds an event that its workflow does not know");
    }
    Ok(())
}

/// Every condition that was set has a reason that the list in `landfall-api` gives it.
fn as_listed(site: &Site) -> Result<(), TestCaseError> {
    let of_machine = site.stored.machine.status.iter().flat_map(|status| &status.conditions);
    let of_workflows = site.stored.workflows.iter().filter_map(|workflow| workflow.status.as_ref());
    for Condition { kind, reason, .. } in of_machine.chain(of_workflows.flat_map(|status| &status.conditions)) {
        prop_assert!(kind.may_be(reason), "{kind} has the reason {reason}, which it is not listed with");
    }
    Ok(())
}

fn frozen(status: Option<&WorkflowStatus>) -> WorkflowStatus {
    let status = status.cloned().unwrap_or_default();
    WorkflowStatus { phoned_home_at: None, applied: 0, conditions: Vec::new(), ..status }
}
