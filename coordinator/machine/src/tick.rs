//! What time does to a machine: silence, deadlines, and what its workflow's conditions say of both.

use jiff::Timestamp;
use landfall_api::Workflow;

use crate::advance::advance;
use crate::context::Step;
use crate::effect::Which;
use crate::limits::Limits;
use crate::run::conditions;
use crate::run::conditions::Heard;
use crate::{heard, power, run};

/// Whether time has changed anything of a workflow: most have nothing new to say, and then no step is needed.
/// `last_heard`: when its machine's agent was, where one is connected.
pub fn is_due(workflow: &Workflow, last_heard: Option<Timestamp>, limits: &Limits, now: Timestamp) -> bool {
    let heard = heard(last_heard, limits);
    is_overdue(workflow, now) || conditions::has_news(workflow, Some(heard), now)
}

fn is_overdue(workflow: &Workflow, now: Timestamp) -> bool {
    workflow.status.as_ref().and_then(|status| status.deadline).is_some_and(|deadline| deadline <= now)
}

/// What a workflow's conditions go by of its agent.
fn heard(last: Option<Timestamp>, limits: &Limits) -> Heard {
    Heard { last, limit: limits.silent_after(), netboot: limits.netboot_deadline, gave_up: false }
}

pub(crate) fn tick(step: &mut Step<'_>) {
    heard::notes_silence(step);
    let last = step.state.session.as_ref().and_then(|session| session.last_heard(step.now));
    let mut heard = heard(last, step.limits);
    let bmc = step.state.machine.status.as_ref().and_then(|status| status.bmc.as_ref());
    let ways = step.state.machine.ways();
    let known = step.state.machine.status.iter().flat_map(|status| &status.conditions);
    let is_unknown = step.state.machine.macs().is_empty() && known.into_iter().any(|c| c.kind == "IdentityKnown");
    let Some(workflow) = &mut step.state.newest else { return };
    let tried = bmc.zip(workflow.metadata.uid).map(|(bmc, uid)| power::tried(bmc, &ways, uid));
    heard.gave_up = is_unknown || !ways.is_empty() && tried.as_ref().is_some_and(|(_, gave_up)| *gave_up);
    if workflow.status.as_ref().is_none_or(|status| status.phase.is_terminal()) {
        return;
    }
    if is_overdue(workflow, step.now.wall) {
        advance(step, Which::Newest, vec![run::Event::Tick]);
    } else if conditions::derive(workflow, Some(heard), step.now.wall) {
        let nothing = "nothing, because its ports are not known (see the machine's condition IdentityKnown)".to_owned();
        let tried = if is_unknown { nothing } else { tried.map(|(tried, _)| tried).unwrap_or_default() };
        conditions::add_tried(workflow, tried);
        step.stores_workflow(Which::Newest);
    }
}
