//! One step of one machine: what happened goes in, the machine and what is to be done come out. No I/O, no clock.

use landfall_api::{ConditionType, Problem, Reason, WorkflowPhase};

use crate::{
    derive,
    effect::{Effect, Refusal, Tell, Which},
    epoch::Epoch,
    fencing,
    input::Input,
    limits::Limits,
    restore, run,
    session::Session,
    state::MachineState,
    time::Now,
};

/// Applies one input.
///
/// It may be made again with the same session and newer documents where a compare-and-swap lost: it keeps nothing.
pub fn step(limits: &Limits, state: MachineState, input: Input, now: Now) -> (MachineState, Vec<Effect>) {
    let mut step = Step { limits, now, state, stores: Vec::new(), effects: Vec::new() };
    step.remember();
    if let Err(refusal) = step.take(input) {
        step.effects.push(Effect::Refuse(refusal));
    }
    step.finish_deletion();
    let Step { state, stores: mut effects, effects: others, .. } = step;
    effects.extend(others);
    (state, effects)
}

/// A step under way.
pub(crate) struct Step<'l> {
    pub(crate) limits: &'l Limits,
    pub(crate) now: Now,
    pub(crate) state: MachineState,
    /// What is to be stored, in order; before everything else.
    stores: Vec<Effect>,
    pub(crate) effects: Vec<Effect>,
}

impl Step<'_> {
    fn take(&mut self, input: Input) -> Result<(), Refusal> {
        match input {
            Input::Hello { hello, address, known } => self.hello(&hello, &address, &known),
            Input::Heartbeat { epoch, vitals } => self.heartbeat(epoch, vitals),
            Input::Reported { epoch, of, events } => self.reported(epoch, of, events),
            Input::Replayed(events) => {
                self.replayed(events);
                Ok(())
            }
            Input::Closed { epoch, why } => {
                self.closed(epoch, &why);
                Ok(())
            }
            Input::FenceAcknowledged { epoch } => {
                self.fence_acknowledged(epoch);
                Ok(())
            }
            Input::Settled { epoch } => {
                self.settled(epoch);
                Ok(())
            }
            Input::Turn(begins) => {
                self.turn(begins);
                Ok(())
            }
            Input::LookAgain => {
                self.look_again();
                Ok(())
            }
            Input::MakeWay(by) => self.make_way(by.as_ref()),
            Input::Launched => {
                self.launched();
                Ok(())
            }
            Input::Tick => {
                self.tick();
                Ok(())
            }
            Input::PhonedHome(of) => {
                for which in of {
                    self.advance(which, vec![run::Event::PhonedHome]);
                }
                Ok(())
            }
            Input::Cancel(which, by) => self.cancel(which, &by),
            Input::Pause(which, by) => self.pause(which, by),
            Input::Resume(which, by) => self.resume(which, by),
            Input::Confirm(which, by) => self.confirm(which, by),
            Input::ConfirmIdentity(by) => self.confirm_identity(&by),
            Input::Adopt(by) => self.adopt(&by),
            Input::Delete(by) => {
                self.delete(&by);
                Ok(())
            }
            Input::GiveUp(problem) => {
                self.advance(Which::Newest, vec![run::Event::GivenUp(problem)]);
                Ok(())
            }
            Input::CannotAssign(which, problem) => {
                self.cannot_assign(which, problem);
                Ok(())
            }
            Input::EventsMissing(of) => {
                if let Some(workflow) = self.state.newest.as_ref().filter(|w| w.metadata.uid == Some(of)) {
                    restore::mark_events_missing(&mut self.state.machine, workflow, self.now.wall);
                    self.stores_machine();
                }
                Ok(())
            }
            Input::ClockSet(by) => {
                if self.is_under_way() {
                    self.advance(Which::Newest, vec![run::Event::ClockSet(by)]);
                }
                Ok(())
            }
            Input::Started => {
                self.started();
                Ok(())
            }
        }
    }

    /// After a restart only the status knows of the session.
    fn remember(&mut self) {
        if self.state.session.is_none()
            && let Some(status) = &self.state.machine.status
        {
            self.state.session = Session::remembered(status, self.limits);
        }
    }

    /// The coordinator was away. A machine could not report meanwhile, so its deadlines leave room for that time; after too
    /// long a time nothing that was asked for counts.
    fn started(&mut self) {
        let last_heard = self.state.machine.status.as_ref().and_then(|status| status.last_heard);
        if self.is_under_way()
            && let Some(away) = self.limits.horizon.away(last_heard)
        {
            self.advance(Which::Newest, vec![run::Event::ClockSet(away)]);
        }
        let Some(workflow) = &self.state.newest else { return };
        if restore::mark_behind(&mut self.state.machine, workflow, &self.limits.horizon, self.now.wall) {
            self.stores_machine();
        }
    }

    /// Whether the newest workflow has not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        self.phase(Which::Newest).is_some_and(|phase| !phase.is_terminal())
    }

    pub(crate) fn phase(&self, which: Which) -> Option<WorkflowPhase> {
        self.state.workflow(which)?.status.as_ref().map(|status| status.phase)
    }

    /// The newest session.
    ///
    /// # Errors
    /// [`Problem`] with code `Fenced` if `epoch` is an older one's.
    pub(crate) fn session(&mut self, epoch: Epoch) -> Result<&mut Session, Problem> {
        fencing::newest(self.state.session.as_mut(), epoch)
    }

    pub(crate) fn stores_machine(&mut self) {
        if !self.stores.contains(&Effect::StoreMachine) {
            self.stores.push(Effect::StoreMachine);
        }
    }

    pub(crate) fn stores_workflow(&mut self, which: Which) {
        if !self.stores.contains(&Effect::StoreWorkflow(which)) {
            self.stores.push(Effect::StoreWorkflow(which));
        }
    }

    pub(crate) fn send(&mut self, tell: Tell) {
        if self.state.session.as_ref().is_some_and(Session::is_connected) {
            self.effects.push(Effect::Send(tell));
        }
    }

    /// Sets a condition of the machine.
    pub(crate) fn sets(&mut self, kind: ConditionType, holds: bool, reason: Reason, message: impl Into<String>) {
        let at = (self.now.wall, self.state.machine.metadata.generation);
        let status = self.state.machine.status.get_or_insert_with(derive::new_machine_status);
        derive::set(&mut status.conditions, kind, holds, reason, message, at);
        self.stores_machine();
    }
}
