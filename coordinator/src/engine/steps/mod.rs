//! One machine's step made real, under its lock: its documents are loaded, the machine steps, and the documents are
//! stored; then `effects` has what is to be sent.

mod admission;
mod effects;
mod settle;

use std::sync::Arc;

use futures::future::BoxFuture;
use landfall_api::message::{EventBody, ToAgent};
use landfall_api::{
    Condition, ConditionType, DiskId, DiskReceipt, Document, ErrorCode, Kind, Machine, MachineStatus, Problem, Shared,
    Workflow, WorkflowStatus,
};
use landfall_machine::{Effect, Input, MachineState, Refusal, Which, is_running, step};
use tokio::sync::mpsc;

use super::alarms::Alarms;
use super::assignments::Assignments;
use super::fleet::{CAS_TRIES, Fleet, Live};
use super::removals::Removals;
use super::shorten::{Room, outgrown, shorten};
use super::telemetry::Telemetry;
use landfall_store::StoreError;

/// The documents as they were loaded, shared with the store.
struct Loaded {
    machine: Shared<Machine>,
    newest: Option<Shared<Workflow>>,
    older: Option<Shared<Workflow>>,
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
        fleet: Arc<Fleet>, alarms: Arc<Alarms>, assignments: Arc<Assignments>, telemetry: Arc<Telemetry>,
        removals: Arc<Removals>,
    ) -> Self {
        Self { fleet, alarms, assignments, telemetry, removals }
    }

    /// Hands one input to a machine.
    ///
    /// # Errors
    /// [`Refusal`] as the machine answers; a [`Problem`] of the store, and then nothing that the step asked to be sent was.
    pub(in crate::engine) fn drive<'e>(
        &'e self, live: &'e mut Live, machine: &'e str, input: Input,
    ) -> BoxFuture<'e, Result<Driven, Refusal>> {
        self.drive_of(live, machine, None, move |_, _| input.clone())
    }

    /// The same for an input that is of one workflow, the newest or an older one.
    ///
    /// Boxed: a step holds three documents, and every caller would have room for them on its stack.
    pub(in crate::engine) fn drive_of<'e>(
        &'e self, live: &'e mut Live, machine: &'e str, workflow: Option<&'e str>,
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
                let (position, logged) = (last_position(&input), is_logged(&input));
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
                match self.store_all(&loaded, &mut state, &effects, logged).await {
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
        let store = &self.fleet.store();
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
    ///
    /// `logged`: the event log says again what the step was made of. Where nothing else is to be done about it, and the machine's
    /// document says no more than follows from it, both may wait: most events only move an action on.
    async fn store_all(
        &self, loaded: &Loaded, state: &mut MachineState, effects: &[Effect], logged: bool,
    ) -> Result<(), StoreError> {
        let mut stored = 0;
        let only_stores =
            |effect: &Effect| matches!(effect, Effect::StoreMachine | Effect::StoreWorkflow(Which::Newest));
        let later = logged && effects.iter().all(only_stores);
        let writes_later = self.fleet.store().documents().writes_later();
        if later && writes_later && loaded.machine != state.machine && follows(loaded, state) {
            return self.store_both_later(loaded, state).await;
        }
        let later = later && loaded.machine == state.machine;
        for effect in effects {
            let outcome = match effect {
                Effect::StoreMachine if later => Ok(false),
                Effect::StoreMachine => self.store_machine(loaded, state, stored > 0).await,
                Effect::StoreWorkflow(Which::Newest) => {
                    self.store_workflow(loaded.newest.as_ref(), &mut state.newest, later).await
                }
                Effect::StoreWorkflow(Which::Older) => {
                    self.store_workflow(loaded.older.as_ref(), &mut state.older, false).await
                }
                _ => continue,
            };
            stored += usize::from(outcome?);
        }
        Ok(())
    }

    /// `begun`: another document of this step is stored already, so that the step cannot be made again. Then the status,
    /// which is written here alone, goes beside what another writer made of the rest; where other writers never pause,
    /// the error is as if the store were not to be written, because what the step asks to be sent must not be sent.
    async fn store_machine(&self, loaded: &Loaded, state: &mut MachineState, begun: bool) -> Result<bool, StoreError> {
        if loaded.machine == state.machine {
            return Ok(false);
        }
        for _ in 0..CAS_TRIES {
            let document = Document::from(state.machine.clone());
            match self.fleet.store().documents().update(document).await {
                Ok(Document::Machine(machine)) => {
                    state.machine = machine;
                    return Ok(true);
                }
                Ok(_) => return Ok(true),
                Err(StoreError::Conflict { .. }) if begun => {
                    let name = &state.machine.metadata.name;
                    let Some(newer) = self.fleet.store().machine(name).await? else { return Ok(false) };
                    let (status, finalizers) = (state.machine.status.take(), state.machine.metadata.finalizers.clone());
                    state.machine = newer;
                    (state.machine.status, state.machine.metadata.finalizers) = (status, finalizers);
                }
                // It was deleted meanwhile: its workflow stands by itself.
                Err(StoreError::NotFound { .. }) if begun => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Contended { kind: Kind::Machine, name: state.machine.metadata.name.clone() })
    }

    async fn store_workflow(
        &self, before: Option<&Shared<Workflow>>, after: &mut Option<Shared<Workflow>>, later: bool,
    ) -> Result<bool, StoreError> {
        // Given away, so that the store need not copy it; without an answer the step is made again from what is stored.
        let (Some(before), Some(given)) = (before, after.take()) else { return Ok(false) };
        let documents = self.fleet.store().documents();
        let stored =
            if later { documents.update_later(given.into()).await? } else { documents.update(given.into()).await? };
        self.note_workflow(before, after, stored);
        Ok(true)
    }

    /// What a start after a crash makes up of the events: of the machine and of its newest workflow.
    async fn store_both_later(&self, loaded: &Loaded, state: &mut MachineState) -> Result<(), StoreError> {
        let (Some(before), Some(workflow)) = (&loaded.newest, state.newest.take()) else { return Ok(()) };
        let machine = state.machine.clone().into();
        let stored = self.fleet.store().documents().update_both_later(machine, workflow.into()).await?;
        if let Document::Machine(machine) = stored.0 {
            state.machine = machine;
        }
        self.note_workflow(before, &mut state.newest, stored.1);
        Ok(())
    }

    /// Takes in a workflow as it was stored.
    fn note_workflow(&self, before: &Workflow, after: &mut Option<Shared<Workflow>>, stored: Document) {
        let Document::Workflow(stored) = stored else { return };
        let after = &*after.insert(stored);
        self.fleet.index().put_workflow(after);
        self.telemetry.follow(after);
        self.wake_queue();
        let phase = |workflow: &Workflow| workflow.status.as_ref().map(|status| status.phase);
        if let (Some(from), Some(to)) = (phase(before), phase(after))
            && from != to
        {
            tracing::info!(
                workflow = %after.metadata.name, machine = %after.spec.machine, ?from, ?to, "the workflow moved on"
            );
        }
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

/// Receipts in documents that may wait to be written, and the bytes of each one's texts, of which JSON may make six times as many: only a
/// write finds out that a document is too large. A machine has a few, and what its agent says is cut where it arrives.
const MOST_RECEIPTS: usize = 32;
const RECEIPT_BYTES: usize = 2 << 10;

/// Whether a step says no more of its machine than the receipts, and what follows from them and from a workflow that runs on:
/// the events say that again.
fn follows(loaded: &Loaded, state: &MachineState) -> bool {
    let (old, new) = (&loaded.machine, &state.machine);
    let (Some(was), Some(is)) = (&loaded.newest, &state.newest) else { return false };
    let (Some(before), Some(after), Some(run)) = (&old.status, &new.status, &is.status) else { return false };
    let receipts = || after.receipts.iter().chain(&run.expected_receipts);
    let known =
        MachineStatus { receipts: after.receipts.clone(), conditions: after.conditions.clone(), ..before.clone() };
    is_running(was)
        && is_running(is)
        && receipts().count() <= MOST_RECEIPTS
        && receipts().all(|one| text_bytes(one) <= RECEIPT_BYTES)
        && (&old.metadata, &old.spec, &known) == (&new.metadata, &new.spec, after)
        && others(before).eq(others(after))
}

fn text_bytes(DiskReceipt { disk, receipt }: &DiskReceipt) -> usize {
    let DiskId { wwn, serial, path, name, model, size_bytes: _ } = disk;
    [wwn, serial, path, name, model, &receipt.workflow_name].map(String::len).iter().sum()
}

/// The conditions that speak of something else than the workflow.
fn others(status: &MachineStatus) -> impl Iterator<Item = &Condition> {
    use ConditionType as Type;
    let of_workflow = [Type::Progressing, Type::Healthy, Type::Provisioned, Type::NoReceipt];
    status.conditions.iter().filter(move |one| !of_workflow.contains(&one.kind))
}

fn shorten_all(state: &mut MachineState) {
    let workflows = state.newest.iter_mut().chain(&mut state.older);
    workflows.filter_map(|workflow| workflow.status.as_mut()).for_each(shorten);
}

/// Whether the log has all of an input, for the start after a crash. Not of a failure: its last log lines are in memory alone.
fn is_logged(input: &Input) -> bool {
    match input {
        Input::Reported { of: Which::Newest, events, .. } | Input::Replayed(events) => {
            events.iter().all(|(position, record)| *position > 0 && !matches!(record.body, EventBody::Failed { .. }))
        }
        _ => false,
    }
}

/// Where in the log the last event of an input stands.
fn last_position(input: &Input) -> Option<u64> {
    match input {
        Input::Reported { events, .. } | Input::Replayed(events) => events.iter().map(|(position, _)| *position).max(),
        _ => None,
    }
}
