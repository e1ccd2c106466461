//! Progress and logs as agents send them: taken in without a lock that anything else waits for, shown when there is time.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use landfall_api::{ActionState, ActionStatus, Document, Problem, Progress, Workflow, WorkflowPhase};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::{ActionRef, Engine, LogLine};
use landfall_edge::metrics::metrics;
use landfall_store::StoreError;

/// Statuses that take in progress in one tick, at most: a thousand writing machines must not fill the store's queue.
/// The others' newest waits for the next tick.
const PER_TICK: usize = 512;
/// Of these, at the same time.
const AT_ONCE: usize = 64;

/// The newest progress of each action under way, until it is folded into the status. Bounded by the runs there are.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Inbox>);

#[derive(Default)]
struct Inbox {
    newest: HashMap<(Uuid, u32), Reported>,
    /// Who has waited longest is first.
    order: VecDeque<(Uuid, u32)>,
    /// Of every write under way.
    stages: HashMap<(Uuid, u32), Stage>,
}

/// The stage an attempt is in, and since when.
struct Stage {
    attempt: u32,
    name: &'static str,
    since: Timestamp,
}

/// The stages whose time is counted, as the agent's write pipeline names them; any other is `other`.
const STAGES: [&str; 7] = ["fetch", "compare", "write", "flush", "verify", "readBack", "commit"];

/// Progress as it came.
struct Reported {
    machine: Uuid,
    attempt: u32,
    progress: Progress,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, key: (Uuid, u32), reported: Reported) {
        let mut inbox = self.lock();
        if inbox.newest.insert(key, reported).is_some() {
            metrics().progress_thinned.add(1);
        } else {
            inbox.order.push_back(key);
        }
    }

    /// Counts the time of the stage that ended, if another one began.
    fn note_stage(&self, key: (Uuid, u32), attempt: u32, stage: &str, now: Timestamp) {
        let name = STAGES.into_iter().find(|known| *known == stage).unwrap_or("other");
        let stages = &mut self.lock().stages;
        if stages.get(&key).is_some_and(|s| (s.attempt, s.name) == (attempt, name)) {
            return;
        }
        // An attempt that was cut off tells nothing about how long its stage takes.
        if let Some(ended) = stages.insert(key, Stage { attempt, name, since: now }).filter(|s| s.attempt == attempt) {
            count_stage(&ended, now);
        }
    }

    /// No more progress is to come of it. The last stage counts if the action succeeded.
    pub(super) fn close_stage(&self, key: (Uuid, u32), succeeded: bool, now: Timestamp) {
        if let Some(stage) = self.lock().stages.remove(&key).filter(|_| succeeded) {
            count_stage(&stage, now);
        }
    }

    pub(super) fn forget(&self, workflow: Uuid) {
        let mut inbox = self.lock();
        inbox.stages.retain(|(run, _), _| *run != workflow);
        inbox.newest.retain(|(run, _), _| *run != workflow);
        inbox.order.retain(|(run, _)| *run != workflow);
    }

    fn take(&self) -> Option<((Uuid, u32), Reported)> {
        let mut inbox = self.lock();
        let key = inbox.order.pop_front()?;
        inbox.newest.remove(&key).map(|reported| (key, reported))
    }
}

impl Engine {
    /// The newest log lines of a run, and those to come.
    pub fn logs(&self, workflow_uid: Uuid) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        self.inner.logs.follow(workflow_uid)
    }

    /// To be called before the first line of a run: from here on its secrets are kept out of them. After a restart of this
    /// process an agent goes on without a new assignment, and they are to be learnt from the store.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read.
    pub async fn prepare_logs(&self, workflow_uid: Uuid) -> Result<(), Problem> {
        if self.inner.logs.prepared(workflow_uid) {
            return Ok(());
        }
        let Some(name) = self.index().workflow_name(workflow_uid) else { return Ok(()) };
        match self.inner.store.workflow(&name).await? {
            Some(workflow) => self.conceal_secrets_of(&workflow).await,
            None => Ok(()),
        }
    }

    /// The secrets of a workflow's assignment, which must not appear in a log: its bearer token, and the secrets it
    /// refers to.
    pub(super) async fn conceal_secrets_of(&self, workflow: &Workflow) -> Result<(), Problem> {
        let Some(uid) = workflow.metadata.uid else { return Ok(()) };
        // A retry has its first run's token.
        let token_run = workflow.status.as_ref().and_then(|s| s.takes_over.last().copied()).unwrap_or(uid);
        let bearer = self.inner.tokens.known_bearer(token_run).await?;
        let mut secrets: Vec<String> = bearer.iter().flat_map(|bearer| bearer_parts(bearer)).collect();
        secrets.extend(self.inner.vault.of_workflow(workflow).await?);
        self.inner.logs.conceal(uid, secrets);
        Ok(())
    }

    /// A failure's texts without the run's secrets.
    pub(super) async fn clean_problem(&self, workflow_uid: Uuid, problem: &mut Problem) -> Result<(), Problem> {
        self.prepare_logs(workflow_uid).await?;
        let texts = [&mut problem.message, &mut problem.hint, &mut problem.subject];
        for text in texts.into_iter().chain(&mut problem.causes).chain(&mut problem.last_log_lines) {
            self.inner.logs.clean(workflow_uid, text);
        }
        Ok(())
    }

    /// Takes in a log line. Only of runs there are: whatever else an agent names is dropped.
    pub fn log(&self, workflow_uid: Uuid, record: LogLine) {
        if self.index().workflow_name(workflow_uid).is_some() {
            self.inner.logs.push(workflow_uid, record, self.now());
        }
    }

    /// Takes in progress; the status shows the newest, at most once a second. Waits for nothing.
    pub fn progress(&self, machine: Uuid, of: ActionRef, progress: Progress) {
        let ActionRef { workflow_uid: workflow, action_index: action, attempt } = of;
        if self.index().workflow_name(workflow).is_some() {
            if !progress.stage.is_empty() {
                self.inner.waiting.note_stage((workflow, action), attempt, &progress.stage, self.now());
            }
            self.inner.waiting.put((workflow, action), Reported { machine, attempt, progress });
        }
    }

    /// Brings the newest progress into the statuses, at the tick.
    pub(super) async fn fold_progress(&self) -> Result<(), Problem> {
        let waiting = std::iter::from_fn(|| self.inner.waiting.take()).take(PER_TICK);
        // Side by side, so that they share a commit.
        let folded: Vec<_> = futures::stream::iter(waiting)
            .map(|((workflow, action), reported)| self.fold(workflow, action, reported))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        // What could not be stored of one keeps none of the others waiting.
        folded.into_iter().collect()
    }

    async fn fold(&self, uid: Uuid, index: u32, reported: Reported) -> Result<(), Problem> {
        let now = self.now();
        let _alone = self.inner.machines.lock(reported.machine).await;
        let Some(name) = self.index().workflow_name(uid) else { return Ok(()) };
        let Some(mut workflow) = self.inner.store.workflow(&name).await? else { return Ok(()) };
        let Some(status) = workflow.status.as_mut().filter(|s| s.phase == WorkflowPhase::Running) else {
            return Ok(());
        };
        let Some(action) = status.action_mut(index as usize) else { return Ok(()) };
        if action.state != ActionState::Running || action.attempt != reported.attempt {
            return Ok(());
        }
        note_progress(action, reported.progress, now);
        match self.inner.store.documents().update(Document::Workflow(Box::new(workflow))).await {
            // Progress may be thinned: whoever won said something newer or better.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What stands still is slow; that is judged by the counters, never by how often the agent speaks.
fn note_progress(action: &mut ActionStatus, progress: Progress, now: Timestamp) {
    let counters = |p: &Progress| (p.stored_bytes, p.raw_bytes, p.written_bytes, p.stage.clone());
    if action.progress.as_ref().map(counters) != Some(counters(&progress)) {
        action.moved_at = Some(now);
    }
    action.progress = Some(progress);
}

fn count_stage(stage: &Stage, now: Timestamp) {
    // A clock that was set back meanwhile tells nothing.
    if let Ok(took) = Duration::try_from(now.duration_since(stage.since)) {
        metrics().stage_seconds.of(&[("stage", stage.name)]).took(took);
    }
}

/// A bearer is `<run>.<secret>`: the run's uid is no secret, the rest is, alone too.
fn bearer_parts(bearer: &str) -> Vec<String> {
    let secret = bearer.split_once('.').map(|(_, secret)| secret.to_owned());
    secret.into_iter().chain([bearer.to_owned()]).collect()
}
