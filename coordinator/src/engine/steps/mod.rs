//! One machine's step made real, under its lock: load, step, store, send.

mod admission;
mod documents;
mod settle;

use std::sync::Arc;

use futures::future::BoxFuture;
use landfall_api::{
    Document, ErrorCode, Problem, Shared, Workflow, WorkflowStatus,
    message::{Assignment, Control, ToAgent},
};
use landfall_machine::{Effect, Input, MachineState, Refusal, Tell, Which, has_begun, run::Start, step};
use tokio::sync::mpsc;

use super::{
    alarms::Alarms,
    assignments::Assignments,
    fleet::{CAS_TRIES, Fleet, Live},
    removals::Removals,
    shorten::{Room, outgrown, shorten},
    telemetry::Telemetry,
};
use documents::Loaded;
use landfall_store::StoreError;

/// What a step came to.
pub(in crate::engine) struct Driven {
    /// The machine as stored.
    pub(in crate::engine) state: MachineState,
    /// The session that was opened.
    pub(in crate::engine) opened: Option<(u64, mpsc::Receiver<ToAgent>)>,
    /// The machine's document as it was last, where it has gone or is to go.
    pub(in crate::engine) deleted: Option<Document>,
}

/// What makes a machine's steps real. Cloning it shares it.
#[derive(Clone)]
pub(in crate::engine) struct Steps {
    fleet: Arc<Fleet>,
    alarms: Arc<Alarms>,
    assignments: Arc<Assignments>,
    telemetry: Arc<Telemetry>,
    removals: Arc<Removals>,
}

impl Steps {
    pub(in crate::engine) const fn new(
        fleet: Arc<Fleet>,
        alarms: Arc<Alarms>,
        assignments: Arc<Assignments>,
        telemetry: Arc<Telemetry>,
        removals: Arc<Removals>,
    ) -> Self {
        Self { fleet, alarms, assignments, telemetry, removals }
    }

    /// Hands one input to a machine.
    ///
    /// # Errors
    /// [`Refusal`] as the machine answers; a [`Problem`] of the store, and then nothing that the step asked to be sent was.
    pub(in crate::engine) fn drive<'e>(
        &'e self,
        live: &'e mut Live,
        machine: &'e str,
        input: Input,
    ) -> BoxFuture<'e, Result<Driven, Refusal>> {
        self.drive_of(live, machine, None, move |_, _| input.clone())
    }

    /// The same for an input that is of one workflow, the newest or an older one.
    ///
    /// Boxed: a step holds three documents, and every caller would have room for them on its stack.
    pub(in crate::engine) fn drive_of<'e>(
        &'e self,
        live: &'e mut Live,
        machine: &'e str,
        workflow: Option<&'e str>,
        input: impl Fn(&MachineState, Which) -> Input + Send + 'e,
    ) -> BoxFuture<'e, Result<Driven, Refusal>> {
        Box::pin(async move {
            let (now, limits, mut room) = (self.fleet.moment(), self.fleet.limits(), Room::Whole);
            for _ in 0..CAS_TRIES {
                let loaded = self.load(machine, workflow).await?;
                let mut state = loaded.state(live);
                let is_newest = state.newest.as_ref().map(|w| w.metadata.name.as_str()) == workflow;
                let which = if workflow.is_none() || is_newest { Which::Newest } else { Which::Older };
                let input = input(&state, which);
                let position = last_position(&input);
                if room != Room::Whole {
                    shorten_all(&mut state);
                }
                let given = if room == Room::Nothing { Input::GiveUp(Box::new(outgrown())) } else { input };
                let (mut state, effects) = step(&limits, state, given, now);
                if room != Room::Whole {
                    shorten_all(&mut state);
                    // The conditions repeat why a workflow failed: the workflow's own, and then the machine's.
                    for workflow in state.newest.iter_mut().chain(&mut state.older) {
                        landfall_machine::derive::workflow(workflow, now.wall);
                    }
                    landfall_machine::derive::conditions(&mut state.machine, state.newest.as_deref(), now.wall);
                    // What is left out stays read.
                    let status = state.newest.as_mut().and_then(|workflow| workflow.status.as_mut());
                    if let (Some(status), Some(position)) = (status, position) {
                        status.applied = status.applied.max(position);
                    }
                }
                self.put_all_tails(&loaded, &mut state);
                match self.store_all(&loaded, &mut state, &effects).await {
                    Ok(()) => {
                        self.keep_all_tails_open(&loaded, &state);
                        live.put(state.session.clone());
                        let carried = self.carry_out(live, state, effects).await;
                        if carried.as_ref().is_err_and(|failed| failed.problem.code == ErrorCode::StoreUnavailable) {
                            // An agent that could not be informed is cut off: nothing would inform it later, and when it comes back
                            // it is asked anew.
                            live.cut();
                        }
                        return carried;
                    }
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error @ StoreError::TooLarge { .. }) if room != Room::Nothing => {
                        room = room.less();
                        tracing::warn!(machine, %error, ?room, "less of the workflow's story is kept");
                    }
                    Err(error) => return Err(Problem::from(error).into()),
                }
            }
            Err(Problem::new(ErrorCode::Conflict, format!("machine \"{machine}\" is being changed without end")).into())
        })
    }

    /// Does what is not storing, in its order.
    async fn carry_out(&self, live: &mut Live, state: MachineState, effects: Vec<Effect>) -> Result<Driven, Refusal> {
        let name = state.machine.metadata.name.clone();
        let mut driven = Driven { state, opened: None, deleted: None };
        let mut refusal = None;
        for effect in effects {
            match effect {
                Effect::StoreMachine | Effect::StoreWorkflow(_) => {}
                Effect::Refuse(refused) => refusal = Some(refused),
                Effect::Alarm { reason, message } => self.alarms.alarm(&name, reason, message).await?,
                Effect::Fence { epoch, reason } => live.send(ToAgent::Fenced { epoch: epoch.get(), reason }),
                Effect::Open(epoch) => driven.opened = Some((epoch.get(), live.open())),
                Effect::Send(tell) => live.send(message_of(tell)),
                Effect::Assign { of, starts } => {
                    if let Some(ended) = self.assign(live, &driven.state, of, starts).await? {
                        driven.state = ended;
                    }
                }
                Effect::Settle(_) => self.settle_later(&driven.state),
                Effect::AskTurn => driven.state = self.ask_turn(live, &driven.state).await?,
                Effect::LeaveQueue => {
                    self.fleet.index().admission.absent(&name);
                    self.wake_queue();
                }
                Effect::MarkDeleted => driven.deleted = Some(self.removals.mark_deleted(&name).await?),
                Effect::Remove => {
                    driven.deleted = Some(self.removals.remove_machine(live, &driven.state.machine).await?)
                }
            }
        }
        refusal.map_or(Ok(driven), Err)
    }

    /// Gives the agent its list. One that cannot be made, for a secret of it is gone, ends the workflow with that reason:
    /// another request would get the same answer.
    async fn assign(
        &self,
        live: &mut Live,
        state: &MachineState,
        of: Which,
        starts: Vec<Start>,
    ) -> Result<Option<MachineState>, Problem> {
        let (Some(workflow), Some(session)) = (state.workflow(of), &state.session) else { return Ok(None) };
        let epoch = session.epoch().get();
        let (name, machine) = (&workflow.metadata.name, &workflow.spec.machine);
        let made = match self.assignments.assignment(workflow, epoch, starts).await {
            // Only now is the workflow's own token there, which is one of its secrets.
            Ok(assignment) => self.telemetry.conceal_secrets_of(workflow).await.map(|()| assignment),
            Err(problem) => Err(problem),
        };
        let assignment = match made {
            Ok(assignment) => Assignment { counts_from: session.counts_from(), ..assignment },
            Err(problem) if problem.code == ErrorCode::StoreUnavailable => return Err(problem),
            Err(problem) => {
                tracing::error!(workflow = %name, %machine, %problem, "cannot build the list of actions");
                let ended = self.again(live, machine, Input::CannotAssign(of, Box::new(problem))).await;
                return ended.map(Some).map_err(|refused| refused.problem);
            }
        };
        tracing::info!(
            workflow = %name, workflow_uid = %assignment.workflow_uid, %machine, epoch, starts = ?assignment.starts, "assigned"
        );
        live.send(ToAgent::Assign(Box::new(assignment)));
        Ok(None)
    }

    /// Whether the machine's workflow may begin beside all others; it is informed, and its place given back if it did not begin.
    async fn ask_turn(&self, live: &mut Live, state: &MachineState) -> Result<MachineState, Refusal> {
        let (Some(workflow), machine) = (&state.newest, &state.machine.metadata.name) else { return Ok(state.clone()) };
        let name = &workflow.metadata.name;
        let begins = self.fleet.index().admission.begin(name);
        if !begins {
            tracing::info!(workflow = %name, %machine, "its agent waits for its turn");
        }
        let stepped = self.again(live, machine, Input::Turn(begins)).await;
        let began = match &stepped {
            Ok(state) => state.newest.as_ref().is_some_and(|workflow| has_begun(workflow)),
            // It may have been stored as begun, and only the agent could not be informed.
            Err(_) => self.fleet.store().workflow(name).await.ok().flatten().is_some_and(|stored| has_begun(&stored)),
        };
        if begins && !began {
            self.fleet.index().admission.did_not_begin(name);
            if stepped.is_ok() {
                // It waits for a person, not for its turn.
                self.fleet.index().admission.absent(machine);
            }
            self.wake_queue();
        }
        stepped
    }

    /// Boxed, for it is a step that a step leads to.
    fn again<'e>(
        &'e self,
        live: &'e mut Live,
        machine: &'e str,
        input: Input,
    ) -> BoxFuture<'e, Result<MachineState, Refusal>> {
        Box::pin(async move { self.drive(live, machine, input).await.map(|driven| driven.state) })
    }

    fn put_all_tails(&self, loaded: &Loaded, state: &mut MachineState) {
        for (before, after) in [(&loaded.newest, &mut state.newest), (&loaded.older, &mut state.older)] {
            if let (Some(before), Some(after)) = (status_of(before), after) {
                self.telemetry.put_tails(before, after);
            }
        }
    }

    fn keep_all_tails_open(&self, loaded: &Loaded, state: &MachineState) {
        for (before, after) in [(&loaded.newest, &state.newest), (&loaded.older, &state.older)] {
            if let (Some(before), Some(after)) = (status_of(before), after) {
                self.telemetry.keep_tails_open(before, after);
            }
        }
    }
}

fn status_of(workflow: &Option<Shared<Workflow>>) -> Option<&WorkflowStatus> {
    workflow.as_ref()?.status.as_ref()
}

fn shorten_all(state: &mut MachineState) {
    let workflows = state.newest.iter_mut().chain(&mut state.older);
    workflows.filter_map(|workflow| workflow.status.as_mut()).for_each(shorten);
}

/// Where in the log the last event of an input stands.
fn last_position(input: &Input) -> Option<u64> {
    match input {
        Input::Reported { events, .. } | Input::Replayed(events) => events.iter().map(|(position, _)| *position).max(),
        _ => None,
    }
}

/// The message that says it.
fn message_of(tell: Tell) -> ToAgent {
    match tell {
        Tell::LeaseRenewal { epoch, lease, counts_from } => {
            ToAgent::LeaseRenewal { epoch: epoch.get(), lease, counts_from }
        }
        Tell::Control { workflow_uid, paused, released } => {
            ToAgent::Control { workflow_uid, control: Control { paused, released } }
        }
        Tell::Cancel { workflow_uid, reason } => ToAgent::Cancel { workflow_uid, reason },
        Tell::Fenced { epoch, reason } => ToAgent::Fenced { epoch: epoch.get(), reason },
        Tell::Idle { boot_disk } => ToAgent::Idle { boot_disk },
    }
}
