//! One machine's step made real, under its lock: load, step, store, send.

use futures::future::BoxFuture;
use landfall_api::{
    Document, ErrorCode, Kind, Machine, Problem, Shared, Workflow, WorkflowStatus,
    message::{Assignment, Control, ToAgent},
};
use landfall_machine::{Effect, Input, MachineState, Refusal, SETTLE, Tell, Which, has_begun, run::Start, step};
use tokio::sync::mpsc;

use super::{
    Engine, derive,
    live::Live,
    shorten::{Room, outgrown, shorten},
};
use landfall_store::StoreError;

/// Writes that lose a compare-and-swap this often in a row give up: another writer writes without end.
pub(super) const CAS_TRIES: usize = 16;

/// What a step came to.
pub(super) struct Driven {
    /// The machine as stored.
    pub(super) state: MachineState,
    /// The session that was opened.
    pub(super) opened: Option<(u64, mpsc::Receiver<ToAgent>)>,
    /// The machine's document as it was last, where it has gone or is to go.
    pub(super) deleted: Option<Document>,
}

/// The documents as they were loaded, shared with the store.
struct Loaded {
    machine: Shared<Machine>,
    newest: Option<Shared<Workflow>>,
    older: Option<Shared<Workflow>>,
}

/// A fault of the coordinator itself.
pub(super) fn internal(error: impl std::error::Error) -> Problem {
    Problem::new(ErrorCode::Internal, error.to_string()).caused_by(&error)
}

impl Engine {
    /// Hands one input to a machine.
    ///
    /// # Errors
    /// [`Refusal`] as the machine answers; a [`Problem`] of the store, and then nothing that the step asked to be sent was.
    pub(super) fn drive<'e>(
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
    pub(super) fn drive_of<'e>(
        &'e self,
        live: &'e mut Live,
        machine: &'e str,
        workflow: Option<&'e str>,
        input: impl Fn(&MachineState, Which) -> Input + Send + 'e,
    ) -> BoxFuture<'e, Result<Driven, Refusal>> {
        Box::pin(async move {
            let (now, limits, mut room) = (self.moment(), self.limits(), Room::Whole);
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
                        derive::workflow(workflow, now.wall);
                    }
                    derive::conditions(&mut state.machine, state.newest.as_deref(), now.wall);
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

    async fn load(&self, name: &str, workflow: Option<&str>) -> Result<Loaded, Problem> {
        let store = &self.inner.store;
        let Some(machine) = store.machine(name).await? else {
            return Err(StoreError::NotFound { kind: Kind::Machine, name: name.to_owned() }.into());
        };
        let newest = machine.status.as_ref().and_then(|status| status.workflow.as_deref());
        let older = match workflow.filter(|workflow| newest != Some(workflow)) {
            Some(older) => store.workflow(older).await?,
            None => None,
        };
        let newest = match newest {
            Some(newest) => store.workflow(newest).await?,
            None => None,
        };
        Ok(Loaded { machine, newest, older })
    }

    /// Stores what the step says, in its order. What is unchanged is not written: most events say nothing new of the
    /// machine, and the store would only be asked to say so, after a sync.
    async fn store_all(&self, loaded: &Loaded, state: &mut MachineState, effects: &[Effect]) -> Result<(), StoreError> {
        let mut stored = 0;
        for effect in effects {
            let outcome = match effect {
                Effect::StoreMachine => self.store_machine(loaded, state, stored > 0).await,
                Effect::StoreWorkflow(Which::Newest) => {
                    self.store_workflow(loaded.newest.as_ref(), &mut state.newest).await
                }
                Effect::StoreWorkflow(Which::Older) => {
                    self.store_workflow(loaded.older.as_ref(), &mut state.older).await
                }
                _ => continue,
            };
            stored += usize::from(outcome?);
        }
        Ok(())
    }

    /// `begun`: another document of this step is stored already, so that the step cannot be made again. Then the status,
    /// which is written here alone, goes beside what another writer made of the rest.
    async fn store_machine(&self, loaded: &Loaded, state: &mut MachineState, begun: bool) -> Result<bool, StoreError> {
        if loaded.machine == state.machine {
            return Ok(false);
        }
        for _ in 0..CAS_TRIES {
            let document = Document::from(state.machine.clone());
            match self.inner.store.documents().update(document).await {
                Ok(Document::Machine(machine)) => {
                    state.machine = machine;
                    return Ok(true);
                }
                Ok(_) => return Ok(true),
                Err(StoreError::Conflict { .. }) if begun => {
                    let name = &state.machine.metadata.name;
                    let Some(newer) = self.inner.store.machine(name).await? else { return Ok(false) };
                    let (status, finalizers) = (state.machine.status.take(), state.machine.metadata.finalizers.clone());
                    state.machine = newer;
                    (state.machine.status, state.machine.metadata.finalizers) = (status, finalizers);
                }
                // It was deleted meanwhile: its workflow stands by itself.
                Err(StoreError::NotFound { .. }) if begun => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    async fn store_workflow(
        &self,
        before: Option<&Shared<Workflow>>,
        after: &mut Option<Shared<Workflow>>,
    ) -> Result<bool, StoreError> {
        // Given away, so that the store need not copy it; without an answer the step is made again from what is stored.
        let (Some(before), Some(given)) = (before, after.take()) else { return Ok(false) };
        let Document::Workflow(stored) = self.inner.store.documents().update(given.into()).await? else {
            return Ok(true);
        };
        let after = &*after.insert(stored);
        self.index().put_workflow(after);
        self.inner.waiting.follow(after, self.now());
        self.wake_queue();
        let phase = |workflow: &Workflow| workflow.status.as_ref().map(|status| status.phase);
        if let (Some(from), Some(to)) = (phase(before), phase(after))
            && from != to
        {
            tracing::info!(
                workflow = %after.metadata.name, machine = %after.spec.machine, ?from, ?to, "the workflow moved on"
            );
        }
        Ok(true)
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
                Effect::Alarm { reason, message } => self.alarm(&name, reason, message).await?,
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
                    self.index().admission.absent(&name);
                    self.wake_queue();
                }
                Effect::MarkDeleted => driven.deleted = Some(self.mark_deleted(&name).await?),
                Effect::Remove => driven.deleted = Some(self.remove_machine(live, &driven.state.machine).await?),
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
        let made = match self.assignment(workflow, epoch, starts).await {
            // Only now is the workflow's own token there, which is one of its secrets.
            Ok(assignment) => self.conceal_secrets_of(workflow).await.map(|()| assignment),
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
        let begins = self.index().admission.begin(name);
        if !begins {
            tracing::info!(workflow = %name, %machine, "its agent waits for its turn");
        }
        let stepped = self.again(live, machine, Input::Turn(begins)).await;
        let began = match &stepped {
            Ok(state) => state.newest.as_ref().is_some_and(|workflow| has_begun(workflow)),
            // It may have been stored as begun, and only the agent could not be informed.
            Err(_) => self.inner.store.workflow(name).await.ok().flatten().is_some_and(|stored| has_begun(&stored)),
        };
        if begins && !began {
            self.index().admission.did_not_begin(name);
            if stepped.is_ok() {
                // It waits for a person, not for its turn.
                self.index().admission.absent(machine);
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

    fn settle_later(&self, state: &MachineState) {
        let (Some(uid), Some(session)) = (state.machine.metadata.uid, &state.session) else { return };
        let (engine, epoch) = (self.clone(), session.epoch().get());
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE).await;
            if let Err(problem) = engine.settle(uid, epoch).await {
                tracing::error!(%problem, "a session did not settle; it is closed, and its agent reconnects");
            }
        });
    }

    /// Changes a machine document by compare-and-swap, for what no step is about: keys, facts, alarms.
    pub(super) async fn mutate_machine(
        &self,
        name: &str,
        change: impl Fn(&mut Machine) + Send,
    ) -> Result<Shared<Machine>, Problem> {
        for _ in 0..CAS_TRIES {
            let Some(mut machine) = self.inner.store.machine(name).await? else {
                return Err(StoreError::NotFound { kind: Kind::Machine, name: name.to_owned() }.into());
            };
            let before = machine.clone();
            change(&mut machine);
            if machine == before {
                return Ok(machine);
            }
            match self.inner.store.documents().update(Document::from(machine)).await {
                Ok(Document::Machine(machine)) => return Ok(machine),
                Ok(_) => return Err(Problem::new(ErrorCode::Internal, "the store answered another kind of document")),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("machine \"{name}\" changed again and again during the request")))
    }

    fn put_all_tails(&self, loaded: &Loaded, state: &mut MachineState) {
        for (before, after) in [(&loaded.newest, &mut state.newest), (&loaded.older, &mut state.older)] {
            if let (Some(before), Some(after)) = (status_of(before), after) {
                self.put_tails(before, after);
            }
        }
    }

    fn keep_all_tails_open(&self, loaded: &Loaded, state: &MachineState) {
        for (before, after) in [(&loaded.newest, &state.newest), (&loaded.older, &state.older)] {
            if let (Some(before), Some(after)) = (status_of(before), after) {
                self.keep_tails_open(before, after);
            }
        }
    }
}

impl Loaded {
    fn state(&self, live: &Live) -> MachineState {
        MachineState {
            machine: self.machine.clone(),
            newest: self.newest.clone(),
            older: self.older.clone(),
            session: live.session.clone(),
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
