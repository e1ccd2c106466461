//! Progress and logs as agents send them: taken in without a lock that anything else waits for, shown when there is time.

mod logs;
mod measure;
mod redact;
mod tail;
mod waiting;

use std::sync::Arc;

use futures::StreamExt as _;
use jiff::Timestamp;
use landfall_api::message::{ActionRef, ActionResult, LogLine};
use landfall_api::{ActionState, ActionStatus, Document, Problem, Progress, Workflow};
use landfall_machine::is_running;
use tokio::sync::broadcast;
use uuid::Uuid;

use super::{fleet::Fleet, secrets::Vault, tokens::Tokens};
use landfall_store::StoreError;
use logs::Logs;
use redact::Redactor;
use tail::Tails;
use waiting::{Reported, Waiting};

/// Statuses that take in progress in one tick, at most: a thousand writing machines must not fill the store's queue.
/// The others' newest waits for the next tick.
const PER_TICK: usize = 512;
/// Of these, at the same time.
const AT_ONCE: usize = 64;

/// Everything of a problem that an agent words.
fn texts(problem: &mut Problem) -> impl Iterator<Item = &mut String> {
    let texts = [&mut problem.message, &mut problem.hint, &mut problem.subject];
    texts.into_iter().chain(&mut problem.causes).chain(&mut problem.last_log_lines)
}

/// A problem without these secrets, where no workflow has them.
pub(in crate::engine) fn without_secrets(mut problem: Problem, secrets: Vec<String>) -> Problem {
    let mut redactor = Redactor::default();
    redactor.learn(secrets);
    texts(&mut problem).for_each(|text| redactor.clean(text));
    problem
}

/// What agents say beside their events: progress and logs.
pub struct Telemetry {
    fleet: Arc<Fleet>,
    vault: Arc<Vault>,
    tokens: Arc<Tokens>,
    logs: Logs,
    waiting: Waiting,
    tails: Tails,
}

impl Telemetry {
    pub(in crate::engine) fn new(fleet: Arc<Fleet>, vault: Arc<Vault>, tokens: Arc<Tokens>) -> Self {
        Self { fleet, vault, tokens, logs: Logs::default(), waiting: Waiting::default(), tails: Tails::default() }
    }

    /// Takes in which attempts are under way in a workflow.
    pub(in crate::engine) fn follow(&self, workflow: &Workflow) {
        self.waiting.follow(workflow, self.fleet.now());
    }

    /// A workflow was removed: its log and its progress go.
    pub(in crate::engine) fn forget(&self, workflow_uid: Uuid) {
        self.logs.forget(workflow_uid);
        self.waiting.forget(workflow_uid);
    }

    /// The newest log lines of a run, and those to come.
    pub fn logs(&self, workflow_uid: Uuid) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        self.logs.follow(workflow_uid)
    }

    /// The newest log lines of a run.
    pub fn kept_logs(&self, workflow_uid: Uuid) -> Vec<LogLine> {
        self.logs.kept(workflow_uid)
    }

    /// To be called before the first line of a run: from here on its secrets are kept out of them. After a restart of this
    /// process an agent goes on without a new assignment, and they are to be learnt from the store.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read.
    pub async fn prepare_logs(&self, workflow_uid: Uuid) -> Result<(), Problem> {
        if self.logs.prepared(workflow_uid) {
            return Ok(());
        }
        let Some(name) = self.fleet.index().workflow_name(workflow_uid) else { return Ok(()) };
        match self.fleet.store().workflow(&name).await? {
            Some(workflow) => self.conceal_secrets_of(&workflow).await,
            None => Ok(()),
        }
    }

    /// The secrets of a workflow's assignment, which must not appear in a log: its bearer token, and the secrets it
    /// refers to.
    pub(in crate::engine) async fn conceal_secrets_of(&self, workflow: &Workflow) -> Result<(), Problem> {
        let Some(uid) = workflow.metadata.uid else { return Ok(()) };
        // A retry has its first run's token.
        let token_run = workflow.status.as_ref().and_then(|s| s.takes_over.last().copied()).unwrap_or(uid);
        let bearer = self.tokens.known_bearer(token_run).await?;
        let mut secrets: Vec<String> = bearer.iter().flat_map(|bearer| bearer_parts(bearer)).collect();
        secrets.extend(self.vault.of_workflow(workflow).await?);
        self.logs.conceal(uid, secrets);
        Ok(())
    }

    /// A failure's texts without the run's secrets.
    pub(in crate::engine) async fn clean_problem(
        &self, workflow_uid: Uuid, problem: &mut Problem,
    ) -> Result<(), Problem> {
        self.prepare_logs(workflow_uid).await?;
        texts(problem).for_each(|text| self.logs.clean(workflow_uid, text));
        Ok(())
    }

    /// What an action came to without the run's secrets: a server may have repeated what it was sent.
    pub(in crate::engine) async fn clean_result(
        &self, workflow_uid: Uuid, result: &mut ActionResult,
    ) -> Result<(), Problem> {
        if let ActionResult::Http(answer) = result
            && !answer.body.is_empty()
        {
            self.prepare_logs(workflow_uid).await?;
            self.logs.clean_start(workflow_uid, &mut answer.body, answer.cut);
        }
        Ok(())
    }

    /// Takes in a log line. Only of an attempt that is under way, or was a moment ago: any other is dropped.
    pub fn log(&self, workflow_uid: Uuid, record: LogLine) {
        let now = self.fleet.now();
        if self.waiting.hears(workflow_uid, record.action_index, record.attempt, now) {
            self.logs.push(workflow_uid, record, now);
        }
    }

    /// Takes in progress; the status shows the newest, at most once a second. Waits for nothing. Progress of an attempt
    /// that is not under way is dropped.
    pub fn progress(&self, machine: Uuid, of: ActionRef, progress: Progress) {
        let ActionRef { workflow_uid: workflow, action_index: action, attempt } = of;
        self.waiting.put((workflow, action), Reported { machine, attempt, progress }, self.fleet.now());
    }

    /// Brings the newest progress into the statuses, at the tick.
    pub(in crate::engine) async fn fold_progress(&self) -> Result<(), Problem> {
        self.waiting.sweep(self.fleet.now());
        let waiting = std::iter::from_fn(|| self.waiting.take()).take(PER_TICK);
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
        let now = self.fleet.now();
        let _alone = self.fleet.machines().lock(reported.machine).await;
        let Some(name) = self.fleet.index().workflow_name(uid) else { return Ok(()) };
        let Some(mut workflow) = self.fleet.store().workflow(&name).await? else { return Ok(()) };
        if !is_running(&workflow) {
            return Ok(());
        }
        let Some(action) = workflow.status.as_mut().and_then(|s| s.action_mut(index as usize)) else { return Ok(()) };
        if action.state != ActionState::Running || action.attempt != reported.attempt {
            return Ok(());
        }
        note_progress(action, reported.progress, now);
        match self.fleet.store().documents().update_later(Document::from(workflow)).await {
            // Progress may be thinned: the writer that won said something newer or better.
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

/// A bearer is `<run>.<secret>`: the run's uid is no secret, the rest is, alone too.
fn bearer_parts(bearer: &str) -> Vec<String> {
    let secret = bearer.split_once('.').map(|(_, secret)| secret.to_owned());
    secret.into_iter().chain([bearer.to_owned()]).collect()
}
