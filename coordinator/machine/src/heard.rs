//! That an agent is heard once its session is open, and that it is not.

use std::time::Duration;

use landfall_api::{ConditionType as Type, Reason, message::Vitals};

use crate::connect::connect;
use crate::context::Step;
use crate::effect::{Effect, Refusal, Tell, Which};
use crate::epoch::Epoch;

/// An agent reported something of a workflow.
pub(crate) fn at_work(step: &mut Step<'_>, epoch: Epoch, of: Which) -> Result<(), Refusal> {
    let now = step.now;
    let session = step.session(epoch)?;
    session.hears(now);
    // The agent of this session still works on its list: whatever it was settled with, it has it. Of the newest workflow
    // alone: what it still has to say of an older one says nothing about this one.
    if session.settling && of == Which::Newest {
        connect(step, true);
    }
    Ok(())
}

pub(crate) fn heartbeat(step: &mut Step<'_>, epoch: Epoch, vitals: Vitals) -> Result<(), Refusal> {
    let (limits, now) = (step.limits, step.now);
    let beat = step.session(epoch)?.beats(limits, vitals, now);
    if beat.renewed {
        step.send(Tell::LeaseRenewal { epoch, lease: limits.lease, counts_from: Some(vitals.uptime) });
    }
    if beat.noted {
        let status = step.state.machine.status.get_or_insert_default();
        status.last_heard = Some(now.wall);
        status.agent_peak_rss_bytes = status.agent_peak_rss_bytes.max(Some(vitals.peak_rss_bytes));
        step.sets(Type::Connected, true, Reason::Heard, "the agent is connected");
    }
    Ok(())
}

/// The stream of a session ended. Its lease, if it has one, runs on.
pub(crate) fn closed(step: &mut Step<'_>, epoch: Epoch, why: &str) {
    let now = step.now;
    let Ok(session) = step.session(epoch) else { return };
    session.cut();
    session.silent = true;
    let heard = now.wall_at(session.heard);
    step.effects.push(Effect::LeaveQueue);
    step.state.machine.status.get_or_insert_default().last_heard = Some(heard);
    step.sets(Type::Connected, false, Reason::Disconnected, why);
}

/// A fenced agent has stopped everything destructive; nothing of its lease is left.
pub(crate) fn fence_acknowledged(step: &mut Step<'_>, epoch: Epoch) {
    if step.session(epoch).is_ok() {
        step.release_lease();
    }
}

/// A machine has had no power for so long, as its BMC reads: nothing of it acts any more. An agent that was heard meanwhile is
/// proof of the contrary: the BMC is another machine's, or wrong.
pub(crate) fn reads_off(step: &mut Step<'_>, so_long: Duration) {
    let now = step.now;
    let Some(session) = &step.state.session else { return };
    if session.lease.is_held() && now.steady.since(session.heard) >= so_long {
        step.release_lease();
    }
}

/// The agent has just become silent.
pub(crate) fn notes_silence(step: &mut Step<'_>) {
    let (limits, now) = (step.limits, step.now);
    let Some(session) = &mut step.state.session else { return };
    if !session.falls_silent(limits, now) {
        return;
    }
    let heard = now.wall_at(session.heard);
    step.state.machine.status.get_or_insert_default().last_heard = Some(heard);
    step.sets(Type::Connected, false, Reason::Silent, format!("the agent has not been heard since {heard}"));
}
