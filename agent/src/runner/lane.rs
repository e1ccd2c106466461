//! One branch of a stage: its actions in order, each with all its attempts.

use std::time::Duration;

use landfall_api::message::{ActionKind, ActionRef, ActionResult, AssignedAction, EventBody};
use landfall_api::{ActionOutcome, ErrorCode, Problem};
use landfall_disk::CancelFlag;
use landfall_session::SessionEnded;
use tokio::sync::watch;

use super::{Doing, Failure, Job, Outcome, Runner, Stop, outcomes::Outcomes};

/// How long a cancelled action may take to stop. A device in error recovery answers within its own timeouts (SCSI: 30 s
/// a command and a few repeats). An action in a test stops at once, or never.
const STOP_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 10 } else { 180 });
/// Log lines that go with a problem.
const LAST_LINES: usize = 50;

pub(super) struct Lane {
    runner: Runner,
    /// Holds a value once another branch has failed for good.
    elsewhere: watch::Receiver<Option<Stop>>,
    /// What actions came to so far.
    outcomes: Outcomes,
}

enum Attempt {
    Succeeded(ActionResult),
    Failed(Failure),
    Stopped(Failure),
}

impl Lane {
    pub(super) fn new(runner: Runner, elsewhere: watch::Receiver<Option<Stop>>, outcomes: Outcomes) -> Self {
        Self { runner, elsewhere, outcomes }
    }

    /// Works through the actions at `indices`; returns whether the machine is to go down now.
    pub(super) async fn work(mut self, indices: Vec<usize>, first: u32) -> Result<Option<Outcome>, Outcome> {
        let run = self.runner.run.clone();
        let mut first = Some(first);
        for index in indices {
            let Some(action) = run.actions.get(index) else { continue };
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            match self.action(action, index, first.take().unwrap_or(1)).await {
                Ok(Ok(Some(ActionResult::Reboot))) => return Ok(Some(Outcome::Reboot)),
                Ok(Ok(Some(ActionResult::PowerOff))) => return Ok(Some(Outcome::PowerOff)),
                Ok(Ok(Some(ActionResult::Kexec(_)))) => return Ok(Some(Outcome::Kexec)),
                Ok(Ok(_)) => {}
                Ok(Err(ended)) => return Err(ended),
                Err(SessionEnded) => return Err(Outcome::Untold),
            }
        }
        Ok(None)
    }

    /// One action with all its attempts; no result if its condition does not hold.
    async fn action(
        &mut self, action: &AssignedAction, index: u32, first: u32,
    ) -> Result<Result<Option<ActionResult>, Outcome>, SessionEnded> {
        let mut wait = action.retry.initial_backoff;
        let mut attempt = first;
        let (report, tail) = (self.runner.report.clone(), self.runner.tail.clone());
        self.while_paused().await;
        let mut undecided = None;
        match self.is_wanted(action) {
            Ok(true) => {}
            Ok(false) => {
                let reference = ActionRef { workflow_uid: self.runner.run.workflow_uid, action_index: index, attempt };
                report.report(reference, EventBody::Skipped).await?;
                self.outcomes.note(index, ActionOutcome::left_out());
                return Ok(Ok(None));
            }
            Err(failure) => undecided = Some(failure),
        }
        loop {
            self.while_paused().await;
            let reference = ActionRef { workflow_uid: self.runner.run.workflow_uid, action_index: index, attempt };
            // The same keys as in the coordinator's log: they join the two.
            tracing::info!(
                workflow_uid = %reference.workflow_uid, epoch = self.runner.run.epoch, action = index, attempt,
                "action {} ({}), attempt {attempt}", index + 1, action.name
            );
            report.report(reference, EventBody::Started).await?;
            tail.follow(report.clone(), reference);
            let attempt_made = match undecided.take() {
                Some(failure) => Attempt::Failed(failure),
                None => self.attempt(action, reference).await,
            };
            let (failure, stopped) = match attempt_made {
                Attempt::Succeeded(result) => {
                    self.outcomes.note(index, ActionOutcome::of(&result));
                    report.report(reference, EventBody::Finished { result: result.clone() }).await?;
                    tail.unfollow(reference);
                    return Ok(Ok(Some(result)));
                }
                Attempt::Failed(failure) => (failure, false),
                Attempt::Stopped(failure) => (failure, true),
            };
            let Failure { problem, retryable } = with_last_lines(failure, tail.last(LAST_LINES));
            tracing::error!(
                workflow_uid = %reference.workflow_uid, epoch = self.runner.run.epoch, action = index, attempt,
                "action {} ({}) failed: {problem}", index + 1, action.name
            );
            let event = EventBody::Failed { problem: problem.clone(), retryable };
            report.report(reference, event).await?;
            tail.unfollow(reference);
            if stopped {
                return Ok(Err(Outcome::Stopped(problem)));
            }
            if !retryable || attempt >= action.retry.max_attempts {
                return Ok(Err(Outcome::Failed(problem)));
            }
            tracing::info!("next attempt in {} s", wait.as_secs_f32().ceil());
            // The next attempt finds and reports the cause that ended the wait early.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stopped_by(&mut self.runner.stop, &mut self.elsewhere) => {}
                () = self.runner.lease.expired() => {}
            }
            wait = wait.saturating_mul(2).min(action.retry.max_backoff);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Whether its condition over results holds. What is to stop is not left out: its attempt says why it stops.
    fn is_wanted(&self, action: &AssignedAction) -> Result<bool, Failure> {
        let Some(when) = &action.when else { return Ok(true) };
        if wanted(&self.runner.stop, &self.elsewhere).is_some() || !self.runner.lease.is_valid() {
            return Ok(true);
        }
        let holds = self.outcomes.holds(when).map_err(|fault| {
            let message = format!("cannot decide whether to do {}: {}", action.name, fault.message);
            let hint =
                format!("{}; a result is also lost when the machine restarts before it was reported", fault.hint);
            let problem = Problem::new(ErrorCode::InvalidTemplate, message).hint(hint);
            let problem = Problem { causes: vec![format!("in the condition {when}")], ..problem };
            Failure { problem, retryable: false }
        })?;
        if !holds {
            tracing::info!("{} is left out: {when} does not hold", action.name);
        }
        Ok(holds)
    }

    /// Waits while a person's pause lasts; the next attempt finds every other cause that ends the wait.
    async fn while_paused(&mut self) {
        if !self.runner.control.borrow().paused {
            return;
        }
        tracing::info!("a person paused this workflow; no action begins until a person resumes it");
        tokio::select! {
            () = until(&mut self.runner.control, |control| !control.paused) => tracing::info!("resumed"),
            _ = stopped_by(&mut self.runner.stop, &mut self.elsewhere) => {}
            () = self.runner.lease.expired() => {}
        }
    }

    async fn attempt(&mut self, action: &AssignedAction, reference: ActionRef) -> Attempt {
        if let Some(stop) = wanted(&self.runner.stop, &self.elsewhere) {
            return Attempt::Stopped(stop_failure(&stop));
        }
        if !self.runner.lease.is_valid() {
            return Attempt::Stopped(lease_failure());
        }
        match &action.kind {
            ActionKind::Hold(spec) => self.hold(action, &spec.message, reference.action_index).await,
            _ => self.perform(action, reference).await,
        }
    }

    /// Waits for a person. No action runs meanwhile, so none has to be stopped.
    async fn hold(&mut self, action: &AssignedAction, message: &str, index: u32) -> Attempt {
        let name = &self.runner.run.workflow_name;
        tracing::info!("{}: {message}; then: landfall resume {name}", action.name);
        tokio::select! {
            () = until(&mut self.runner.control, |control| control.released.contains(&index)) => {
                tracing::info!("{}: a person resumed the workflow", action.name);
                Attempt::Succeeded(ActionResult::Hold)
            }
            () = tokio::time::sleep(action.timeout) => {
                let text = format!("the workflow waited at {} for {} s, and no person resumed \
                    it", action.name, action.timeout.as_secs());
                let problem = Problem::new(ErrorCode::Timeout, text).hint("continue from here with landfall retry");
                Attempt::Failed(Failure { problem, retryable: false })
            }
            stop = stopped_by(&mut self.runner.stop, &mut self.elsewhere) => Attempt::Stopped(stop_failure(&stop)),
            () = self.runner.lease.expired() => Attempt::Stopped(lease_failure()),
        }
    }

    async fn perform(&mut self, action: &AssignedAction, reference: ActionRef) -> Attempt {
        let (cancel, doing) = (CancelFlag::new(), Doing::default());
        let job = Job {
            action: reference,
            kind: action.kind.clone(),
            run: self.outcomes.as_done(),
            lease: self.runner.lease.clone(),
            cancel: cancel.clone(),
            report: self.runner.report.clone(),
            doing: doing.clone(),
        };
        let mut work = tokio::spawn(self.runner.perform.perform(job));
        let why = tokio::select! {
            done = &mut work => return Attempt::of(done),
            () = tokio::time::sleep(action.timeout) => {
                let text = format!("action {} took longer than its {} s", action.name, action.timeout.as_secs());
                let hint = "increase the action's timeout, or read the last progress to see what it waited for";
                let problem = doing.name(Problem::new(ErrorCode::Timeout, text).hint(hint));
                Attempt::Failed(Failure { problem, retryable: true })
            }
            stop = stopped_by(&mut self.runner.stop, &mut self.elsewhere) => Attempt::Stopped(stop_failure(&stop)),
            () = self.runner.lease.expired() => Attempt::Stopped(lease_failure()),
        };
        cancel.cancel();
        let mut end = tokio::time::timeout(STOP_LIMIT, &mut work).await;
        while end.is_err() && !doing.can_stop() {
            tracing::warn!(
                "action {} is to stop, but a disk erases itself: its end is waited for; leave the power on",
                action.name
            );
            end = tokio::time::timeout(STOP_LIMIT, &mut work).await;
        }
        match end {
            // It succeeded after all: the report states that, and the action is not repeated.
            Ok(Ok(Ok(result))) => Attempt::Succeeded(result),
            Ok(Ok(Err(own))) => why.with_own(own),
            Ok(Err(_panic)) => why,
            Err(_elapsed) => {
                // Its end is reported, but a fence must wait for it: it may write once the device answers.
                let still_runs = self.runner.report.still_runs();
                tokio::spawn(async move {
                    drop(work.await);
                    drop(still_runs);
                });
                let text = format!("action {} does not stop", action.name);
                let problem = doing.name(Problem::new(ErrorCode::Timeout, text).hint(
                    "a device does not answer; read the kernel's lines on the machine's console and power it off",
                ));
                Attempt::Stopped(Failure { problem, retryable: false })
            }
        }
    }
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

    /// The action's own error when it was stopped. The stop itself is not an error of the action, but any other error
    /// counts: a permanent fault is not retried only because the time also ran out.
    fn with_own(self, own: Failure) -> Self {
        match self {
            Self::Failed(mut failure)
                if !matches!(own.problem.code, ErrorCode::Cancelled | ErrorCode::LeaseExpired) && !own.retryable =>
            {
                failure.problem.causes.push(own.problem.to_string());
                Self::Failed(Failure { retryable: false, ..failure })
            }
            other => other,
        }
    }
}

/// Waits until the condition holds; for ever if its sender has gone.
async fn until<T>(watched: &mut watch::Receiver<T>, holds: impl FnMut(&T) -> bool) {
    if watched.wait_for(holds).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the workflow must stop.
async fn stopped_by(stop: &mut watch::Receiver<Option<Stop>>, elsewhere: &mut watch::Receiver<Option<Stop>>) -> Stop {
    tokio::select! {
        () = until(stop, Option::is_some) => {}
        () = until(elsewhere, Option::is_some) => {}
    }
    wanted(stop, elsewhere).unwrap_or_else(|| Stop::Cancelled("stopped".to_owned()))
}

fn wanted(stop: &watch::Receiver<Option<Stop>>, elsewhere: &watch::Receiver<Option<Stop>>) -> Option<Stop> {
    stop.borrow().clone().or_else(|| elsewhere.borrow().clone())
}

fn stop_failure(stop: &Stop) -> Failure {
    let (code, reason) = match stop {
        Stop::Cancelled(reason) | Stop::Elsewhere(reason) => (ErrorCode::Cancelled, reason),
        Stop::Fenced(reason) => (ErrorCode::Fenced, reason),
    };
    Failure { problem: Problem::new(code, reason), retryable: false }
}

fn lease_failure() -> Failure {
    let problem =
        Problem::new(ErrorCode::LeaseExpired, "the agent got no message from the coordinator within the lease")
            .hint("the agent continues when the coordinator assigns the workflow again");
    // Nothing was committed, so under another lease the same action may continue where this one stopped.
    Failure { problem, retryable: true }
}

fn with_last_lines(mut failure: Failure, lines: Vec<String>) -> Failure {
    if failure.problem.last_log_lines.is_empty() {
        failure.problem.last_log_lines = lines;
    }
    failure
}
