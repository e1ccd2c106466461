//! Stepping a run: the state machine applied to a stored workflow, persisted, its machine brought in line, its effects
//! carried out.

use futures::future::BoxFuture;
use landfall_api::{
    ActionSpec, ActionState, ActionStatus, Document, ErrorCode, Kind, Machine, Problem, Workflow, WorkflowStatus,
};

use landfall_machine::{
    run::{Effect, Event, Start, step},
    stopping::Stopping,
};

use super::{
    Engine, ToAgent, derive,
    live::Live,
    shorten::{Room, outgrown, shorten},
    tail::FailedAttempt,
};
use landfall_store::StoreError;

/// Writes that lose a compare-and-swap this often in a row give up: somebody else writes without end.
pub(super) const CAS_TRIES: usize = 16;

/// The protocol revision from which agents can be paused.
pub(super) const CONTROL_PROTOCOL: u32 = 2;

/// What one or several steps came to.
pub(super) struct Stepped {
    /// The run as stored.
    pub(super) workflow: Workflow,
    /// What is to be done about it.
    effects: Vec<Effect>,
    /// The attempts that failed.
    failed: Vec<FailedAttempt>,
    /// The event by which it ceased to run, and its status before that; the first event and nothing if it did not run.
    stopped: Option<(usize, Option<WorkflowStatus>)>,
}

/// A fault of the coordinator itself.
pub(super) fn internal(error: impl std::error::Error) -> Problem {
    Problem::new(ErrorCode::Internal, error.to_string()).caused_by(&error)
}

impl Engine {
    /// Applies one event to a run, under its machine's lock.
    pub(super) async fn advance(&self, live: &mut Live, workflow: &str, event: Event) -> Result<Workflow, Problem> {
        self.advance_by(live, workflow, &[event]).await
    }

    /// Applies events to a run in their order, under its machine's lock, and writes it once.
    pub(super) async fn advance_by(
        &self,
        live: &mut Live,
        workflow: &str,
        events: &[Event],
    ) -> Result<Workflow, Problem> {
        let was_active = self.index().is_active(workflow);
        let Stepped { workflow, effects, failed, stopped } = self.step_stored(workflow, events).await?;
        if let (false, Some(uid)) = (failed.is_empty(), workflow.metadata.uid) {
            self.keep_tails_open(&workflow.metadata.name, uid, &failed);
        }
        self.bring_machine_in_line(&workflow, was_active).await?;
        if let Some(session) = live.session.as_mut().filter(|s| s.leased)
            && let Some(uid) = workflow.metadata.uid
            && let Some((by, before)) = stopped
        {
            // An agent that is only told to stop may act until it says that it has, or until its lease ends.
            if let Some(before) = before {
                session.stopping = Some(Stopping::new(uid, &before));
            }
            let mut heard = events.iter().skip(by);
            if let Some(stopping) = session.stopping.as_mut().filter(|s| s.run() == uid)
                && heard.any(|event| stopping.hears(event))
            {
                self.release_lease(live, &workflow.spec.machine).await?;
            }
        }
        let mut newest = workflow;
        for effect in effects {
            if let Some(ended) = self.carry_out(live, &newest, effect).await? {
                newest = ended;
            }
        }
        Ok(newest)
    }

    pub(super) async fn step_stored(&self, name: &str, events: &[Event]) -> Result<Stepped, Problem> {
        let (now, mut room) = (self.now(), Room::Whole);
        for _ in 0..CAS_TRIES {
            let Some(mut workflow) = self.inner.store.workflow(name).await? else {
                return Err(StoreError::NotFound { kind: Kind::Workflow, name: name.to_owned() }.into());
            };
            let (Some(uid), Some(status)) = (workflow.metadata.uid, workflow.status.as_ref()) else {
                return Err(Problem::new(
                    ErrorCode::Internal,
                    format!("workflow \"{name}\" was stored without a status"),
                ));
            };
            let (context, before) = (self.context(uid), status.phase);
            let (mut effects, mut failed, mut stopped) = (Vec::new(), Vec::new(), None);
            let mut status = status.clone();
            let instead = [Event::GivenUp(Box::new(outgrown()))];
            if room != Room::Whole {
                shorten(&mut status);
            }
            for (n, event) in if room == Room::Nothing { &instead } else { events }.iter().enumerate() {
                let (mut next, asked) = step(&context, &status, event.clone(), now);
                effects.extend(asked);
                failed.extend(self.put_tails(uid, &status, &mut next));
                let was = std::mem::replace(&mut status, next);
                if stopped.is_none() && !is_running(&status) {
                    stopped = Some((n, Some(was).filter(is_running)));
                }
            }
            if room != Room::Whole {
                shorten(&mut status);
                // What is not told stays read.
                status.applied = events.iter().filter_map(position).fold(status.applied, u64::max);
            }
            let after = status.phase;
            workflow.status = Some(status);
            derive::workflow(&mut workflow, now);
            match self.inner.store.documents().update(Document::Workflow(Box::new(workflow))).await {
                Ok(Document::Workflow(workflow)) => {
                    self.index().put_workflow(&workflow);
                    self.wake_queue();
                    if before != after {
                        tracing::info!(workflow = name, machine = %workflow.spec.machine, from = ?before, to = ?after, "the run moved on");
                    }
                    return Ok(Stepped { workflow: *workflow, effects, failed, stopped });
                }
                Ok(_) => return Err(Problem::new(ErrorCode::Internal, "the store answered another kind of document")),
                Err(StoreError::Conflict { .. }) => {}
                Err(error @ StoreError::TooLarge { .. }) if room != Room::Nothing => {
                    room = room.less();
                    tracing::warn!(workflow = name, %error, ?room, "less of its story is kept");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("workflow \"{name}\" is being changed without end")))
    }

    /// `moved`: the run had not ended, so what it says of the disks is news; else the agent's own word is newer.
    pub(super) async fn bring_machine_in_line(&self, workflow: &Workflow, moved: bool) -> Result<(), Problem> {
        let now = self.now();
        let result = self
            .mutate_machine(&workflow.spec.machine, |machine| {
                // An older run's story must not cover the newest one's.
                let newest = machine.status.as_ref().and_then(|s| s.workflow.as_deref());
                if newest == Some(workflow.metadata.name.as_str()) {
                    if moved {
                        derive::receipts(machine, workflow);
                    }
                    derive::conditions(machine, Some(workflow), now);
                }
            })
            .await;
        match result {
            // The machine was deleted in mid-run: the run stands by itself.
            Err(problem) if problem.code == ErrorCode::NotFound => Ok(()),
            other => other.map(drop),
        }
    }

    /// Changes a machine document by compare-and-swap.
    pub(super) async fn mutate_machine(
        &self,
        name: &str,
        change: impl Fn(&mut Machine) + Send,
    ) -> Result<Machine, Problem> {
        for _ in 0..CAS_TRIES {
            let Some(mut machine) = self.inner.store.machine(name).await? else {
                return Err(StoreError::NotFound { kind: Kind::Machine, name: name.to_owned() }.into());
            };
            let before = machine.clone();
            change(&mut machine);
            if machine == before {
                // Most events say nothing new of the machine; the store would only be asked to say so, after a sync.
                return Ok(machine);
            }
            match self.inner.store.documents().update(Document::Machine(Box::new(machine))).await {
                Ok(Document::Machine(machine)) => return Ok(*machine),
                Ok(_) => return Err(Problem::new(ErrorCode::Internal, "the store answered another kind of document")),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("machine \"{name}\" is being changed without end")))
    }

    /// Answers the run where that ended it.
    async fn carry_out(
        &self,
        live: &mut Live,
        workflow: &Workflow,
        effect: Effect,
    ) -> Result<Option<Workflow>, Problem> {
        match effect {
            Effect::Assign { starts } => return self.assign(live, workflow, starts).await,
            Effect::Control => {
                let (Some(workflow_uid), Some(status)) = (workflow.metadata.uid, &workflow.status) else {
                    return Ok(None);
                };
                // An older agent knows of neither, and is never handed a list that has a hold. Where nobody has asked for
                // anything yet, no agent can believe anything else.
                let asked = !workflow.spec.requests.is_empty();
                if asked && live.session.as_ref().is_some_and(|s| s.protocol >= CONTROL_PROTOCOL) {
                    let (paused, released) = (status.paused.is_some(), released_holds(status));
                    live.send(ToAgent::Control { workflow_uid, paused, released });
                }
            }
            Effect::RenewLease => {
                self.take_lease(live, &workflow.spec.machine).await?;
                let Some(epoch) = live.session.as_ref().map(|s| s.epoch) else { return Ok(None) };
                live.send(ToAgent::LeaseRenewal { epoch, lease: self.inner.settings.lease });
            }
            Effect::Idle { boot_disk } => live.send(ToAgent::Idle { boot_disk }),
            Effect::StopAgent { reason } => {
                if let Some(workflow_uid) = workflow.metadata.uid {
                    live.send(ToAgent::Cancel { workflow_uid, reason });
                }
            }
        }
        Ok(None)
    }

    /// Gives the agent its list. One that cannot be made, for a secret of it is gone, ends the run with that reason:
    /// whoever asks again would be told the same.
    async fn assign(
        &self,
        live: &mut Live,
        workflow: &Workflow,
        starts: Vec<Start>,
    ) -> Result<Option<Workflow>, Problem> {
        let Some(epoch) = live.session.as_ref().map(|s| s.epoch) else { return Ok(None) };
        // Made before the lease is: an agent with a lease and no list would be waited for.
        let assignment = match self.assignment(workflow, epoch, starts).await {
            Ok(assignment) => assignment,
            Err(problem) if problem.code == ErrorCode::StoreUnavailable => return Err(problem),
            Err(problem) => {
                let name = &workflow.metadata.name;
                tracing::error!(workflow = %name, machine = %workflow.spec.machine, %problem, "its list cannot be made");
                return self.end_with(live, name, problem).await.map(Some);
            }
        };
        // Only now is the run's own token there, which is one of them.
        self.conceal_secrets_of(workflow).await?;
        self.take_lease(live, &workflow.spec.machine).await?;
        tracing::info!(
            workflow = %workflow.metadata.name, workflow_uid = %assignment.workflow_uid,
            machine = %workflow.spec.machine, epoch, starts = ?assignment.starts, "assigned"
        );
        live.send(ToAgent::Assign(Box::new(assignment)));
        Ok(None)
    }

    /// Boxed, for it is a step that a step leads to.
    fn end_with<'e>(
        &'e self,
        live: &'e mut Live,
        workflow: &'e str,
        problem: Problem,
    ) -> BoxFuture<'e, Result<Workflow, Problem>> {
        Box::pin(self.advance(live, workflow, Event::GivenUp(Box::new(problem))))
    }
}

/// Where in the log an event stands.
fn position(event: &Event) -> Option<u64> {
    match event {
        Event::Agent { position, .. } => Some(*position),
        _ => None,
    }
}

pub(super) fn is_running(status: &WorkflowStatus) -> bool {
    status.phase == landfall_api::WorkflowPhase::Running
}

/// Indices of the holds that a person let the run go past.
fn released_holds(status: &WorkflowStatus) -> Vec<u32> {
    let actions = status.actions.iter().chain(&status.on_failure).zip(0u32..);
    let released = |a: &ActionStatus| matches!(a.action.spec, ActionSpec::Hold(_)) && a.state == ActionState::Succeeded;
    actions.filter(|(action, _)| released(action)).map(|(_, index)| index).collect()
}
