//! A step under way: what it goes by, the machine as it is so far, and what is to be done.

use landfall_api::message::Ended;
use landfall_api::{ConditionType, DurationSpec, Problem, Reason, WorkflowPhase, WorkflowStatus};

use crate::effect::{Effect, Tell, Which};
use crate::epoch::Epoch;
use crate::limits::Limits;
use crate::session::Session;
use crate::state::MachineState;
use crate::time::Now;
use crate::{derive, fencing};

/// A step under way.
pub(crate) struct Step<'l> {
    pub(crate) limits: &'l Limits,
    pub(crate) now: Now,
    pub(crate) state: MachineState,
    /// What is to be stored, in order; before everything else.
    stores: Vec<Effect>,
    pub(crate) effects: Vec<Effect>,
}

impl<'l> Step<'l> {
    pub(crate) const fn new(limits: &'l Limits, state: MachineState, now: Now) -> Self {
        Self { limits, now, state, stores: Vec::new(), effects: Vec::new() }
    }

    /// The machine as the step leaves it, and everything that is to be done, in order.
    pub(crate) fn done(self) -> (MachineState, Vec<Effect>) {
        let Self { state, stores: mut effects, effects: others, .. } = self;
        effects.extend(others);
        (state, effects)
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

    /// Tells the agent that there is nothing to do, and how its newest workflow ended.
    pub(crate) fn idles(&mut self, boot_disk: bool) {
        let ended = self.state.newest.as_ref().and_then(|workflow| {
            let status = workflow.status.as_ref().filter(|status| status.phase.is_terminal())?;
            let why = || status.problem.as_ref().map_or_else(|| "no reason is stored".to_owned(), ToString::to_string);
            let problem = (status.phase != WorkflowPhase::Succeeded).then(why);
            Some(Ended { workflow_uid: workflow.metadata.uid?, problem })
        });
        self.send(Tell::Idle { boot_disk, ended });
    }

    /// Sets a condition of the machine.
    pub(crate) fn sets(&mut self, kind: ConditionType, holds: bool, reason: Reason, message: impl Into<String>) {
        let at = (self.now.wall, self.state.machine.metadata.generation);
        let status = self.state.machine.status.get_or_insert_default();
        derive::set(&mut status.conditions, kind, holds, reason, message, at);
        self.stores_machine();
    }

    /// The agent may act from now on. Stored before the agent hears of it: a coordinator that starts again must not give
    /// the machine to another computer meanwhile.
    pub(crate) fn take_lease(&mut self) {
        let Some(session) = &mut self.state.session else { return };
        session.lease.take(self.limits.lease, self.now.steady);
        self.stores_leased(true);
    }

    /// The agent has stopped.
    pub(crate) fn release_lease(&mut self) {
        let Some(session) = &mut self.state.session else { return };
        session.lease.release(self.now.steady);
        self.stores_leased(false);
    }

    pub(crate) fn stores_leased(&mut self, leased: bool) {
        let holder = self.state.machine.status.as_mut().and_then(|status| status.session.as_mut());
        let lease = leased.then(|| DurationSpec::from_secs(self.limits.lease.as_secs().max(1)));
        if let Some(holder) = holder.filter(|holder| (holder.leased, holder.lease) != (leased, lease)) {
            (holder.leased, holder.lease) = (leased, lease);
            self.stores_machine();
        }
    }

    pub(crate) fn newest_status(&self) -> Option<&WorkflowStatus> {
        self.state.newest.as_ref().and_then(|workflow| workflow.status.as_ref())
    }
}
