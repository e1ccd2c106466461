//! An agent is there: what it is sent.

use landfall_api::{ReceiptState, WorkflowPhase};

use crate::{
    derive,
    effect::{Effect, Tell, Which},
    epoch::Epoch,
    life,
    run::{self, conditions::between_attempts},
    step::Step,
};

impl Step<'_> {
    /// Lets the machine's workflow know that an agent is there, or tells the agent that there is none.
    pub(crate) fn connect(&mut self, still_running: bool) {
        let waits = self.state.newest.as_ref().is_some_and(|workflow| life::waits(workflow));
        // The machine may be held since a moment after the hello; what has begun goes on.
        let held_since = waits && life::is_held(&self.state.machine).is_some();
        let Some(session) = &mut self.state.session else { return };
        session.settling = false;
        if session.held || held_since {
            // Whatever is there starts; only a disk that cannot boot waits here for the person's word.
            let begun = session.receipts.iter().any(|r| r.receipt.state == ReceiptState::Intent);
            return self.send(Tell::Idle { boot_disk: !begun });
        }
        let Some(phase) = self.phase(Which::Newest) else { return self.send(Tell::Idle { boot_disk: true }) };
        if phase != WorkflowPhase::Running && life::may_begin(&self.state.machine).is_err() {
            return self.send(Tell::Idle { boot_disk: true });
        }
        let begins = matches!(phase, WorkflowPhase::Pending | WorkflowPhase::Running) && !still_running;
        if begins && self.waits_out() {
            return;
        }
        match phase {
            // Whether there is room is a question of all machines.
            WorkflowPhase::Pending => self.effects.push(Effect::AskTurn),
            WorkflowPhase::Running if still_running => {
                // It acts under an older session's lease: whatever becomes of the workflow now, it does so until it says
                // otherwise.
                self.take_lease();
                self.agent_connected(true);
            }
            _ => self.agent_connected(false),
        }
    }

    /// The answer to [`Effect::AskTurn`].
    pub(crate) fn turn(&mut self, begins: bool) {
        if !begins {
            self.send(Tell::Idle { boot_disk: false });
        } else if self.phase(Which::Newest) == Some(WorkflowPhase::Pending) {
            self.agent_connected(false);
        }
    }

    fn agent_connected(&mut self, still_running: bool) {
        let Some(session) = &self.state.session else { return };
        let (epoch, receipts, protocol) = (session.epoch.get(), session.receipts.clone(), session.protocol);
        self.advance(Which::Newest, vec![run::Event::AgentConnected { epoch, receipts, still_running, protocol }]);
    }

    /// Something changed for which an idle agent may be waiting.
    pub(crate) fn look_again(&mut self) {
        let waits = self.phase(Which::Newest) == Some(WorkflowPhase::Pending);
        if waits && self.state.session.as_ref().is_some_and(|s| s.connected && !s.settling) {
            self.connect(false);
        }
    }

    /// A workflow was asked for: an agent that is there and idle need not netboot again.
    pub(crate) fn launched(&mut self) {
        let held = self.state.machine.status.as_ref().is_some_and(|s| derive::held(&s.conditions).is_some());
        if let Some(session) = self.state.session.as_mut().filter(|session| session.connected) {
            session.held = held;
            self.connect(false);
        }
    }

    /// The time to settle is over: the agent has nothing to say of its list.
    pub(crate) fn settled(&mut self, epoch: Epoch) {
        let ends = self.unknown_lease_end();
        let Some(session) = self.state.session.as_mut().filter(|session| session.epoch == epoch) else { return };
        if session.waits && session.connected && ends.is_some() {
            return self.effects.push(Effect::Settle(epoch));
        }
        let waited = std::mem::take(&mut session.waits);
        if !waited && !session.settling {
            return;
        }
        // A failed attempt whose next one has not begun: the agent waits before it tries again, and still has its list.
        let retrying = self.state.newest.as_ref().and_then(|w| w.status.as_ref()).is_some_and(between_attempts);
        self.connect(retrying && !waited);
    }
}
