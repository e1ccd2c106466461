//! An agent is there: what it is sent.

use landfall_api::{ReceiptState, WorkflowPhase};

use crate::advance::advance;
use crate::context::Step;
use crate::effect::{Effect, Which};
use crate::epoch::Epoch;
use crate::run::conditions::between_attempts;
use crate::{derive, life, run, unknown};

/// Lets the machine's workflow know that an agent is there, or tells the agent that there is none.
pub(crate) fn connect(step: &mut Step<'_>, still_running: bool) {
    let waits = step.state.newest.as_ref().is_some_and(|workflow| life::waits(workflow));
    // The machine may be held since a moment after the hello; what has begun goes on.
    let held_since = waits && life::is_held(&step.state.machine).is_some();
    let Some(session) = &mut step.state.session else { return };
    session.settling = false;
    if session.scanning && !still_running {
        // Its report of the disks brings it here again.
        return;
    }
    if session.held || held_since {
        // Whatever is there starts; only a disk that cannot boot waits here for the person's word.
        let begun = session.receipts.iter().any(|r| r.receipt.state == ReceiptState::Intent);
        return step.idles(!begun);
    }
    let Some(phase) = step.phase(Which::Newest) else { return step.idles(true) };
    if phase != WorkflowPhase::Running && life::may_begin(&step.state.machine).is_err() {
        return step.idles(true);
    }
    let begins = matches!(phase, WorkflowPhase::Pending | WorkflowPhase::Running) && !still_running;
    if begins && unknown::waits_out(step) {
        return;
    }
    match phase {
        // Whether there is room is a question of all machines.
        WorkflowPhase::Pending => step.effects.push(Effect::AskTurn),
        WorkflowPhase::Running if still_running => {
            // It acts under an older session's lease: whatever becomes of the workflow now, it does so until it says
            // otherwise.
            step.take_lease();
            agent_connected(step, true);
        }
        _ => agent_connected(step, false),
    }
}

/// The answer to [`Effect::AskTurn`].
pub(crate) fn turn(step: &mut Step<'_>, begins: bool) {
    // It may have gone on to another coordinator meanwhile.
    let is_here = step.state.session.as_ref().is_some_and(|session| session.connected && !session.is_elsewhere);
    if !begins {
        step.idles(false);
    } else if is_here && step.phase(Which::Newest) == Some(WorkflowPhase::Pending) {
        agent_connected(step, false);
    }
}

fn agent_connected(step: &mut Step<'_>, still_running: bool) {
    let Some(session) = &step.state.session else { return };
    let (epoch, receipts, protocol) = (session.epoch.get(), session.receipts.clone(), session.protocol);
    advance(step, Which::Newest, vec![run::Event::AgentConnected { epoch, receipts, still_running, protocol }]);
}

/// Something changed for which an idle agent may be waiting.
pub(crate) fn look_again(step: &mut Step<'_>) {
    let waits = step.phase(Which::Newest) == Some(WorkflowPhase::Pending);
    if waits && step.state.session.as_ref().is_some_and(|s| s.connected && !s.settling) {
        connect(step, false);
    }
}

/// A workflow was asked for: an agent that is there and idle need not netboot again.
pub(crate) fn launched(step: &mut Step<'_>) {
    let held = step.state.machine.status.as_ref().is_some_and(|s| derive::held(&s.conditions).is_some());
    if let Some(session) = step.state.session.as_mut().filter(|session| session.connected) {
        session.held = held;
        connect(step, false);
    }
}

/// The time to settle is over: the agent has nothing to say of its list.
pub(crate) fn settled(step: &mut Step<'_>, epoch: Epoch) {
    let ends = unknown::unknown_lease_end(step);
    let Some(session) = step.state.session.as_mut().filter(|session| session.epoch == epoch) else { return };
    if session.waits && session.connected && ends.is_some() {
        return step.effects.push(Effect::Settle(epoch));
    }
    let waited = std::mem::take(&mut session.waits);
    if !waited && !session.settling {
        return;
    }
    // A failed attempt whose next one has not begun: the agent waits before it tries again, and still has its list.
    let retrying = step.state.newest.as_ref().and_then(|w| w.status.as_ref()).is_some_and(between_attempts);
    connect(step, retrying && !waited);
}
