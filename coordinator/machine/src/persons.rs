//! What persons ask of a workflow: stop it, pause it, let it go on. Each request is recorded in the workflow's document.

use landfall_api::{
    ActionStatus, Authority, ConditionType as Type, ErrorCode, Problem, Reason, RunRequest, RunRequestKind,
    WorkflowPhase, WorkflowStatus,
};

use crate::advance::{CONTROL_PROTOCOL, advance, is_running};
use crate::context::Step;
use crate::effect::{Refusal, Which, refused};
use crate::{connect, derive, identity, life, run};

/// Requests a workflow's document remembers.
const KEPT_REQUESTS: usize = 16;

/// Stops a workflow.
pub(crate) fn cancel(step: &mut Step<'_>, which: Which, by: &Authority) -> Result<(), Refusal> {
    under_way(step, which)?;
    cancels(step, which, by);
    Ok(())
}

fn cancels(step: &mut Step<'_>, which: Which, by: &Authority) {
    if let Some(workflow) = step.state.workflow_mut(which) {
        workflow.spec.cancel = Some(by.clone());
    }
    advance(step, which, vec![run::Event::Cancelled(by.clone())]);
}

/// Ends the newest workflow in this person's name, if it has not ended.
pub(crate) fn cancel_newest(step: &mut Step<'_>, by: &Authority) {
    if step.is_under_way() {
        cancels(step, Which::Newest, by);
    }
}

/// Ends a workflow that a hold keeps from beginning; any other that has not ended is a reason to refuse.
pub(crate) fn make_way(step: &mut Step<'_>, by: Option<&Authority>) -> Result<(), Refusal> {
    if !step.is_under_way() {
        return Ok(());
    }
    let held = step.state.machine.status.as_ref().is_some_and(|s| derive::held(&s.conditions).is_some());
    if let Some(by) = by.filter(|_| held) {
        cancel_newest(step, by);
        return Ok(());
    }
    let workflow = step.state.newest.as_ref().map_or("", |workflow| workflow.metadata.name.as_str());
    Err(refused(life::busy(&step.state.machine.metadata.name, workflow)))
}

/// The action under way goes on to its end, and no other begins.
pub(crate) fn pause(step: &mut Step<'_>, which: Which, by: Authority) -> Result<(), Refusal> {
    let status = under_way(step, which)?;
    let workflow = name(step, which);
    let refuse =
        |message: String| Err(refused(Problem::new(ErrorCode::Conflict, message).at(format!("Workflow/{workflow}"))));
    if let Some(pause) = &status.paused {
        return refuse(format!("workflow \"{workflow}\" was already paused by {} at {}", pause.by, pause.since));
    }
    if status.phase == WorkflowPhase::Rebooting {
        return refuse(format!("every action of workflow \"{workflow}\" is done, so it cannot be paused"));
    }
    if status.ending.is_some() {
        return refuse(format!("workflow \"{workflow}\" has failed and runs its onFailure actions"));
    }
    let protocol = step.state.session.as_ref().filter(|s| s.connected).map(|s| s.protocol);
    if is_running(status)
        && let Some(protocol) = protocol.filter(|p| *p < CONTROL_PROTOCOL)
    {
        let message = format!("the machine's agent speaks protocol {protocol}, which does not support a pause");
        let hint = "build a new boot image; to stop this workflow use landfall cancel";
        return Err(refused(Problem::new(ErrorCode::VersionSkew, message).hint(hint)));
    }
    records(step, which, RunRequestKind::Pause, &by);
    advance(step, which, vec![run::Event::Paused(by)]);
    Ok(())
}

/// Lifts the pause, or without one lets the workflow go past the hold it stands at.
pub(crate) fn resume(step: &mut Step<'_>, which: Which, by: Authority) -> Result<(), Refusal> {
    let status = under_way(step, which)?;
    let holds = status.actions.iter().chain(&status.on_failure).any(ActionStatus::holds);
    if status.paused.is_none() && !holds {
        let workflow = name(step, which);
        let message = format!("workflow \"{workflow}\" is neither paused nor waiting at a hold");
        return Err(refused(Problem::new(ErrorCode::Conflict, message).at(format!("Workflow/{workflow}"))));
    }
    records(step, which, RunRequestKind::Resume, &by);
    advance(step, which, vec![run::Event::Resumed]);
    // An agent that came while the workflow was paused before its beginning waits to hear of it.
    connect::look_again(step);
    Ok(())
}

/// Lets a workflow begin that is held because it was requested before a time of which the store knows nothing. Nothing is
/// forced: the receipts on the disks are compared as always, and an unknown one still holds the machine.
pub(crate) fn confirm(step: &mut Step<'_>, which: Which, by: Authority) -> Result<(), Refusal> {
    let pending = under_way(step, which)?.phase == WorkflowPhase::Pending && which == Which::Newest;
    let holds =
        |kind: &Type| step.state.machine.status.as_ref().is_some_and(|status| derive::holds(&status.conditions, kind));
    let (workflow, machine) = (name(step, which), step.state.machine.metadata.name.clone());
    let refuse = |message: String, hint: String| {
        Err(refused(Problem::new(ErrorCode::Conflict, message).hint(hint).at(format!("Workflow/{workflow}"))))
    };
    if holds(&Type::ReceiptConflict) {
        let message = format!("machine \"{machine}\" carries a receipt that this store does not know");
        return refuse(message, format!("adopt the machine, or use landfall provision {machine} --force"));
    }
    if !pending || !holds(&Type::StoreBehind) {
        let message = format!("workflow \"{workflow}\" does not wait for a confirmation");
        return refuse(message, format!("landfall describe workflow {workflow} shows what it waits for"));
    }
    let message = format!("{} confirmed workflow \"{workflow}\" {}", by.person, by.at);
    records(step, which, RunRequestKind::Confirm, &Authority { force: false, ..by });
    step.stores_workflow(which);
    step.sets(Type::StoreBehind, false, Reason::Confirmed, message);
    derive::phase(&mut step.state.machine);
    if let Some(session) = &mut step.state.session {
        session.held = false;
    }
    connect::look_again(step);
    Ok(())
}

/// Clears the identity alarm. The next one is raised at once.
pub(crate) fn confirm_identity(step: &mut Step<'_>, by: &Authority) -> Result<(), Refusal> {
    if !identity::has_alarm(&step.state.machine) {
        let machine = &step.state.machine.metadata.name;
        let message = format!("machine \"{machine}\" has no identity alarm");
        return Err(refused(Problem::new(ErrorCode::Conflict, message).at(format!("Machine/{machine}"))));
    }
    let message = format!("{} confirmed its identity {}", by.person, by.at);
    step.sets(Type::IdentityAmbiguous, false, Reason::Confirmed, message);
    Ok(())
}

fn records(step: &mut Step<'_>, which: Which, what: RunRequestKind, by: &Authority) {
    let Some(workflow) = step.state.workflow_mut(which) else { return };
    let requests = &mut workflow.spec.requests;
    requests.push(RunRequest { what, by: by.clone() });
    let excess = requests.len().saturating_sub(KEPT_REQUESTS);
    requests.drain(..excess);
}

fn name(step: &Step<'_>, which: Which) -> String {
    step.state.workflow(which).map_or_else(String::new, |workflow| workflow.metadata.name.clone())
}

/// The status of a workflow that has not ended.
fn under_way<'s>(step: &'s Step<'_>, which: Which) -> Result<&'s WorkflowStatus, Refusal> {
    match step.state.workflow(which).and_then(|workflow| workflow.status.as_ref()) {
        Some(status) if !status.phase.is_terminal() => Ok(status),
        status => {
            let (workflow, how) = (name(step, which), status.map(|s| format!(": {:?}", s.phase)).unwrap_or_default());
            let message = format!("workflow \"{workflow}\" has ended already{how}");
            Err(refused(Problem::new(ErrorCode::WorkflowEnded, message).at(format!("Workflow/{workflow}"))))
        }
    }
}

/// Takes the machine over as it is: it counts as provisioned, the receipts it carries are taken as they are, and
/// nothing is run on it unless a person asks. A hold ends with it, and a workflow that the hold kept from beginning.
pub(crate) fn adopt(step: &mut Step<'_>, by: &Authority) -> Result<(), Refusal> {
    let by = Authority { force: false, ..by.clone() };
    if step.state.machine.metadata.deletion_timestamp.is_some() {
        return life::may_begin(&step.state.machine).map_err(refused);
    }
    make_way(step, Some(&by))?;
    let (now, generation) = (step.now.wall, step.state.machine.metadata.generation);
    let machine = &mut step.state.machine;
    let status = machine.status.get_or_insert_default();
    if let Some(session) = &step.state.session {
        status.receipts.clone_from(&session.receipts);
    }
    let message = format!("{} adopted it {}", by.person, by.at);
    status.adopted = Some(by);
    derive::set(&mut status.conditions, Type::Provisioned, true, Reason::Adopted, &message, (now, generation));
    life::end_holds(machine, &Reason::Adopted, &message, (now, generation));
    let conditions = &mut machine.status.get_or_insert_default().conditions;
    if derive::holds(conditions, &Type::IdentityAmbiguous) {
        derive::set(conditions, Type::IdentityAmbiguous, false, Reason::Adopted, &message, (now, generation));
    }
    derive::conditions(machine, step.state.newest.as_deref(), now);
    step.stores_machine();
    if let Some(session) = &mut step.state.session {
        session.held = false;
        step.idles(true);
    }
    Ok(())
}
