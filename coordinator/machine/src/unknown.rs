//! Leases that the store does not know: it was put back from a copy, and they were given since. Until their end an agent that
//! holds no list is given none: another computer of the same identity may be writing.

use jiff::Timestamp;
use landfall_api::{ConditionType, Reason};

use crate::context::Step;
use crate::effect::Effect;
use crate::time::Steady;

/// Until then some agent may be acting on the machine of which this store does not know; `None`: it knows of all.
///
/// A store that was put back by other means than `restore` looks like that of a coordinator that was away. It shows only in
/// what an agent knows that it does not.
pub(crate) fn unknown_lease_end(step: &Step<'_>) -> Option<Steady> {
    let (now, horizon) = (step.now.steady, &step.limits.horizon);
    let end = horizon.unknown_leases_end();
    let behind = step.state.session.as_ref().is_some_and(|session| session.behind);
    (horizon.misses_leases(now) || behind && now < end).then_some(end)
}

/// Whether the agent, which holds no list, is to be given none yet, because another one may be acting on a lease that this
/// store does not know.
pub(crate) fn waits_out(step: &mut Step<'_>) -> bool {
    let end = unknown_lease_end(step);
    let Some(session) = &mut step.state.session else { return false };
    let waited = std::mem::replace(&mut session.waits, end.is_some());
    let (Some(end), false) = (end, waited) else { return end.is_some() };
    let epoch = session.epoch;
    step.effects.push(Effect::Settle(epoch));
    step.idles(false);
    let until = step.now.wall.checked_add(end.since(step.now.steady)).unwrap_or(Timestamp::MAX);
    let message = format!(
        "the agent is connected and waits until {until}: the store was put back from a copy, and until then another \
            agent may be acting on a lease that the copy does not have"
    );
    step.sets(ConditionType::Connected, true, Reason::Hello, message);
    true
}
