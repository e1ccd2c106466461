//! The runner: takes an assignment and works through its actions, in order, each under its timeout, its retry policy and
//! the lease.
//!
//! It touches no device and no socket: what an action does is behind [`Perform`], who is told is behind [`Report`], and
//! whether it may go on is behind [`Term`]. So the order of things is tested here without a machine.

mod report;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use landfall_api::{ErrorCode, Problem};
use landfall_disk::CancelFlag;
use landfall_session::{Action, ActionKind, ActionRef, ActionResult, Assignment, EventKind, LeaseWatch};
use tokio::sync::watch;

pub(crate) use self::report::{Report, ToSession, Untold};

/// How long a cancelled action may take to stop. A device in error recovery answers within its own timeouts (SCSI: 30 s
/// a command and a few repeats).
const STOP_LIMIT: Duration = Duration::from_secs(180);
/// How long the acks of a run's last events are awaited before the machine restarts all the same: the receipt stands.
const FLUSH_LIMIT: Duration = Duration::from_secs(30);
/// Log lines that go with a problem.
const LAST_LINES: usize = 20;

/// Whether the agent may still act. [`LeaseWatch`], or a test's own.
pub(crate) trait Term: Send + Sync + 'static {
    /// At this instant.
    fn is_valid(&self) -> bool;
    /// Waits until it may not.
    fn expired(&self) -> BoxFuture<'_, ()>;
}

impl Term for LeaseWatch {
    fn is_valid(&self) -> bool {
        Self::is_valid(self)
    }
    fn expired(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::expired(self))
    }
}

/// One attempt at one action, with all it may need.
#[derive(Clone)]
pub(crate) struct Job {
    /// Which attempt.
    pub(crate) action: ActionRef,
    /// What to do.
    pub(crate) kind: ActionKind,
    /// The run it belongs to.
    pub(crate) run: Arc<Assignment>,
    /// Asked before every destructive step.
    pub(crate) lease: Arc<dyn Term>,
    /// Set when it must stop.
    pub(crate) cancel: CancelFlag,
    /// Who is told how it goes.
    pub(crate) report: Arc<dyn Report>,
}

/// An attempt that failed and has stopped everything it did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) problem: Problem,
    /// Whether another attempt may go through, and can destroy nothing.
    pub(crate) retryable: bool,
}

/// Does what an action says.
pub(crate) trait Perform: Send + Sync + 'static {
    /// One attempt. Must end soon after `job.cancel` is set.
    fn perform(&self, job: Job) -> BoxFuture<'static, Result<ActionResult, Failure>>;
}

/// Somebody wants the run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A person cancelled it.
    Cancelled(String),
    /// A newer session owns the machine.
    Fenced(String),
}

/// How a run ended, as far as this agent is concerned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// Every action succeeded, and none was a reboot.
    Done,
    /// The machine restarts now.
    Reboot,
    /// An action failed for good.
    Failed(Problem),
    /// Stopped: cancelled, fenced, or the lease ran out.
    Stopped(Problem),
    /// The session ended and did not come back, so nobody could be told.
    Untold,
}

/// A run under way.
pub(crate) struct Runner {
    /// The run.
    pub(crate) run: Arc<Assignment>,
    /// Its lease.
    pub(crate) lease: Arc<dyn Term>,
    /// Holds a value once somebody wants it stopped.
    pub(crate) stop: watch::Receiver<Option<Stop>>,
    /// Who is told.
    pub(crate) report: Arc<dyn Report>,
    /// Who does it.
    pub(crate) perform: Arc<dyn Perform>,
}

impl Runner {
    /// Works through the actions from the assignment's start on.
    pub(crate) async fn run(mut self) -> Outcome {
        let run = self.run.clone();
        tracing::info!("run {} begins at action {} of {}", run.workflow_name, run.start_index + 1, run.actions.len());
        let from = usize::try_from(run.start_index).unwrap_or(usize::MAX);
        for (index, action) in run.actions.iter().enumerate().skip(from) {
            let first = if index == from { run.start_attempt.max(1) } else { 1 };
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            match self.action(action, index, first).await {
                Ok(Ok(ActionResult::Reboot)) => {
                    if let Err(e) = self.report.flush(FLUSH_LIMIT).await {
                        tracing::warn!("{e}; restarting all the same, the receipt on the disk tells the rest");
                    }
                    return Outcome::Reboot;
                }
                Ok(Ok(_)) => {}
                Ok(Err(ended)) => return ended,
                Err(Untold) => return Outcome::Untold,
            }
        }
        tracing::info!("run {} is done", run.workflow_name);
        Outcome::Done
    }

    /// One action with all its attempts.
    async fn action(
        &mut self,
        action: &Action,
        index: u32,
        first: u32,
    ) -> Result<Result<ActionResult, Outcome>, Untold> {
        let mut wait = action.retry.initial_backoff;
        let mut attempt = first;
        loop {
            let reference = ActionRef { workflow_uid: self.run.workflow_uid, action_index: index, attempt };
            tracing::info!("action {} ({}), attempt {attempt}", index + 1, action.name);
            self.report.report(reference, EventKind::Started).await?;
            let (failure, stopped) = match self.attempt(action, reference).await {
                Attempt::Succeeded(result) => {
                    self.report.report(reference, EventKind::Finished(result.clone())).await?;
                    return Ok(Ok(result));
                }
                Attempt::Failed(failure) => (failure, false),
                Attempt::Stopped(failure) => (failure, true),
            };
            let Failure { problem, retryable } = with_last_lines(failure, self.report.last_lines(LAST_LINES));
            tracing::error!("action {} ({}) failed: {problem}", index + 1, action.name);
            let event = EventKind::Failed { problem: problem.clone(), retryable };
            self.report.report(reference, event).await?;
            if stopped {
                return Ok(Err(Outcome::Stopped(problem)));
            }
            if !retryable || attempt >= action.retry.max_attempts {
                return Ok(Err(Outcome::Failed(problem)));
            }
            tracing::info!("next attempt in {} s", wait.as_secs_f32().ceil());
            // Whatever ends the wait early is found again by the next attempt, which reports it.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stopped_by(&mut self.stop) => {}
                () = self.lease.expired() => {}
            }
            wait = wait.saturating_mul(2).min(action.retry.max_backoff);
            attempt = attempt.saturating_add(1);
        }
    }

    async fn attempt(&mut self, action: &Action, reference: ActionRef) -> Attempt {
        if let Some(stop) = self.stop.borrow().clone() {
            return Attempt::Stopped(stop_failure(&stop));
        }
        if !self.lease.is_valid() {
            return Attempt::Stopped(lease_failure());
        }
        let cancel = CancelFlag::new();
        let job = Job {
            action: reference,
            kind: action.kind.clone(),
            run: self.run.clone(),
            lease: self.lease.clone(),
            cancel: cancel.clone(),
            report: self.report.clone(),
        };
        let mut work = tokio::spawn(self.perform.perform(job));
        let why = tokio::select! {
            done = &mut work => return Attempt::of(done),
            () = tokio::time::sleep(action.timeout) => {
                let text = format!("action {} took longer than its {} s", action.name, action.timeout.as_secs());
                let hint = "raise the action's timeout, or look at the last progress for what it was waiting for";
                Attempt::Failed(Failure { problem: Problem::new(ErrorCode::Timeout, text).hint(hint), retryable: true })
            }
            () = stopped_by(&mut self.stop) => {
                let stop = self.stop.borrow().clone();
                Attempt::Stopped(stop.as_ref().map_or_else(lease_failure, stop_failure))
            }
            () = self.lease.expired() => Attempt::Stopped(lease_failure()),
        };
        cancel.cancel();
        match tokio::time::timeout(STOP_LIMIT, &mut work).await {
            // It got through after all: what is true is reported, and nothing is done twice.
            Ok(Ok(Ok(result))) => Attempt::Succeeded(result),
            Ok(_) => why,
            Err(_elapsed) => {
                let text = format!("action {} does not stop", action.name);
                let problem = Problem::new(ErrorCode::Timeout, text).hint(
                    "a device does not answer; look at the kernel's lines on the machine's console and power it off",
                );
                Attempt::Stopped(Failure { problem, retryable: false })
            }
        }
    }
}

enum Attempt {
    Succeeded(ActionResult),
    Failed(Failure),
    Stopped(Failure),
}

impl Attempt {
    fn of(done: Result<Result<ActionResult, Failure>, tokio::task::JoinError>) -> Self {
        match done {
            Ok(Ok(result)) => Self::Succeeded(result),
            Ok(Err(failure)) if matches!(failure.problem.code, ErrorCode::LeaseExpired | ErrorCode::Fenced) => {
                Self::Stopped(failure)
            }
            Ok(Err(failure)) => Self::Failed(failure),
            Err(panic) => {
                let problem = Problem::new(ErrorCode::Internal, format!("the action's code panicked: {panic}"))
                    .hint("report this with the machine's console log");
                Self::Failed(Failure { problem, retryable: false })
            }
        }
    }
}

/// Waits until somebody wants the run stopped; for ever if nobody can any more.
async fn stopped_by(stop: &mut watch::Receiver<Option<Stop>>) {
    if stop.wait_for(Option::is_some).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn stop_failure(stop: &Stop) -> Failure {
    let (code, reason) = match stop {
        Stop::Cancelled(reason) => (ErrorCode::Cancelled, reason),
        Stop::Fenced(reason) => (ErrorCode::Fenced, reason),
    };
    Failure { problem: Problem::new(code, reason), retryable: false }
}

fn lease_failure() -> Failure {
    let problem =
        Problem::new(ErrorCode::LeaseExpired, "the coordinator was not heard for as long as the lease allows")
            .hint("the agent goes on by itself when the coordinator hands the run out again");
    // Nothing was committed, so under another lease the same action may go on where this one stopped.
    Failure { problem, retryable: true }
}

fn with_last_lines(mut failure: Failure, lines: Vec<String>) -> Failure {
    if failure.problem.last_log_lines.is_empty() {
        failure.problem.last_log_lines = lines;
    }
    failure
}
