//! Deletion at whatever moment: the document stays while an agent may be acting.

use jiff::Timestamp;
use landfall_api::{Authority, ConditionType as Type, Reason};

use crate::context::Step;
use crate::effect::{Effect, Tell};
use crate::life::AGENT;
use crate::time::Steady;
use crate::{persons, unknown};

/// Deletes the machine at whatever moment. While an agent may be acting, the document stays, says so, and goes with the
/// agent's acknowledgement or its lease.
pub(crate) fn delete(step: &mut Step<'_>, by: &Authority) {
    persons::cancel_newest(step, by);
    if let Some(epoch) = step.state.session.as_ref().map(|session| session.epoch) {
        step.send(Tell::Fenced { epoch, reason: format!("the machine was deleted by {}", by.person) });
    }
    let Some(end) = acting_until(step) else {
        return step.effects.push(Effect::Remove);
    };
    let left = end.since(step.now.steady);
    let until = step.now.wall.checked_add(left).unwrap_or(Timestamp::MAX);
    let finalizers = &mut step.state.machine.metadata.finalizers;
    if !finalizers.iter().any(|f| f == AGENT) {
        finalizers.push(AGENT.to_owned());
    }
    let message = format!(
        "deleted by {}; waits for the agent to say that it has stopped, or for its lease to end at {until}",
        by.person
    );
    step.sets(Type::Deleting, true, Reason::AgentMayAct, message);
    step.effects.push(Effect::MarkDeleted);
}

/// Until when an agent may be acting, known or not.
fn acting_until(step: &Step<'_>) -> Option<Steady> {
    let session = step.state.session.as_ref().filter(|session| session.may_act(step.now));
    session.map(|session| session.lease.until()).max(unknown::unknown_lease_end(step))
}

/// If the machine is to go and no agent can be acting any more, it goes.
pub(crate) fn finish_deletion(step: &mut Step<'_>) {
    let acts = acting_until(step).is_some();
    let going = step.state.machine.metadata.deletion_timestamp.is_some();
    if going && !acts && !step.effects.contains(&Effect::Remove) {
        step.effects.push(Effect::Remove);
    }
}
