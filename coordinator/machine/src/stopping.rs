//! What may still run of a workflow that has ended for the coordinator.
//!
//! An agent that is only ordered to stop acts until it says that it has, or until its lease ends. A run with branches has
//! several actions under way at once, and each says so for itself. The lease is let go with the last of them: one too early
//! would let another computer in beside an agent that still writes.

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::message::{EventBody, EventRecord};
use landfall_api::{ErrorCode, Stage, WorkflowStatus, stages};
use uuid::Uuid;

use crate::run::{Event, frontier, policy};

/// A run that is over, and the actions that its agent may be at.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stopping {
    run: Uuid,
    /// One a branch, with the attempt it is at or beyond; those after a failure count on from the list.
    open: BTreeMap<usize, u32>,
    stages: Vec<Stage>,
    /// Actions of the list, and with those after a failure.
    ends: (usize, usize),
    /// The actions whose next failure is their last, whatever the failure is.
    last_tries: BTreeSet<usize>,
}

impl Stopping {
    /// Of the run as it stood when it was under way for the last time.
    pub(crate) fn new(run: Uuid, was: &WorkflowStatus) -> Self {
        let at = |index: usize| (index, was.action(index).map_or(0, |action| action.attempt));
        let open: BTreeMap<usize, u32> = frontier(was).into_iter().map(at).collect();
        let last_try = |index: &usize| {
            was.action(*index).is_some_and(|a| a.failures.saturating_add(1) >= policy::max_attempts(&a.action))
        };
        let last_tries = open.keys().copied().filter(last_try).collect();
        let ends = (was.actions.len(), was.actions.len() + was.on_failure.len());
        Self { run, open, stages: stages(was.actions.iter().map(|a| a.action.branch.as_deref())), ends, last_tries }
    }

    /// The run that is over.
    pub(crate) const fn run(&self) -> Uuid {
        self.run
    }

    /// Takes in an event of that run; says whether nothing of it can be under way any more.
    pub(crate) fn hears(&mut self, event: &Event) -> bool {
        // A phone-home shows that another system runs on the computer that it installed. Another computer of the same identity
        // may hold the lease by then.
        if let Event::Agent { record, .. } = event {
            self.reported(record);
        }
        self.open.is_empty()
    }

    fn reported(&mut self, record: &EventRecord) {
        let index = record.action_index as usize;
        // What an agent still has to say of an attempt before the one that it was given last ends nothing.
        if self.open.get(&index).is_some_and(|attempt| record.attempt < *attempt) {
            return;
        }
        match &record.body {
            EventBody::Finished { .. } | EventBody::Skipped => {
                if self.open.remove(&index).is_some() {
                    // The agent goes on by itself until it hears that it must not.
                    let next = self.after(index);
                    self.open.extend(next.into_iter().map(|next| (next, 0)));
                }
            }
            EventBody::Failed { problem, retryable } => {
                let stopped =
                    matches!(problem.code, ErrorCode::Cancelled | ErrorCode::Fenced | ErrorCode::LeaseExpired);
                if stopped || !retryable || self.last_tries.contains(&index) {
                    self.open.remove(&index);
                }
            }
            EventBody::Started
            | EventBody::ReceiptWritten { .. }
            | EventBody::DiskWiped { .. }
            | EventBody::HealthTested { .. } => {}
        }
    }

    /// What an agent begins when that action has succeeded and those in `open` have not ended.
    fn after(&self, index: usize) -> Vec<usize> {
        let (list, all) = self.ends;
        if index >= list {
            return Some(index + 1).filter(|next| *next < all).into_iter().collect();
        }
        let Some(n) = self.stages.iter().position(|stage| stage.span().contains(&index)) else { return Vec::new() };
        let lane = self.stages.get(n).and_then(|stage| stage.lanes.iter().find(|lane| lane.contains(&index)));
        if let Some(next) = lane.into_iter().flatten().copied().find(|other| *other > index) {
            return vec![next];
        }
        if !self.open.is_empty() {
            return Vec::new();
        }
        let firsts = |stage: &Stage| stage.lanes.iter().filter_map(|lane| lane.first().copied()).collect();
        self.stages.get(n + 1).map(firsts).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_api::{Action, ActionStatus, Problem};
    use serde_json::json;

    use super::*;
    use landfall_api::message::ActionResult;

    fn stopping(attempts: u32) -> Stopping {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let write = |name: &str, branch: &str| {
            json!({"name": name, "branch": branch, "retry": {"maxAttempts": attempts},
                "writeImage": {"image": {"url": "http://h/i", "digest": digest}}})
        };
        let list = json!([write("a", "x"), write("b", "y"), write("c", "y"), {"name": "restart", "reboot": {}}]);
        let actions: Vec<Action> = serde_json::from_value(list).unwrap();
        let mut status = WorkflowStatus {
            actions: actions.into_iter().map(ActionStatus::pending).collect(),
            ..WorkflowStatus::default()
        };
        for index in frontier(&status) {
            status.actions[index].attempt = 2;
        }
        Stopping::new(Uuid::nil(), &status)
    }

    fn reported(action_index: u32, body: EventBody) -> Event {
        reported_by(action_index, 2, body)
    }

    fn reported_by(action_index: u32, attempt: u32, body: EventBody) -> Event {
        let record =
            EventRecord { workflow_uid: Uuid::nil(), action_index, attempt, seq: 1, time: Timestamp::UNIX_EPOCH, body };
        Event::Agent { epoch: 1, position: 1, record: Box::new(record) }
    }

    fn failed(code: ErrorCode, retryable: bool) -> EventBody {
        EventBody::Failed { problem: Problem::new(code, "x"), retryable }
    }

    #[test]
    fn every_branch_must_say_that_it_has_stopped() {
        let mut stopping = stopping(1);
        assert!(!stopping.hears(&Event::Tick));
        assert!(!stopping.hears(&reported(0, failed(ErrorCode::Truncated, false))));
        assert!(!stopping.hears(&reported(0, failed(ErrorCode::Cancelled, false))), "a branch counts once");
        assert!(stopping.hears(&reported(1, failed(ErrorCode::Cancelled, false))));
    }

    #[test]
    fn a_finished_branch_may_have_begun_its_next_action() {
        let done = || EventBody::Finished { result: ActionResult::Hold };
        let mut stopping = stopping(1);
        assert!(!stopping.hears(&reported(0, done())));
        assert!(!stopping.hears(&reported(1, done())), "c is begun");
        assert!(!stopping.hears(&reported(2, done())), "the restart is begun");
        assert!(stopping.hears(&reported(3, done())));
    }

    #[test]
    fn a_branch_that_ends_last_leads_to_the_restart() {
        let done = || EventBody::Finished { result: ActionResult::Hold };
        let mut stopping = stopping(1);
        assert!(!stopping.hears(&reported(1, done())), "c is begun");
        assert!(!stopping.hears(&reported(0, done())), "nothing follows a before c has ended");
        assert!(!stopping.hears(&reported(2, done())), "the restart is begun");
        assert!(stopping.hears(&reported(3, done())));
    }

    #[test]
    fn a_stopped_branch_keeps_the_next_stage_from_beginning() {
        let mut stopping = stopping(1);
        assert!(!stopping.hears(&reported(0, EventBody::Finished { result: ActionResult::Hold })), "b is under way");
        assert!(stopping.hears(&reported(1, failed(ErrorCode::Cancelled, false))), "the restart was not begun");
    }

    #[test]
    fn what_follows_a_failure_is_done_in_its_order() {
        let hold = |name: &str| -> Action {
            serde_json::from_value(json!({"name": name, "hold": {"message": "look"}})).unwrap()
        };
        let status = WorkflowStatus {
            actions: vec![ActionStatus::pending(hold("a"))],
            on_failure: vec![ActionStatus::pending(hold("b")), ActionStatus::pending(hold("c"))],
            ending: Some(landfall_api::WorkflowPhase::Failed),
            ..WorkflowStatus::default()
        };
        let done = || EventBody::Finished { result: ActionResult::Hold };
        let mut stopping = Stopping::new(Uuid::nil(), &status);
        assert!(!stopping.hears(&reported(1, done())), "c is begun");
        assert!(stopping.hears(&reported(2, done())));
    }

    #[test]
    fn a_late_word_of_an_older_attempt_ends_nothing() {
        let mut stopping = stopping(1);
        assert!(!stopping.hears(&reported(1, failed(ErrorCode::Cancelled, false))));
        assert!(!stopping.hears(&reported_by(0, 1, failed(ErrorCode::LeaseExpired, true))), "the second is under way");
        assert!(!stopping.hears(&reported_by(0, 1, EventBody::Finished { result: ActionResult::Hold })));
        assert!(stopping.hears(&reported_by(0, 3, failed(ErrorCode::Cancelled, false))), "its own next one");
    }

    #[test]
    fn a_retryable_attempt_has_not_stopped() {
        let mut twice = stopping(2);
        twice.hears(&reported(1, failed(ErrorCode::Cancelled, false)));
        assert!(!twice.hears(&reported(0, failed(ErrorCode::Truncated, true))));
        assert!(twice.hears(&reported(0, failed(ErrorCode::LeaseExpired, true))));
        let mut once = stopping(1);
        once.hears(&reported(1, failed(ErrorCode::Cancelled, false)));
        assert!(once.hears(&reported(0, failed(ErrorCode::Truncated, true))));
        assert!(!stopping(1).hears(&Event::PhonedHome), "another computer may hold the lease");
    }
}
