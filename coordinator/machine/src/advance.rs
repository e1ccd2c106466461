//! A workflow moves on: its own state machine steps, the machine's document follows, and the lease with it.

use landfall_api::{ActionSpec, ActionState, ActionStatus, WorkflowPhase, WorkflowStatus};

use crate::{
    derive,
    effect::{Effect, Tell, Which},
    run::{self, Context},
    step::Step,
};

/// The protocol revision from which agents can be paused.
pub(crate) const CONTROL_PROTOCOL: u32 = 2;

impl Step<'_> {
    /// Applies events to a workflow in their order.
    pub(crate) fn advance(&mut self, which: Which, events: Vec<run::Event>) {
        let (limits, now) = (self.limits, self.now);
        let Some(workflow) = self.state.workflow_mut(which) else { return };
        let before = workflow.clone();
        let (Some(uid), Some(status)) = (workflow.metadata.uid, workflow.status.take()) else { return };
        let context =
            Context { workflow_uid: uid, lease: limits.lease, phone_home_deadline: limits.phone_home_deadline };
        let moved = !status.phase.is_terminal();
        let (mut status, mut effects, mut stopped) = (status, Vec::new(), None);
        for (n, event) in events.iter().enumerate() {
            let (next, asked) = run::step(&context, status, event, now.wall);
            status = next;
            effects.extend(asked);
            if stopped.is_none() && !is_running(&status) {
                stopped = Some(n);
            }
        }
        workflow.status = Some(status);
        derive::workflow(workflow, now.wall);
        self.stores_workflow(which);
        self.brings_machine_in_line(which, moved);
        if let Some(by) = stopped {
            let (led, rest) = events.split_at(by);
            // Made again rather than kept: few batches end a workflow.
            let again = |status, event| run::step(&context, status, event, now.wall).0;
            let was = before.status.clone().map(|first| led.iter().fold(first, again)).filter(is_running);
            self.stops(uid, was.as_ref(), rest);
        }
        for effect in effects {
            self.carries_out(which, uid, effect);
        }
    }

    /// `moved`: the workflow had not ended, so what it says of the disks is news; else the agent's own word is newer.
    fn brings_machine_in_line(&mut self, which: Which, moved: bool) {
        let now = self.now.wall;
        // An older workflow's story must not cover the newest one's.
        let (Which::Newest, Some(workflow)) = (which, &self.state.newest) else { return };
        let machine = &mut self.state.machine;
        if moved {
            derive::receipts(machine, workflow);
        }
        derive::conditions(machine, Some(workflow), now);
        self.stores_machine();
    }

    /// The workflow has ceased to run. An agent that is only asked to stop may act until it says that it has, or until its
    /// lease ends.
    fn stops(&mut self, uid: uuid::Uuid, before: Option<&WorkflowStatus>, events: &[run::Event]) {
        let Some(session) = self.state.session.as_mut().filter(|session| session.lease.is_held()) else { return };
        if let Some(before) = before {
            session.lease.stop(uid, before);
        }
        let Some(stopping) = session.lease.stopping(uid) else { return };
        if events.iter().any(|event| stopping.hears(event)) {
            self.release_lease();
        }
    }

    fn carries_out(&mut self, of: Which, workflow_uid: uuid::Uuid, effect: run::Effect) {
        match effect {
            run::Effect::Assign { starts } => {
                // One that waits is given the list when it need not any more.
                if self.state.session.as_ref().is_some_and(|session| !session.waits) {
                    self.take_lease();
                    self.effects.push(Effect::Assign { of, starts });
                }
            }
            run::Effect::RenewLease => {
                self.take_lease();
                let Some(session) = &self.state.session else { return };
                let (epoch, counts_from, lease) = (session.epoch, session.counts_from(), self.limits.lease);
                self.send(Tell::LeaseRenewal { epoch, lease, counts_from });
            }
            run::Effect::Control => self.controls(of, workflow_uid),
            run::Effect::Idle { boot_disk } => self.send(Tell::Idle { boot_disk }),
            run::Effect::StopAgent { reason } => self.send(Tell::Cancel { workflow_uid, reason }),
        }
    }

    /// An older agent knows of neither pause nor release, and is never handed a list that has a hold. Where no person has
    /// asked for anything yet, no agent can believe anything else.
    fn controls(&mut self, of: Which, workflow_uid: uuid::Uuid) {
        let Some(workflow) = self.state.workflow(of).filter(|w| !w.spec.requests.is_empty()) else { return };
        let Some(status) = &workflow.status else { return };
        if self.state.session.as_ref().is_some_and(|s| s.protocol >= CONTROL_PROTOCOL) {
            let (paused, released) = (status.paused.is_some(), released_holds(status));
            self.send(Tell::Control { workflow_uid, paused, released });
        }
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

    fn stores_leased(&mut self, leased: bool) {
        let holder = self.state.machine.status.as_mut().and_then(|status| status.session.as_mut());
        if let Some(holder) = holder.filter(|holder| holder.leased != leased) {
            holder.leased = leased;
            self.stores_machine();
        }
    }

    /// The list cannot be made, so the agent never hears of its lease; the workflow ends.
    pub(crate) fn cannot_assign(&mut self, which: Which, problem: Box<landfall_api::Problem>) {
        self.release_lease();
        self.advance(which, vec![run::Event::GivenUp(problem)]);
    }
}

/// Whether an agent may be at work on it.
pub(crate) fn is_running(status: &WorkflowStatus) -> bool {
    status.phase == WorkflowPhase::Running
}

/// Indices of the holds that a person let the workflow go past.
fn released_holds(status: &WorkflowStatus) -> Vec<u32> {
    let actions = status.actions.iter().chain(&status.on_failure).zip(0u32..);
    let released = |a: &ActionStatus| matches!(a.action.spec, ActionSpec::Hold(_)) && a.state == ActionState::Succeeded;
    actions.filter(|(action, _)| released(action)).map(|(_, index)| index).collect()
}
