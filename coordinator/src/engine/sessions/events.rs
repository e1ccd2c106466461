//! What agents report, and phone-homes: durable first, then applied.

use std::collections::{HashMap, hash_map::Entry};

use landfall_api::message::{EventBody, EventRecord, PhoneHomeReport};
use landfall_api::{Document, ErrorCode, Kind, MachineFacts, Problem, Shared, Workflow, keep_changes};
use landfall_machine::run::{MAX_INTERRUPTIONS, hint_at_phone_home, open_at_phone_home, policy};
use landfall_machine::{Epoch, Input, MachineState, Which};
use uuid::Uuid;

use landfall_edge::gate::Limiter;
use landfall_edge::metrics::metrics;
use landfall_store::{StoreError, access::same};

use super::super::fleet::{Fleet, Live};
use super::Sessions;

/// Events within one attempt; an agent sends a handful.
const MAX_SEQ: u64 = 256;

/// Before events of an unknown workflow are left out, what others have stored is taken in; so often at most.
static LOOKS: Limiter = Limiter::a_second(20);

/// The runs that a batch names.
#[derive(Default)]
struct Runs {
    /// As they were before it; nothing for one that is not there.
    found: HashMap<Uuid, Option<Document>>,
    /// What other coordinators have stored was taken in for one that was not known.
    heard_others: bool,
}

impl Runs {
    fn name_of(&self, uid: Uuid) -> Option<String> {
        Some(self.found.get(&uid)?.as_ref()?.metadata().name.clone())
    }
}

impl Sessions {
    /// Stores a batch of events durably and applies it; when this returns they may be acknowledged.
    ///
    /// Events of a workflow that this machine does not have are acknowledged and dropped: otherwise the agent would
    /// send them for ever.
    ///
    /// # Errors
    /// [`Problem`] with code `Fenced` if a newer session took this one's place; otherwise as the store answers, and
    /// then nothing of the batch is stored.
    pub async fn agent_events(&self, machine_uid: Uuid, epoch: u64, batch: Vec<EventRecord>) -> Result<(), Problem> {
        let mut live = self.fleet.machines().lock(machine_uid).await;
        let epoch = Epoch::new(epoch);
        self.hears(&mut live, machine_uid, epoch).await?;
        let machine = self.fleet.machine_name(machine_uid)?;
        let mut ours = Vec::with_capacity(batch.len());
        let mut runs = Runs::default();
        for mut record in batch {
            if !self.is_of(&mut runs, &record, &machine).await? {
                tracing::warn!(
                    machine, workflow_uid = %record.workflow_uid, "an event of a workflow that this machine does not \
                        have is dropped"
                );
                continue;
            }
            match &mut record.body {
                EventBody::Failed { problem, .. } => {
                    self.telemetry.clean_problem(record.workflow_uid, problem).await?;
                }
                EventBody::Finished { result } => {
                    self.telemetry.clean_result(record.workflow_uid, result).await?;
                    // Before the event is stored: until then the agent sends it again, and this counts once.
                    if let Some(Some(Document::Workflow(run))) = runs.found.get(&record.workflow_uid) {
                        let at = (record.action_index as usize, record.attempt);
                        self.accounts.finished(run, at, result).await?;
                        self.steps.accept_spec(&mut live, &machine).await?;
                    }
                }
                _ => {}
            }
            ours.push(record);
        }
        let mut events = self.store_events(&mut live, &machine, epoch, ours).await?;
        while let Some(uid) = events.first().map(|(record, _)| record.workflow_uid) {
            let (run, others) = events.into_iter().partition(|(record, _)| record.workflow_uid == uid);
            events = others;
            if let Some(name) = runs.name_of(uid) {
                self.apply_events(&mut live, &machine, &name, epoch, run).await?;
            }
        }
        Ok(())
    }

    /// Makes a batch durable; answers each event with its position in the log.
    ///
    /// An event that skips numbers follows others that were acknowledged, by a coordinator whose store this is an older
    /// copy of. They will never come again, and the log takes nothing after them. So the machine is marked, and the
    /// event itself, without a place in the log, still has its effect on the run: the agent continues, its disks carry
    /// their receipts, and its result reaches people. Otherwise it would be refused for ever, in the middle of an
    /// install.
    async fn store_events(
        &self, live: &mut Live, machine: &str, epoch: Epoch, batch: Vec<EventRecord>,
    ) -> Result<Vec<(EventRecord, u64)>, Problem> {
        let log = self.fleet.store().events();
        match log.append(epoch.get(), batch.clone()).await {
            Ok(positions) => {
                metrics().events_stored.add(positions.len() as u64);
                return Ok(batch.into_iter().zip(positions).collect());
            }
            Err(StoreError::EventGap { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = Vec::with_capacity(batch.len());
        for record in batch {
            let position = match log.append(epoch.get(), vec![record.clone()]).await {
                Ok(positions) => positions.first().copied().unwrap_or_default(),
                Err(error @ StoreError::EventGap { .. }) => {
                    tracing::error!(machine, %error, "the store is older than its machine's state; the event is not \
                        added to the log");
                    let uid = record.workflow_uid;
                    self.steps
                        .drive(live, machine, Input::EventsMissing(uid))
                        .await
                        .map_err(|refused| refused.problem)?;
                    0
                }
                Err(error) => return Err(error.into()),
            };
            events.push((record, position));
        }
        Ok(events)
    }

    /// Whether this machine has the run that an event is of.
    async fn is_of(&self, runs: &mut Runs, record: &EventRecord, machine: &str) -> Result<bool, Problem> {
        let uid = record.workflow_uid;
        if let Entry::Vacant(unread) = runs.found.entry(uid) {
            let mut name = self.fleet.index().workflow_name(uid);
            // Events of one that is not there are acknowledged, and lost.
            if name.is_none() && self.fleet.own().is_some() && !std::mem::replace(&mut runs.heard_others, true) {
                LOOKS.step().ok_or_else(Fleet::has_not_heard)?;
                self.fleet.hear_others().await?;
                name = self.fleet.index().workflow_name(uid);
            }
            unread.insert(match &name {
                Some(name) => self.fleet.store().documents().get(Kind::Workflow, name).await?,
                None => None,
            });
        }
        let Some(Some(document)) = runs.found.get(&uid) else { return Ok(false) };
        let Document::Workflow(workflow) = document else { return Ok(false) };
        let found = workflow.status.as_ref().and_then(|s| s.action(record.action_index as usize));
        let Some(action) = found.filter(|_| workflow.spec.machine == machine) else { return Ok(false) };
        // An attempt beyond every retry and interruption, or an endless one, is nonsense; its log would have no bound.
        let most = action.attempt + policy::max_attempts(&action.action) + MAX_INTERRUPTIONS;
        if record.attempt == 0 || record.attempt > most || record.seq > MAX_SEQ {
            let what = format!("attempt {}, event {} of action {}", record.attempt, record.seq, record.action_index);
            let message = format!("{what} is out of range for a workflow");
            return Err(Problem::new(ErrorCode::LimitReached, message).at(workflow.metadata.name.clone()));
        }
        Ok(true)
    }

    /// Events of one run, in their order, with their positions in the log.
    async fn apply_events(
        &self, live: &mut Live, machine: &str, workflow: &str, epoch: Epoch, stored: Vec<(EventRecord, u64)>,
    ) -> Result<(), Problem> {
        for (record, _) in &stored {
            tell(machine, workflow, epoch, record);
        }
        let events: Vec<(u64, EventRecord)> = stored.into_iter().map(|(record, position)| (position, record)).collect();
        let input = |_: &MachineState, of| Input::Reported { epoch, of, events: events.clone() };
        let driven =
            self.steps.drive_of(live, machine, Some(workflow), input).await.map_err(|refused| refused.problem)?;
        let named = |found: &&Shared<Workflow>| found.metadata.name == workflow;
        if let Some(applied) = driven.state.newest.iter().chain(&driven.state.older).find(named) {
            for (_, record) in &events {
                self.telemetry.measure(applied, record.action_index, &record.body);
            }
        }
        Ok(())
    }

    /// The agent's facts.
    ///
    /// # Errors
    /// [`Problem`] with code `Fenced`, or as the store answers.
    pub async fn facts(&self, machine_uid: Uuid, epoch: u64, facts: MachineFacts) -> Result<(), Problem> {
        let mut live = self.fleet.machines().lock(machine_uid).await;
        self.hears(&mut live, machine_uid, Epoch::new(epoch)).await?;
        let (name, now) = (self.fleet.machine_name(machine_uid)?, self.fleet.now());
        self.fleet
            .mutate_machine(&name, |machine| {
                let (status, mut facts) = (machine.status.get_or_insert_default(), facts.clone());
                if let Some(before) = &status.facts {
                    facts.keep_unanswered(before);
                }
                let changes = status.facts.as_ref().map(|before| before.changes(&facts, now)).unwrap_or_default();
                keep_changes(&mut status.fact_changes, changes);
                status.facts = Some(facts.into());
            })
            .await
            .map(drop)
    }

    /// An installed system phones home with its run's bearer token. May be repeated.
    ///
    /// # Errors
    /// [`Problem`] with code `Unauthenticated` if the token is not a run's, `MachineBusy` if actions of the run are still to be
    /// done: the system asks again, and keeps the unit that phones home until they are.
    pub async fn phone_home(&self, bearer: &str, report: PhoneHomeReport) -> Result<(), Problem> {
        let refused = || Problem::new(ErrorCode::Unauthenticated, "this phone-home token is unknown");
        let uid = bearer.split_once('.').and_then(|(uid, _)| Uuid::parse_str(uid).ok()).ok_or_else(refused)?;
        let known = self.tokens.known_bearer(uid).await?.ok_or_else(refused)?;
        if !same(known.as_bytes(), bearer.as_bytes()) {
            return Err(refused());
        }
        let name = self.fleet.index().workflow_name(uid).ok_or_else(refused)?;
        let workflow = self.fleet.store().workflow(&name).await?.ok_or_else(refused)?;
        let machine = &workflow.spec.machine;
        let machine_uid =
            self.fleet.store().machine(machine).await?.and_then(|m| m.metadata.uid).ok_or_else(refused)?;
        let mut live = self.fleet.machines().lock(machine_uid).await;
        tracing::info!(
            workflow = %name, %machine, hostname = %report.hostname, os = %report.os_release,
            kernel = %report.kernel, uptime_seconds = report.uptime_seconds, "phoned home"
        );
        let input = |state: &MachineState, of| {
            // A workflow that took this one's work over shares its token, and waits for the same phone-home.
            let newest = state.newest.as_ref().and_then(|w| w.status.as_ref());
            let heir = of == Which::Older && newest.is_some_and(|status| status.takes_over.contains(&uid));
            Input::PhonedHome(if heir { vec![of, Which::Newest] } else { vec![of] })
        };
        self.steps.drive_of(&mut live, machine, Some(&name), input).await.map_err(|refused| refused.problem)?;
        self.let_phone_home_end(machine, &name, uid).await
    }

    /// Refuses to let the installed system of a run fall silent while there is something to do on it: in the machine's newest run, if that
    /// is this one or goes on with its work.
    async fn let_phone_home_end(&self, machine: &str, name: &str, uid: Uuid) -> Result<(), Problem> {
        let described = self.fleet.store().machine(machine).await?;
        let newest = match &described {
            Some(described) => self.fleet.current_workflow(described).await?,
            None => None,
        };
        let Some((newest, status)) = newest.as_ref().and_then(|run| Some((run, run.status.as_ref()?))) else {
            return Ok(());
        };
        let is_of_it = newest.metadata.name == name || status.takes_over.contains(&uid);
        let Some(open) = open_at_phone_home(status, self.fleet.now()).filter(|_| is_of_it) else { return Ok(()) };
        let message =
            format!("action \"{}\" of workflow \"{}\" is still to be done", open.action.name, newest.metadata.name);
        Err(Problem::new(ErrorCode::MachineBusy, message).hint(hint_at_phone_home(status)))
    }
}

fn tell(machine: &str, workflow: &str, epoch: Epoch, record: &EventRecord) {
    let EventRecord { workflow_uid, action_index: action, attempt, seq, body, .. } = record;
    let what = kind(body);
    tracing::info!(machine, workflow, %workflow_uid, %epoch, action, attempt, seq, what, "event");
    if let EventBody::Failed { problem, retryable } = body {
        tracing::warn!(machine, workflow, %workflow_uid, %epoch, action, attempt, retryable, %problem, "an attempt failed");
    }
}

fn kind(body: &EventBody) -> &'static str {
    match body {
        EventBody::Started => "started",
        EventBody::Finished { .. } => "finished",
        EventBody::Failed { .. } => "failed",
        EventBody::Skipped => "skipped",
        EventBody::ReceiptWritten { .. } => "receiptWritten",
        EventBody::DiskWiped { .. } => "diskWiped",
        EventBody::HealthTested { .. } => "healthTested",
    }
}
