//! Conditions and phases, derived from what is known. Pure.

use jiff::Timestamp;
use landfall_api::{
    ActionState, Condition, ConditionStatus, Machine, MachinePhase, MachineStatus, Workflow, WorkflowPhase,
    WorkflowStatus,
};

/// Sets a condition; `since` moves only when the status does.
pub(super) fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: bool,
    reason: &str,
    message: impl Into<String>,
    (now, observed_generation): (Timestamp, u64),
) {
    let status = if status { ConditionStatus::True } else { ConditionStatus::False };
    let old = conditions.iter().position(|c| c.kind == kind);
    let since = old.map(|n| &conditions[n]).filter(|c| c.status == status).map_or(now, |c| c.since);
    let new = Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.into(),
        since,
        observed_generation,
    };
    match old {
        Some(n) => conditions[n] = new,
        None => conditions.push(new),
    }
}

/// Whether a condition is there and true.
pub(super) fn holds(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|c| c.kind == kind && c.status == ConditionStatus::True)
}

/// A status nothing is known for yet.
pub(super) fn new_machine_status() -> MachineStatus {
    MachineStatus {
        phase: MachinePhase::Available,
        conditions: Vec::new(),
        facts: None,
        receipts: Vec::new(),
        workflow: None,
        epoch: 0,
        session: None,
        last_heard: None,
        agent_peak_rss_bytes: None,
        enrolled_boottime_ms: None,
        agent: None,
    }
}

/// Brings a machine's `Provisioned` condition, receipts and phase in line with its newest run.
pub(super) fn machine(machine: &mut Machine, workflow: Option<&Workflow>, now: Timestamp) {
    let generation = machine.metadata.generation;
    let status = machine.status.get_or_insert_with(new_machine_status);
    let run = workflow.and_then(|w| Some((w.metadata.uid?, w.status.as_ref()?)));
    if let Some((uid, run)) = run {
        for own in run.expected_receipts.iter().filter(|r| r.receipt.workflow_uid == uid) {
            status.receipts.retain(|known| !known.disk.same_disk(&own.disk));
            status.receipts.push(own.clone());
        }
        provisioned(status, run, (now, generation));
    }
    let phase = run.map(|(_, run)| run.phase);
    status.phase = if holds(&status.conditions, "ReceiptConflict") {
        MachinePhase::Held
    } else if phase.is_some_and(|phase| !phase.is_terminal()) {
        MachinePhase::Provisioning
    } else if holds(&status.conditions, "Provisioned") {
        MachinePhase::Provisioned
    } else if phase.is_some() {
        MachinePhase::Failed
    } else {
        MachinePhase::Available
    };
}

fn provisioned(status: &mut MachineStatus, run: &WorkflowStatus, at: (Timestamp, u64)) {
    let conditions = &mut status.conditions;
    let touched = run.actions.iter().any(|action| action.attempt > 0);
    match (run.phase, run.phoned_home_at) {
        (_, Some(when)) => {
            set(conditions, "Provisioned", true, "PhonedHome", format!("the installed system phoned home {when}"), at);
        }
        (WorkflowPhase::Succeeded, None) => {
            set(conditions, "Provisioned", true, "Installed", "installed; the template asks for no phone-home", at);
        }
        (WorkflowPhase::Failed | WorkflowPhase::Cancelled, None) if touched => {
            let (reason, message) =
                run.problem.as_ref().map_or(("Failed", String::new()), |p| (p.code.as_str(), p.to_string()));
            set(conditions, "Provisioned", false, reason, message, at);
        }
        // Nothing was done to it: whatever held before holds still.
        (WorkflowPhase::Failed | WorkflowPhase::Cancelled | WorkflowPhase::Pending, None) => {}
        (WorkflowPhase::Running | WorkflowPhase::Rebooting, None) => {
            set(conditions, "Provisioned", false, "Provisioning", "a run is under way", at);
        }
    }
}

/// Brings a run's `Progressing` and `InTime` conditions in line with its state.
pub(super) fn workflow(workflow: &mut Workflow, now: Timestamp) {
    let at = (now, workflow.metadata.generation);
    let machine = workflow.spec.machine.clone();
    let Some(status) = &mut workflow.status else { return };
    let (progressing, reason, message) = match status.phase {
        WorkflowPhase::Pending => (false, "WaitingForAgent", format!("waits for {machine} to netboot; power it on")),
        WorkflowPhase::Running => {
            let current = status.actions.iter().find(|a| a.state != ActionState::Succeeded);
            let what = current
                .map_or_else(String::new, |a| format!("action \"{}\", attempt {}", a.action.name, a.attempt.max(1)));
            (true, "Running", what)
        }
        WorkflowPhase::Rebooting => {
            (true, "WaitingForPhoneHome", "waits for the installed system to phone home".into())
        }
        WorkflowPhase::Succeeded => (false, "Succeeded", "done".into()),
        WorkflowPhase::Failed | WorkflowPhase::Cancelled => {
            (false, "Ended", status.problem.as_ref().map_or_else(String::new, ToString::to_string))
        }
    };
    set(&mut status.conditions, "Progressing", progressing, reason, message, at);
    let (in_time, reason, message) = match (status.phase, status.deadline) {
        (WorkflowPhase::Pending, _) => (true, "NoDeadline", "a person decides when the machine is powered on".into()),
        (_, Some(deadline)) => (deadline > now, "Deadline", format!("must have changed by {deadline}")),
        _ => (status.phase != WorkflowPhase::Failed, "Ended", String::new()),
    };
    set(&mut status.conditions, "InTime", in_time, reason, message, at);
}
