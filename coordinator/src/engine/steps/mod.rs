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
use landfall_machine::elsewhere::{self, Grounds};
use landfall_machine::{Effect, Input, MachineState, Refusal, Which, is_running, step};
use tokio::sync::mpsc;

use super::alarms::Alarms;
use super::assignments::Assignments;
use super::fleet::{CAS_TRIES, Fleet, Live, contended};
use super::removals::Removals;
use super::shorten::{Room, outgrown, shorten};
use super::telemetry::Telemetry;
use landfall_store::{CONFIRMED_WITHIN, ChangeSet, Seen, StoreError};

/// The documents as they were loaded, shared with the store.
struct Loaded {
    machine: Shared<Machine>,
    newest: Option<Shared<Workflow>>,
    older: Option<Shared<Workflow>>,
}

impl Loaded {
    fn state(&self, live: &Live, coordinator: Option<Arc<str>>) -> MachineState {
        MachineState {
            machine: self.machine.clone(),
            newest: self.newest.clone(),
            older: self.older.clone(),
            session: live.session.clone(),
            coordinator,
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
                live.give_way(&loaded.machine);
                let mut state = loaded.state(live, self.fleet.own());
                // Another coordinator has changed what the agent here goes by, and it has not heard of that yet.
                let is_behind = live.is_connected() && live.grounds.is_some_and(|known| known != Grounds::of(&state));
                let is_newest = state.newest.as_ref().map(|w| w.metadata.name.as_str()) == workflow;
                let which = if workflow.is_none() || is_newest { Which::Newest } else { Which::Older };
                let input = input(&state, which);
                let (position, logged) = (last_position(&input), is_logged(&input));
                if room != Room::Whole {
                    shorten_all(&mut state);
                }
                let given = if room == Room::Nothing { Input::GiveUp(Box::new(outgrown())) } else { input };
                let is_taken = matches!(given, Input::TakeOver(_));
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
                        // It is left alone where its agent has come here or elsewhere meanwhile.
                        let epoch = |machine: &Machine| machine.status.as_ref().map(|status| status.epoch);
                        if is_taken && epoch(&state.machine) != epoch(&loaded.machine) {
                            // Only now: the commit may have taken long, and that one promised more until it saw it.
                            let since = self.fleet.moment().steady.plus(CONFIRMED_WITHIN);
                            state.session = elsewhere::taken_over(&state.machine, &limits, since);
                        }
                        live.put(state.session.clone());
                        live.grounds = self.fleet.own().map(|_| Grounds::of(&state));
                        let carried = self.carry_out(live, state, effects).await;
                        if carried.as_ref().is_err_and(|failed| failed.problem.code == ErrorCode::StoreUnavailable) {
                            // An agent that could not be informed is cut off: nothing would inform it later, and when it comes back
                            // it is asked anew.
                            live.cut();
                        }
                        if is_behind && carried.as_ref().is_ok_and(|driven| driven.opened.is_none()) {
                            self.instruct_anew(live, machine);
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
            Err(contended(machine).into())
        })
    }

    /// Looks whether another coordinator has changed what the agent here goes by. Then its session is closed: it connects again, and is
    /// instructed anew.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(in crate::engine) async fn heed_others(&self, live: &mut Live, machine: &str) -> Result<(), Problem> {
        if !live.is_connected() {
            return Ok(());
        }
        let loaded = self.load(machine, None).await?;
        live.give_way(&loaded.machine);
        let grounds = Grounds::of(&loaded.state(live, self.fleet.own()));
        if live.grounds.replace(grounds) != Some(grounds) {
            self.instruct_anew(live, machine);
        }
        Ok(())
    }

    /// Another coordinator has changed what the agent here goes by: it connects again, and is instructed by what is stored now.
    fn instruct_anew(&self, live: &mut Live, machine: &str) {
        let Some(session) = live.session.as_ref().filter(|_| live.is_connected()) else { return };
        if live.grounds.is_some_and(|grounds| grounds.is_going()) {
            // It says when it has stopped.
            let (epoch, reason) = (session.epoch().get(), "the machine was deleted".to_owned());
            live.send(ToAgent::Fenced { epoch, reason });
        } else {
            tracing::info!(machine, "another coordinator has changed what the agent is to do; it connects again");
            live.cut();
        }
    }

    /// The machine's spec was changed here: its agent needs to hear nothing of that.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(in crate::engine) async fn accept_spec(&self, live: &mut Live, machine: &str) -> Result<(), Problem> {
        if let Some(newer) = self.grounds_now(live, machine).await? {
            live.grounds.iter_mut().for_each(|known| known.accept_spec(&newer));
        }
        Ok(())
    }

    /// A workflow was made here for the machine, which its agent hears of in the next step.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(in crate::engine) async fn accept_run(&self, live: &mut Live, machine: &str) -> Result<(), Problem> {
        live.grounds = self.grounds_now(live, machine).await?;
        Ok(())
    }

    /// What the agent here goes by, as it is stored; none where nothing is known of that.
    async fn grounds_now(&self, live: &Live, machine: &str) -> Result<Option<Grounds>, Problem> {
        if live.grounds.is_none() {
            return Ok(None);
        }
        let loaded = self.load(machine, None).await?;
        Ok(Some(Grounds::of(&loaded.state(live, self.fleet.own()))))
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

    /// Stores what the step says, in its order, as one: all of it, and only while no document that the step went by has changed.
    /// What is unchanged is not written: most events say nothing new of the machine.
    ///
    /// `logged`: the event log says again what the step was made of. Where nothing else is to be done about it, and the machine's
    /// document says no more than follows from it, it may wait: most events only move an action on. So may what heartbeats say.
    async fn store_all(
        &self, loaded: &Loaded, state: &mut MachineState, effects: &[Effect], logged: bool,
    ) -> Result<(), StoreError> {
        let documents = self.fleet.store().documents();
        let mut machine = Some(&loaded.machine).filter(|machine| **machine != state.machine);
        let (mut newest, mut older) = (loaded.newest.as_ref(), loaded.older.as_ref());
        let only_stores =
            |effect: &Effect| matches!(effect, Effect::StoreMachine | Effect::StoreWorkflow(Which::Newest));
        let may_wait = machine.is_none() || (documents.writes_later() && follows(loaded, state));
        let is_said_again = logged && effects.iter().all(only_stores) && may_wait;
        let is_later = is_said_again || (documents.writes_later() && only_heard(loaded, state));
        // Given away, so that the store need not copy it; without an answer the step is made again from what is stored.
        let mut changed = Vec::new();
        for effect in effects {
            match effect {
                Effect::StoreMachine => {
                    changed.extend(machine.take().map(|old| std::mem::replace(&mut state.machine, old.clone()).into()));
                }
                Effect::StoreWorkflow(Which::Newest) => {
                    changed.extend(newest.take().and(state.newest.take()).map(Document::from));
                }
                Effect::StoreWorkflow(Which::Older) => {
                    changed.extend(older.take().and(state.older.take()).map(Document::from));
                }
                _ => {}
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        let is_changed = |kind, name: &str| {
            changed.iter().any(|document: &Document| document.kind() == kind && document.metadata().name == name)
        };
        let runs = loaded.newest.iter().chain(&loaded.older).map(|run| (Kind::Workflow, &run.metadata));
        let read = std::iter::once((Kind::Machine, &loaded.machine.metadata)).chain(runs);
        let seen = read.filter(|(kind, read)| !is_changed(*kind, &read.name));
        let seen = seen.map(|(kind, read)| Seen { kind, name: read.name.clone(), version: read.resource_version });
        let seen = seen.collect();
        for document in documents.write(ChangeSet { changed, seen, is_later, ..ChangeSet::default() }).await? {
            match document {
                Document::Machine(machine) => state.machine = machine,
                Document::Workflow(run) => {
                    let is_it = |before: &&Shared<Workflow>| before.metadata.name == run.metadata.name;
                    let [newest, older] = [&loaded.newest, &loaded.older].map(|before| before.as_ref().filter(is_it));
                    if let Some(before) = newest {
                        self.note_workflow(before, state.newest.insert(run));
                    } else if let Some(before) = older {
                        self.note_workflow(before, state.older.insert(run));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes in a workflow as it was stored.
    fn note_workflow(&self, before: &Workflow, after: &Workflow) {
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

/// Whether a step says of its machine only when its agent was heard, and how much memory that needed: the next heartbeats say it again.
fn only_heard(loaded: &Loaded, state: &MachineState) -> bool {
    let (old, new) = (&loaded.machine, &state.machine);
    let (Some(before), Some(after)) = (&old.status, &new.status) else { return false };
    let known = MachineStatus {
        last_heard: after.last_heard,
        agent_peak_rss_bytes: after.agent_peak_rss_bytes,
        ..before.clone()
    };
    (&old.metadata, &old.spec, &known) == (&new.metadata, &new.spec, after)
        && (&loaded.newest, &loaded.older) == (&state.newest, &state.older)
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
