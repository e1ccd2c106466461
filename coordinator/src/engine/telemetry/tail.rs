//! The last log lines of a failed attempt, into the run's status: they outlive the process, and stand beside the reason.
//!
//! Logs come on a stream of their own and may be later than the failure they led to. So what is there is stored with the
//! failure, in the same write, and for a few seconds more each tick adds what has come meanwhile.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{ActionState, ActionStatus, Document, Problem, Shared, Workflow, WorkflowStatus, message::LogLine};
use uuid::Uuid;

use super::{super::shorten::cut, Telemetry};
use landfall_store::StoreError;

/// Lines that go with a failure.
const LINES: usize = 50;
/// Each is cut here, bytes: 50 of them are 25 KiB of a document that may have a MiB.
const LINE_BYTES: usize = 512;
/// Writes that lose a compare-and-swap this often in a row are given up: the agent's event has its own last lines.
const TRIES: usize = 8;
/// For so long after a failure lines of its attempt are still taken in.
const OPEN: Duration = Duration::from_secs(5);

/// A failed attempt whose last lines may still be on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Open {
    workflow: String,
    uid: Uuid,
    action: u32,
    attempt: u32,
    until: Timestamp,
    /// Lines of the run that were there when this was last looked at; `None`: not yet.
    seen: Option<u64>,
}

/// Every such attempt. Bounded by the failures of a few seconds.
#[derive(Default)]
pub(super) struct Tails(Mutex<Vec<Open>>);

/// An action and its attempt that a step made fail.
type FailedAttempt = (u32, u32);

/// The attempts that failed between two states of a run.
fn failed_between(before: &WorkflowStatus, after: &WorkflowStatus) -> Vec<FailedAttempt> {
    let failed = |(old, new): &(&ActionStatus, &ActionStatus)| {
        let given_up = new.state == ActionState::Failed && old.state != ActionState::Failed;
        new.attempt > 0 && (new.failures > old.failures || given_up)
    };
    fn actions(status: &WorkflowStatus) -> impl Iterator<Item = &ActionStatus> {
        status.actions.iter().chain(&status.on_failure)
    }
    let pairs = actions(before).zip(actions(after)).enumerate();
    // Cannot truncate: lists are bounded far below.
    pairs.filter(|(_, pair)| failed(pair)).map(|(index, (_, new))| (index as u32, new.attempt)).collect()
}

fn shown(record: &LogLine) -> String {
    let mut line = format!("{} {} {}", record.time.strftime("%H:%M:%S%.3f"), record.level, record.message);
    shorten(&mut line);
    line
}

fn shorten(line: &mut String) {
    if line.len() > LINE_BYTES {
        cut(line, LINE_BYTES - '…'.len_utf8());
        line.push('…');
    }
}

impl Telemetry {
    /// Puts the last lines of every attempt that failed in this step into the new status.
    pub(in crate::engine) fn put_tails(&self, before: &WorkflowStatus, after: &mut Shared<Workflow>) {
        let (Some(uid), Some(status)) = (after.metadata.uid, &after.status) else { return };
        // Looked at first: to change the workflow is to copy it, and most steps change nothing here.
        for (index, attempt) in failed_between(before, status) {
            if let Some(action) = after.status.as_mut().and_then(|status| status.action_mut(index as usize)) {
                action.log_tail = self.tail_of(uid, (index, attempt), action.problem.as_ref());
            }
        }
    }

    /// What the agent logged of that attempt; where less of it came than it sent along with its failure, that.
    fn tail_of(&self, workflow_uid: Uuid, (action, attempt): FailedAttempt, problem: Option<&Problem>) -> Vec<String> {
        let lines = self.logs.of_attempt(workflow_uid, action, attempt, LINES);
        let sent = problem.map(|p| p.last_log_lines.as_slice()).unwrap_or_default();
        if lines.len() >= sent.len() {
            return lines.iter().map(shown).collect();
        }
        let mut sent = sent[sent.len().saturating_sub(LINES)..].to_vec();
        for line in &mut sent {
            self.logs.clean(workflow_uid, line);
            shorten(line);
        }
        sent
    }

    /// Lines of the attempts that failed in this step are still taken in for a while.
    pub(in crate::engine) fn keep_tails_open(&self, before: &WorkflowStatus, after: &Workflow) {
        let (Some(uid), Some(status)) = (after.metadata.uid, &after.status) else { return };
        let failed = failed_between(before, status);
        if failed.is_empty() {
            return;
        }
        let workflow = &after.metadata.name;
        let until = self.fleet.after(OPEN);
        let mut open = self.tails.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (action, attempt) in &failed {
            // A later failure of the same action takes the older one's place in the status.
            open.retain(|o| (o.uid, o.action) != (uid, *action));
            open.push(Open {
                workflow: workflow.to_owned(),
                uid,
                action: *action,
                attempt: *attempt,
                until,
                seen: None,
            });
        }
    }

    /// Takes in what has come since, at the tick.
    pub(in crate::engine) async fn fold_tails(&self) -> Result<(), Problem> {
        let now = self.fleet.now();
        let due = {
            let mut open = self.tails.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut due = Vec::new();
            for tail in open.iter_mut() {
                let taken = self.logs.taken(tail.uid);
                if tail.seen.replace(taken) != Some(taken) {
                    due.push(tail.clone());
                }
            }
            open.retain(|o| o.until > now);
            due
        };
        let mut outcome = Ok(());
        for tail in due {
            outcome = outcome.and(self.fold_tail(&tail).await);
        }
        outcome
    }

    async fn fold_tail(&self, tail: &Open) -> Result<(), Problem> {
        let Some(workflow) = self.fleet.store().workflow(&tail.workflow).await? else { return Ok(()) };
        let machine = self.fleet.store().machine(&workflow.spec.machine).await?.and_then(|m| m.metadata.uid);
        let _alone = self.fleet.machines().lock(machine.unwrap_or(tail.uid)).await;
        // Against a writer without the lock, such as an operator's tool.
        for _ in 0..TRIES {
            let Some(mut workflow) = self.fleet.store().workflow(&tail.workflow).await? else { return Ok(()) };
            let same = workflow.metadata.uid == Some(tail.uid);
            let status = workflow.status.as_mut().filter(|_| same);
            let Some(action) = status.and_then(|s| s.action_mut(tail.action as usize)) else { return Ok(()) };
            // A later attempt has failed, at another coordinator.
            if action.attempt != tail.attempt && action.state == ActionState::Failed {
                return Ok(());
            }
            let lines = self.tail_of(tail.uid, (tail.action, tail.attempt), action.problem.as_ref());
            if lines == action.log_tail {
                return Ok(());
            }
            action.log_tail = lines;
            match self.fleet.store().documents().update(Document::from(workflow)).await {
                // Where there is no room, the failure itself says why.
                Ok(_) | Err(StoreError::NotFound { .. } | StoreError::TooLarge { .. }) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
