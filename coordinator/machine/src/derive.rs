//! Conditions and phases, derived from what is known. Pure.

use jiff::Timestamp;
use landfall_api::{
    ActionSpec, ActionStatus, Condition, ConditionStatus, ConditionType as Type, DiskId, HealthReport, Machine,
    MachinePhase, MachineStatus, Management, Purpose, Reason, ReceiptState, WipeReport, Workflow, WorkflowPhase,
    WorkflowStatus,
};

use crate::run::policy::{MAX_TESTED, MAX_WIPED};

/// The conditions that hold a machine until a person decides.
pub(crate) const HOLDS: [Type; 2] = [Type::ReceiptConflict, Type::StoreBehind];

/// Sets a condition; `since` moves only when the status does.
pub fn set(
    conditions: &mut Vec<Condition>, kind: Type, status: bool, reason: Reason, message: impl Into<String>,
    at: (Timestamp, u64),
) {
    let status = if status { ConditionStatus::True } else { ConditionStatus::False };
    put(conditions, kind, status, reason, message, at);
}

/// The same for one that may be unknown.
pub fn put(
    conditions: &mut Vec<Condition>, kind: Type, status: ConditionStatus, reason: Reason, message: impl Into<String>,
    (now, observed_generation): (Timestamp, u64),
) {
    let old = conditions.iter().position(|c| c.kind == kind);
    let since = old.map(|n| &conditions[n]).filter(|c| c.status == status).map_or(now, |c| c.since);
    let new = Condition { kind, status, reason, message: message.into(), since, observed_generation };
    match old {
        Some(n) => conditions[n] = new,
        None => conditions.push(new),
    }
}

/// The condition of that kind, if it is there.
pub fn find<'c>(conditions: &'c [Condition], kind: &Type) -> Option<&'c Condition> {
    conditions.iter().find(|c| c.kind == *kind)
}

/// Whether a condition is there and true.
pub fn holds(conditions: &[Condition], kind: &Type) -> bool {
    find(conditions, kind).is_some_and(|c| c.status == ConditionStatus::True)
}

/// Why nothing is to happen to a machine before a person decides.
pub fn held(conditions: &[Condition]) -> Option<&Condition> {
    HOLDS.iter().find_map(|kind| find(conditions, kind).filter(|c| c.status == ConditionStatus::True))
}

/// Brings the receipts that a machine is believed to carry in line with a step of its run.
pub fn receipts(machine: &mut Machine, workflow: &Workflow) {
    let (Some(uid), Some(run)) = (workflow.metadata.uid, &workflow.status) else { return };
    let status = machine.status.get_or_insert_default();
    if workflow.spec.purpose == Purpose::Deprovision && run.phase == WorkflowPhase::Succeeded {
        status.receipts.clone_from(&run.expected_receipts);
    }
    // What is wiped carries none, unless the run wrote the disk afterwards.
    let bare = |disk: &DiskId| {
        run.wiped.iter().any(|one| one.disk.same_disk(disk))
            && !run.expected_receipts.iter().any(|known| known.disk.same_disk(disk))
    };
    status.receipts.retain(|known| !bare(&known.disk));
    for own in run.expected_receipts.iter().filter(|r| r.receipt.workflow_uid == uid) {
        status.receipts.retain(|known| !known.disk.same_disk(&own.disk));
        status.receipts.push(own.clone());
    }
}

/// Whether two states of a run that goes on say the same of its machine: then its document is in line with both.
pub(crate) fn says_the_same(before: &WorkflowStatus, after: &WorkflowStatus) -> bool {
    before.phase == WorkflowPhase::Running
        && after.phase == WorkflowPhase::Running
        && touched(before) == touched(after)
        && touched_a_disk(before) == touched_a_disk(after)
        && before.phoned_home_at == after.phoned_home_at
        && before.expected_receipts == after.expected_receipts
        && before.wiped == after.wiped
        && before.tested == after.tested
}

/// Whether a machine still counts as at work on a workflow that has ended.
pub fn is_behind(machine: &Machine, workflow: &Workflow) -> bool {
    let ended = workflow.status.as_ref().is_some_and(|run| run.phase.is_terminal());
    ended && machine.status.as_ref().is_some_and(|status| holds(&status.conditions, &Type::Progressing))
}

/// Keeps with a machine which of its disks a run has wiped, and how.
pub fn wiped(machine: &mut Machine, workflow: &Workflow) {
    let Some(run) = &workflow.status else { return };
    if run.wiped.is_empty() {
        return;
    }
    let kept = &mut machine.status.get_or_insert_default().wiped;
    let name = &workflow.metadata.name;
    kept.retain(|known| known.workflow != *name);
    kept.extend(run.wiped.iter().map(|one| WipeReport { workflow: name.clone(), ..one.clone() }));
    kept.drain(..kept.len().saturating_sub(MAX_WIPED));
}

/// Keeps with a machine how its parts did in the tests of a run. What a test said before is gone, but for disks that are still
/// there and that the run did not test.
pub fn tested(machine: &mut Machine, workflow: &Workflow) {
    let Some(run) = workflow.status.as_ref().filter(|run| !run.tested.is_empty()) else { return };
    let status = machine.status.get_or_insert_default();
    let (name, disks) = (&workflow.metadata.name, status.facts.as_ref().map(|facts| &facts.disks));
    let all_known = find(&status.conditions, &Type::DisksKnown).is_none_or(|c| c.status == ConditionStatus::True);
    let gone = |disk: &DiskId| disks.is_some_and(|all| !all.iter().any(|one| one.id.same_disk(disk)));
    let is_there = |disk: &DiskId| !(all_known && gone(disk));
    status.tested.retain(|known| {
        let again = run.tested.iter().any(|one| one.same_part(known));
        let since = run.tested.iter().any(|one| one.test == known.test);
        !again && known.workflow != *name && (!since || known.disk.as_ref().is_some_and(is_there))
    });
    status.tested.extend(run.tested.iter().map(|one| HealthReport { workflow: name.clone(), ..one.clone() }));
    status.tested.drain(..status.tested.len().saturating_sub(MAX_TESTED));
}

/// Parts that failed their health test and that the condition names; a shelf of disks can fail at once.
const NAMED_PARTS: usize = 4;

/// Whether every part passed its last test; nothing if none was tested.
fn healthy(status: &mut MachineStatus, at: (Timestamp, u64)) {
    if status.tested.is_empty() {
        return;
    }
    let mut failed: Vec<String> = status.tested.iter().filter(|one| !one.passed()).map(HealthReport::summary).collect();
    let (passed, reason) = (failed.is_empty(), if failed.is_empty() { Reason::Passed } else { Reason::Failed });
    let more = failed.len().saturating_sub(NAMED_PARTS);
    failed.truncate(NAMED_PARTS);
    let message = match more {
        _ if passed => "every part passed its last health test".to_owned(),
        0 => failed.join("; "),
        _ => format!("{}; and {more} more failed, see status.tested", failed.join("; ")),
    };
    set(&mut status.conditions, Type::Healthy, passed, reason, message, at);
}

/// Brings a machine's conditions and phase in line with its spec and its newest run.
pub fn conditions(machine: &mut Machine, workflow: Option<&Workflow>, now: Timestamp) {
    let at = (now, machine.metadata.generation);
    wanted(machine, at);
    let status = machine.status.get_or_insert_default();
    match workflow.and_then(|w| Some((w, w.status.as_ref()?))) {
        Some((workflow, run)) => {
            progressing(status, workflow, run, at);
            healthy(status, at);
            provisioned(status, workflow.spec.purpose, run, at);
        }
        None => set(&mut status.conditions, Type::Progressing, false, Reason::Idle, "no workflow has run on it", at),
    }
    phase(machine);
}

/// What the machine's `spec` asks for, as conditions. `at`: also the generation that `spec` has, or is about to get.
pub fn wanted(machine: &mut Machine, at: (Timestamp, u64)) {
    let (management, maintenance) = (machine.spec.management, machine.spec.maintenance);
    let conditions = &mut machine.status.get_or_insert_default().conditions;
    match management {
        Management::Managed => set(conditions, Type::Managed, true, Reason::Managed, "it is installed on request", at),
        Management::External => {
            set(
                conditions,
                Type::Managed,
                false,
                Reason::External,
                "it is only watched, because of spec.management",
                at,
            );
        }
    }
    if maintenance {
        let message = "no install starts and it boots its own disk, because of spec.maintenance";
        set(conditions, Type::Maintenance, true, Reason::Requested, message, at);
    } else {
        set(conditions, Type::Maintenance, false, Reason::NotRequested, "", at);
    }
}

/// The word for people.
pub fn phase(machine: &mut Machine) {
    let deleting = machine.metadata.deletion_timestamp.is_some();
    if let Some(status) = &mut machine.status {
        status.phase = phase_of(&status.conditions, deleting, status.enrolment.is_unapproved());
    }
}

/// `unapproved`: it was discovered, and no person or rule has approved it.
fn phase_of(conditions: &[Condition], deleting: bool, unapproved: bool) -> MachinePhase {
    let progressing = find(conditions, &Type::Progressing);
    let reason = progressing.map(|c| &c.reason);
    if deleting {
        MachinePhase::Deleting
    } else if held(conditions).is_some() {
        MachinePhase::Held
    } else if progressing.is_some_and(|c| c.status == ConditionStatus::True) {
        if reason == Some(&Reason::Deprovisioning) { MachinePhase::Deprovisioning } else { MachinePhase::Provisioning }
    } else if holds(conditions, &Type::Provisioned) {
        MachinePhase::Provisioned
    } else if unapproved {
        MachinePhase::Discovered
    } else if find(conditions, &Type::Healthy).is_some_and(|c| c.status == ConditionStatus::False) {
        MachinePhase::Unhealthy
    } else if matches!(reason, Some(Reason::Failed | Reason::Cancelled)) {
        MachinePhase::Failed
    } else {
        MachinePhase::Available
    }
}

fn progressing(status: &mut MachineStatus, workflow: &Workflow, run: &WorkflowStatus, at: (Timestamp, u64)) {
    let name = &workflow.metadata.name;
    let purpose = match workflow.spec.purpose {
        Purpose::Provision => Reason::Provisioning,
        Purpose::Deprovision => Reason::Deprovisioning,
    };
    let (going, reason, message) = match run.phase {
        WorkflowPhase::Pending => (true, purpose, format!("workflow \"{name}\" waits")),
        phase if !phase.is_terminal() => (true, purpose, format!("workflow \"{name}\" is running")),
        WorkflowPhase::Failed => (false, Reason::Failed, format!("workflow \"{name}\" failed")),
        // Nothing was done to it, so nothing is wrong with it.
        WorkflowPhase::Cancelled if touched(run) => {
            (false, Reason::Cancelled, format!("workflow \"{name}\" was cancelled"))
        }
        _ => (false, Reason::Idle, format!("workflow \"{name}\" has ended")),
    };
    // After an adoption it is no longer the run before it that says how the machine is.
    let (reason, message) = match &status.adopted {
        Some(by) if !going => (Reason::Idle, format!("adopted by {} at {}", by.person, by.at)),
        _ => (reason, message),
    };
    set(&mut status.conditions, Type::Progressing, going, reason, message, at);
    if run.phase.is_terminal() && find(&status.conditions, &Type::StoreBehind).is_some() {
        let message = "the workflow that was requested before the store fell behind has ended";
        set(&mut status.conditions, Type::StoreBehind, false, Reason::RunEnded, message, at);
    }
}

fn touched(run: &WorkflowStatus) -> bool {
    run.actions.iter().any(|action| action.attempt > 0)
}

/// Whether an action began that can change what is on a disk.
fn touched_a_disk(run: &WorkflowStatus) -> bool {
    let began = |action: &ActionStatus| action.attempt > 0 && !action.is_left_out();
    run.actions.iter().any(|action| action.action.spec.changes_disk() && began(action))
}

/// Whether it put a system on no disk, though it was to, or emptied disks.
fn wrote_nothing(run: &WorkflowStatus) -> bool {
    let any = |wanted: fn(&ActionStatus) -> bool| run.actions.iter().any(wanted);
    // A container that is lent disks may install a system.
    let wrote = any(|one| {
        let lent = matches!(&one.action.spec, ActionSpec::RunContainer(spec) if !spec.devices.is_empty());
        (lent || one.action.spec.writes_system()) && !one.is_left_out()
    });
    let emptied = any(|one| one.action.spec.empties_disk() && !one.is_left_out());
    !wrote && (emptied || any(|one| one.action.spec.writes_system()))
}

fn provisioned(status: &mut MachineStatus, purpose: Purpose, run: &WorkflowStatus, at: (Timestamp, u64)) {
    if status.adopted.is_some() && run.phase.is_terminal() && run.phoned_home_at.is_none() {
        return;
    }
    let touched = touched_a_disk(run);
    if touched {
        status.adopted = None;
    }
    let carries_system = status.receipts.iter().any(|found| found.receipt.state == ReceiptState::Done);
    let conditions = &mut status.conditions;
    match (run.phase, run.phoned_home_at) {
        // While actions are open the system that spoke is half made, or another disk's.
        (phase, Some(when)) if phase != WorkflowPhase::Running => {
            set(
                conditions,
                Type::Provisioned,
                true,
                Reason::PhonedHome,
                format!("the installed system phoned home {when}"),
                at,
            );
        }
        (WorkflowPhase::Succeeded, None) if purpose == Purpose::Deprovision => {
            set(conditions, Type::Provisioned, false, Reason::Deprovisioned, "the disks were cleared", at);
            set(conditions, Type::NoReceipt, false, Reason::Deprovisioned, "nothing is installed", at);
        }
        (WorkflowPhase::Succeeded, None) if wrote_nothing(run) => {
            let (reason, message) = if carries_system {
                (Reason::Installed, "the workflow wrote no system; the one before it stays")
            } else {
                (Reason::LeftOut, "the workflow wrote no system, and no disk carries the receipt of one")
            };
            set(conditions, Type::Provisioned, carries_system, reason, message, at);
        }
        (WorkflowPhase::Succeeded, None) if touched => {
            set(
                conditions,
                Type::Provisioned,
                true,
                Reason::Installed,
                "installed; the template requires no phone-home",
                at,
            );
        }
        (WorkflowPhase::Failed | WorkflowPhase::Cancelled, None) if touched => {
            let (reason, message) =
                run.problem.as_ref().map_or((Reason::Failed, String::new()), |p| (p.code.into(), p.to_string()));
            set(conditions, Type::Provisioned, false, reason, message, at);
        }
        (phase, _) if !phase.is_terminal() && touched => match purpose {
            Purpose::Provision => {
                set(conditions, Type::Provisioned, false, Reason::Provisioning, "a workflow is running", at)
            }
            Purpose::Deprovision => {
                set(conditions, Type::Provisioned, false, Reason::Deprovisioning, "the disks are being cleared", at);
            }
        },
        // Nothing was done to its disks: whatever held before holds still.
        _ => {}
    }
}

/// Brings a run's conditions in line with its state.
pub fn workflow(workflow: &mut Workflow, now: Timestamp) {
    crate::run::conditions::derive(workflow, None, now);
    let at = (now, workflow.metadata.generation);
    let Some(status) = &mut workflow.status else { return };
    if status.started_at.is_some() {
        set(&mut status.conditions, Type::Admitted, true, Reason::Started, "it has begun", at);
    } else if status.phase.is_terminal() {
        set(&mut status.conditions, Type::Admitted, false, Reason::Ended, "it ended before it began", at);
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{Action, ActionOutcome, DiskReceipt, HealthTestKind, Receipt};

    use super::*;

    #[test]
    fn a_condition_names_four_failed_parts() {
        let at = Timestamp::UNIX_EPOCH;
        let failed = |n: u32| HealthReport {
            faults: vec!["it is slow".into()],
            ..HealthReport::begun(HealthTestKind::DiskRead, &format!("sd{n}"), at)
        };
        for (count, end) in [(4, "sd3: FAILED: it is slow"), (6, "; and 2 more failed, see status.tested")] {
            let mut status = MachineStatus { tested: (0..count).map(failed).collect(), ..MachineStatus::default() };
            healthy(&mut status, (at, 1));
            let message = &find(&status.conditions, &Type::Healthy).unwrap().message;
            assert!(message.ends_with(end) && message.matches("FAILED").count() == 4, "{message}");
        }
    }

    #[test]
    fn a_run_that_wrote_no_system_installs_nothing() {
        let image = serde_json::json!({"url": "http://h/i", "digestWaived": true});
        let writes = serde_json::json!({"name": "write", "writeImage": {"image": image}});
        let empties = serde_json::json!({"name": "erase", "wipe": {}});
        let provisioned_by = |action: &serde_json::Value, left_out: bool, receipt: Option<ReceiptState>| {
            let mut write = ActionStatus::pending(serde_json::from_value::<Action>(action.clone()).unwrap());
            write.attempt = 1;
            write.outcome = Some(if left_out { ActionOutcome::left_out() } else { ActionOutcome::done() });
            let run =
                WorkflowStatus { phase: WorkflowPhase::Succeeded, actions: vec![write], ..WorkflowStatus::default() };
            let mut status = MachineStatus::default();
            status.receipts.extend(receipt.map(|state| DiskReceipt {
                disk: DiskId::default(),
                receipt: Receipt {
                    machine_uid: uuid::Uuid::nil(),
                    workflow_uid: uuid::Uuid::nil(),
                    workflow_name: "before".into(),
                    generation: 1,
                    action_index: 0,
                    image_digest: None,
                    state,
                    written_at: Timestamp::UNIX_EPOCH,
                },
            }));
            provisioned(&mut status, Purpose::Provision, &run, (Timestamp::UNIX_EPOCH, 1));
            let said = find(&status.conditions, &Type::Provisioned).unwrap();
            (said.status == ConditionStatus::True, said.reason.clone())
        };
        assert_eq!(provisioned_by(&writes, false, None), (true, Reason::Installed));
        for (action, left_out) in [(&writes, true), (&empties, false)] {
            assert_eq!(provisioned_by(action, left_out, None), (false, Reason::LeftOut));
            assert_eq!(provisioned_by(action, left_out, Some(ReceiptState::Intent)), (false, Reason::LeftOut));
            assert_eq!(provisioned_by(action, left_out, Some(ReceiptState::Done)), (true, Reason::Installed));
        }
    }

    type Given = (&'static str, Option<ConditionStatus>, &'static str);

    fn phase(deleting: bool, unapproved: bool, given: &[Given]) -> MachinePhase {
        let mut conditions = Vec::new();
        for (kind, status, reason) in given {
            if let Some(status) = status {
                put(&mut conditions, Type::from(*kind), *status, Reason::from(*reason), "", (Timestamp::UNIX_EPOCH, 1));
            }
        }
        phase_of(&conditions, deleting, unapproved)
    }

    /// Every combination of what decides, with the word for it: deleted before held, held before under way, under way
    /// before installed, installed before unknown, unknown before failed.
    #[test]
    fn the_phase_follows_from_the_conditions_in_every_combination() {
        use ConditionStatus::{False, True, Unknown};
        let runs = [
            (None, "", None),
            (Some(True), "Provisioning", Some(MachinePhase::Provisioning)),
            (Some(True), "Deprovisioning", Some(MachinePhase::Deprovisioning)),
            (Some(False), "Idle", None),
            (Some(False), "Failed", None),
            (Some(False), "Cancelled", None),
        ];
        let mut seen = 0;
        for conflict in [None, Some(False), Some(True)] {
            for behind in [None, Some(False), Some(Unknown), Some(True)] {
                for (going, reason, under_way) in runs {
                    for installed in [None, Some(False), Some(True)] {
                        for unapproved in [false, true] {
                            let given = [
                                ("ReceiptConflict", conflict, "R"),
                                ("StoreBehind", behind, "R"),
                                ("Progressing", going, reason),
                                ("Provisioned", installed, "R"),
                            ];
                            let expected = match (conflict, behind, under_way, installed, unapproved, reason) {
                                (Some(True), ..) | (_, Some(True), ..) => MachinePhase::Held,
                                (_, _, Some(phase), ..) => phase,
                                (_, _, None, Some(True), ..) => MachinePhase::Provisioned,
                                (_, _, None, _, true, _) => MachinePhase::Discovered,
                                (_, _, None, _, _, "Failed" | "Cancelled") => MachinePhase::Failed,
                                _ => MachinePhase::Available,
                            };
                            assert_eq!(phase(false, unapproved, &given), expected, "{given:?}");
                            assert_eq!(phase(true, unapproved, &given), MachinePhase::Deleting, "{given:?}");
                            seen += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(seen, 3 * 4 * 6 * 3 * 2);
    }

    #[test]
    fn since_changes_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        set(&mut conditions, Type::Connected, true, Reason::Hello, "a", (at(1), 1));
        set(&mut conditions, Type::Connected, true, Reason::Heard, "b", (at(2), 3));
        assert_eq!((conditions[0].since, conditions[0].observed_generation), (at(1), 3));
        assert_eq!((conditions[0].reason.as_str(), conditions[0].message.as_str()), ("Heard", "b"));
        set(&mut conditions, Type::Connected, false, Reason::Silent, "c", (at(4), 3));
        assert_eq!((conditions.len(), conditions[0].since), (1, at(4)));
    }
}
