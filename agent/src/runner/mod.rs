//! The runner: takes an assignment and works through its actions, each under its timeout, its retry policy and the
//! lease: in order, and the branches of a stage at once. Between two attempts it waits while a person's pause lasts.
//!
//! It touches no device and no socket: [`Perform`] executes an action, [`Report`] receives the reports, and [`Term`]
//! states whether the agent may continue. So the order of steps is tested here without a machine.

mod lane;
mod outcomes;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use landfall_api::message::{ActionKind, ActionRef, ActionResult, Assignment, Control, Start};
use landfall_api::{Problem, Stage, stages};
use landfall_disk::CancelFlag;
use landfall_session::{LeaseWatch, Report};
use tokio::sync::watch;

use self::{lane::Lane, outcomes::Outcomes};
use crate::logging::Tail;

/// How long to wait for the acks of a workflow's last events before the machine restarts anyway: the receipt is on the
/// disk.
pub(crate) const FLUSH_LIMIT: Duration = Duration::from_secs(30);
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
    /// The workflow it belongs to.
    pub(crate) run: Arc<Assignment>,
    /// Asked before every destructive step.
    pub(crate) lease: Arc<dyn Term>,
    /// Set when it must stop.
    pub(crate) cancel: CancelFlag,
    /// Receives the reports.
    pub(crate) report: Arc<dyn Report>,
    /// Said by the action, for the error if it has to be stopped.
    pub(crate) doing: Doing,
}

/// What an attempt is at: a step, and the device that it waits for.
#[derive(Clone, Default)]
pub(crate) struct Doing {
    at: Arc<Mutex<Option<(String, String)>>>,
    /// How many devices do what nothing can stop.
    unstoppable: Arc<AtomicUsize>,
}

impl Doing {
    /// From now on it is at this step, on this device.
    pub(crate) fn begin(&self, step: &str, device: &str) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some((step.to_owned(), device.to_owned()));
    }

    /// It is at that step no more.
    pub(crate) fn end(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A device has begun, or ended, what nothing can stop, such as erasing itself. Until then the runner waits for its end: a
    /// restart could damage the disk, and the result would be lost.
    pub(crate) fn cannot_stop(&self, begun: bool) {
        if begun {
            self.unstoppable.fetch_add(1, Ordering::SeqCst);
        } else {
            self.unstoppable.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn can_stop(&self) -> bool {
        self.unstoppable.load(Ordering::SeqCst) == 0
    }

    /// Adds to a problem where the attempt is.
    pub(crate) fn name(&self, mut problem: Problem) -> Problem {
        if let Some((step, device)) = &*self.at.lock().unwrap_or_else(PoisonError::into_inner) {
            problem.message += &format!(", in step \"{step}\" on {device}");
            problem.subject.clone_from(device);
        }
        problem
    }
}

/// An attempt that failed and has stopped everything it did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) problem: Problem,
    /// Whether another attempt may succeed and cannot destroy anything.
    pub(crate) retryable: bool,
}

/// Executes actions.
pub(crate) trait Perform: Send + Sync + 'static {
    /// One attempt. Must end soon after `job.cancel` is set.
    fn perform(&self, job: Job) -> BoxFuture<'static, Result<ActionResult, Failure>>;
}

/// Why the workflow must stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A person cancelled it.
    Cancelled(String),
    /// A newer session owns the machine.
    Fenced(String),
    /// Another branch failed for good, and with it the workflow.
    Elsewhere(String),
}

/// How a workflow ended for this agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// Every action succeeded, and the machine stays up.
    Done,
    /// The machine restarts now.
    Reboot,
    /// The machine is turned off now.
    PowerOff,
    /// The machine jumps into the kernel that was loaded now.
    Kexec,
    /// An action failed for good.
    Failed(Problem),
    /// Stopped: cancelled, fenced, or the lease ran out.
    Stopped(Problem),
    /// The session ended and did not return, so reports could not be sent.
    Untold,
}

/// A workflow under way.
#[derive(Clone)]
pub(crate) struct Runner {
    /// The workflow.
    pub(crate) run: Arc<Assignment>,
    /// Its lease.
    pub(crate) lease: Arc<dyn Term>,
    /// Holds a value once the workflow must stop.
    pub(crate) stop: watch::Receiver<Option<Stop>>,
    /// Requests of persons.
    pub(crate) control: watch::Receiver<Control>,
    /// Receives the reports.
    pub(crate) report: Arc<dyn Report>,
    /// The log, whose lines go with the reports.
    pub(crate) tail: Tail,
    /// Executes the actions.
    pub(crate) perform: Arc<dyn Perform>,
}

impl Runner {
    /// Works through the actions from the assignment's starts on.
    pub(crate) async fn run(self) -> Outcome {
        let run = self.run.clone();
        tracing::info!(
            "workflow {} begins at action {} of {}",
            run.workflow_name,
            run.start_index + 1,
            run.actions.len()
        );
        let first = run.start_index as usize;
        let outcomes = Outcomes::new(run.clone());
        let stages = stages(run.actions.iter().map(|a| a.branch.as_deref()));
        for stage in stages.iter().skip_while(|stage| stage.span().end <= first) {
            let begun = stage.span().contains(&first);
            match self.stage(stage, begun, &outcomes).await {
                Ok(None) => {}
                Ok(Some(down)) => {
                    if let Err(e) = self.report.flush(FLUSH_LIMIT).await {
                        tracing::warn!(
                            "{e}; the machine goes down anyway, and the receipt on the disk keeps the result"
                        );
                    }
                    return down;
                }
                Err(ended) => return ended,
            }
        }
        tracing::info!("workflow {} is done", run.workflow_name);
        Outcome::Done
    }

    /// Every branch of a stage at once. In the stage that the assignment begins in, a branch without a start has ended.
    async fn stage(&self, stage: &Stage, begun: bool, outcomes: &Outcomes) -> Result<Option<Outcome>, Outcome> {
        let (failed, elsewhere) = watch::channel(None);
        let lanes = stage.lanes.iter().filter_map(|lane| {
            let start = |start: &&Start| lane.contains(&(start.index as usize));
            let (from, attempt) = match self.run.starts.iter().find(start) {
                Some(start) if begun => (start.index as usize, start.attempt.max(1)),
                _ if begun => return None,
                _ => (*lane.first()?, 1),
            };
            let rest = lane.iter().copied().filter(|index| *index >= from).collect();
            Some(Lane::new(self.clone(), elsewhere.clone(), outcomes.clone()).work(rest, attempt))
        });
        let reported = |ended: Result<Option<Outcome>, Outcome>| {
            // The first branch that fails stops the others; their outcomes are not the workflow's reason.
            if let Err(Outcome::Failed(problem)) = &ended {
                failed.send_if_modified(|stop| {
                    let first = stop.is_none();
                    stop.get_or_insert_with(|| Stop::Elsewhere(format!("another branch failed: {}", problem.message)));
                    first
                });
            }
            ended
        };
        let ended = futures::future::join_all(lanes.map(|lane| lane.map(&reported))).await;
        let worst = ended.iter().filter_map(|e| e.as_ref().err()).min_by_key(|outcome| match outcome {
            Outcome::Failed(_) => 0,
            Outcome::Untold => 1,
            _ => 2,
        });
        match worst {
            Some(outcome) => Err(outcome.clone()),
            None => Ok(ended.into_iter().find_map(|e| e.ok().flatten())),
        }
    }
}
