//! Workflow: one execution of a template on one machine.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use uuid::Uuid;

use crate::{
    Action, ActionOutcome, ActionSpec, Condition, DiskReceipt, DurationSpec, HealthReport, Object, Precheck, Problem,
    Shared, SuccessOn, WipeReport,
};

/// A workflow document.
pub type Workflow = Object<WorkflowSpec, WorkflowStatus>;

/// Template, machine, and who requested it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowSpec {
    /// Name of the machine.
    pub machine: String,
    /// Name of the template. The rendered list is pinned in the status, so a later change of the template has no
    /// effect. [`BUILT_IN_DEPROVISION`] if the list is the coordinator's own.
    pub template: String,
    /// What it is for. Default: `provision`.
    #[serde(default, skip_serializing_if = "Purpose::is_provision")]
    pub purpose: Purpose,
    /// Values for the template's parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Filled in by the coordinator from the caller; the value in an applied document is ignored.
    pub authority: Option<Authority>,
    /// A person's request to stop it. Set by `landfall cancel`.
    pub cancel: Option<Authority>,
    /// Requests of persons to pause before its next action, or to resume. The newest last; the newest 16 are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RunRequest>,
    /// The workflow that this one continues, at the failed action. Set by `landfall retry`.
    pub retry_of: Option<String>,
}

/// A person's recorded request about a running workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunRequest {
    /// The request.
    pub what: RunRequestKind,
    /// Who requested it.
    pub by: Authority,
}

/// What a person may request of a running workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunRequestKind {
    /// Begin no other action.
    Pause,
    /// Continue after a pause, or after the `hold` at which it waits.
    Resume,
    /// Begin, although it was requested before a long absence of the coordinator.
    Confirm,
}

/// The template name of a workflow that deprovisions. No template can have it: it is not a DNS label.
pub const BUILT_IN_DEPROVISION: &str = "built-in/deprovision";

/// The purpose of a workflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// To install.
    #[default]
    Provision,
    /// To clear the machine's disks.
    Deprovision,
}

impl Purpose {
    const fn is_provision(&self) -> bool {
        matches!(self, Self::Provision)
    }
}

/// A person's recorded request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authority {
    /// Who requested it: a certificate's name, or a local user.
    pub person: String,
    /// When.
    pub at: Timestamp,
    /// With `--force`: any receipt on the disk is accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// One word for people, derived from the conditions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkflowPhase {
    /// No agent has taken it yet.
    #[default]
    Pending,
    /// The agent is working.
    Running,
    /// The machine is restarting into the installed system.
    Rebooting,
    /// The installed system phoned home (or the template requires only the reboot).
    Succeeded,
    /// It failed; the problem says why.
    Failed,
    /// A person stopped it.
    Cancelled,
}

impl WorkflowPhase {
    /// Whether it can never change again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What the coordinator has seen of a workflow.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// Its phase.
    pub phase: WorkflowPhase,
    /// `Admitted`, `Progressing`, `Paused`, `Slow`, `Silent` and `Stuck`, and why.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The rendered list, pinned.
    pub actions: Vec<ActionStatus>,
    /// Items of the template's list that are not in `actions`: their condition did not hold when the list was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The actions after a failure or a cancel, pinned. Events count these actions on from the last of `actions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<ActionStatus>,
    /// The longest time for the workflow, as the template states it.
    pub timeout: Option<DurationSpec>,
    /// When it has succeeded, as the template states it.
    pub success_on: Option<SuccessOn>,
    /// Whether the agent checks the whole list first, as the template states it.
    pub precheck: Option<Precheck>,
    /// The workflows that this one continues, the newest first: their receipts count as its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes_over: Vec<Uuid>,
    /// A person paused it: no other action begins.
    pub paused: Option<Pause>,
    /// It failed or was cancelled, and ends so after `onFailure`.
    pub ending: Option<WorkflowPhase>,
    /// The machine document's generation at rendering.
    pub machine_generation: u64,
    /// What a person is to do so that the machine netboots; absent: the coordinator does it.
    pub prompt: Option<String>,
    /// The receipts the coordinator knew when the workflow was created: the compare of compare-and-swap. Receipts of
    /// this workflow replace them as it proceeds.
    #[serde(default)]
    pub expected_receipts: Vec<DiskReceipt>,
    /// The disks that it has wiped, each once; at most 128.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wiped: Vec<WipeReport>,
    /// How the parts did that it has tested, each once; at most 128.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tested: Vec<HealthReport>,
    /// Why it failed or was cancelled.
    pub problem: Option<Problem>,
    /// Its place in the order of requests, from 1: of waiting workflows the lowest begins first.
    #[serde(default)]
    pub ticket: u64,
    /// When an agent first took it.
    pub started_at: Option<Timestamp>,
    /// When the machine reported that it goes down.
    pub rebooted_at: Option<Timestamp>,
    /// When the installed system phoned home. May come after a terminal state, and does not change it.
    pub phoned_home_at: Option<Timestamp>,
    /// When it reached a terminal state.
    pub ended_at: Option<Timestamp>,
    /// The deadline of the current state; a state that outlives it is reported.
    pub deadline: Option<Timestamp>,
    /// The deadline of the whole workflow; a pause postpones it.
    pub end_by: Option<Timestamp>,
    /// The epoch of the session that works on it; reports of older sessions are ignored.
    #[serde(default)]
    pub epoch: u64,
    /// The epoch under which an agent holds the list; 0 if none does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_under: u64,
    /// Position in the event log up to which this status was computed.
    #[serde(default)]
    pub applied: u64,
}

impl WorkflowStatus {
    /// The action that events count under this index: of `actions`, or on from there of `onFailure`.
    pub fn action(&self, index: usize) -> Option<&ActionStatus> {
        self.actions.get(index).or_else(|| self.on_failure.get(index.checked_sub(self.actions.len())?))
    }

    /// The same, to be changed.
    pub fn action_mut(&mut self, index: usize) -> Option<&mut ActionStatus> {
        let main = self.actions.len();
        match index.checked_sub(main) {
            None => self.actions.get_mut(index),
            Some(beyond) => self.on_failure.get_mut(beyond),
        }
    }

    /// One word for people: the phase, or what keeps the workflow from continuing.
    pub fn word(&self) -> &'static str {
        match self.phase {
            WorkflowPhase::Pending | WorkflowPhase::Running if self.paused.is_some() => "Paused",
            WorkflowPhase::Running if self.ending == Some(WorkflowPhase::Cancelled) => "Cancelling",
            WorkflowPhase::Running if self.ending.is_some() => "Failing",
            WorkflowPhase::Running if self.actions.iter().any(ActionStatus::holds) => "Holding",
            WorkflowPhase::Pending => "Pending",
            WorkflowPhase::Running => "Running",
            WorkflowPhase::Rebooting => "Rebooting",
            WorkflowPhase::Succeeded => "Succeeded",
            WorkflowPhase::Failed => "Failed",
            WorkflowPhase::Cancelled => "Cancelled",
        }
    }
}

/// An item of a template's list that is not part of a workflow. The decision is not made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// The name that it would have.
    pub name: String,
    /// Its condition, which did not hold.
    pub when: String,
}

/// A pause, by a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// Who requested it.
    pub by: String,
    /// Since when, by the coordinator's clock.
    pub since: Timestamp,
    /// The workflow fails if it is not resumed by then.
    pub until: Timestamp,
}

/// The state of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ActionState {
    /// Not begun.
    Pending,
    /// An attempt is under way.
    Running,
    /// Done.
    Succeeded,
    /// The last attempt failed and no more will be made.
    Failed,
    /// Never begun, and never will be: the workflow ended before, or the action's condition did not hold.
    Skipped,
}

/// One action of a workflow and its result.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionStatus {
    /// The rendered action.
    pub action: Shared<Action>,
    /// Its phase.
    pub state: ActionState,
    /// The newest attempt, from 1; 0 before the first.
    #[serde(default)]
    pub attempt: u32,
    /// Attempts that ended in a failure. Interrupted attempts use up no retry.
    #[serde(default)]
    pub failures: u32,
    /// When the newest attempt began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The moment by which it must have begun, or having begun must have ended with all its attempts.
    pub deadline: Option<Timestamp>,
    /// Done by the workflow that this one continues; it is not repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
    /// What it came to, as far as conditions can name more of it than that it was done.
    pub outcome: Option<ActionOutcome>,
    /// The machine's unexpected restarts while it was under way.
    pub restarts: Option<Restarts>,
    /// How the newest failed attempt failed; kept after a later one succeeds.
    pub problem: Option<Problem>,
    /// The last log lines of the newest attempt that failed, oldest first: at most 50, each at most 512 bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_tail: Vec<String>,
    /// The newest progress.
    pub progress: Option<Progress>,
    /// When the progress last moved, by the coordinator's clock.
    pub moved_at: Option<Timestamp>,
}

impl ActionStatus {
    /// An action not yet begun.
    pub fn pending(action: impl Into<Shared<Action>>) -> Self {
        Self {
            action: action.into(),
            state: ActionState::Pending,
            attempt: 0,
            failures: 0,
            started_at: None,
            ended_at: None,
            deadline: None,
            taken_over: false,
            outcome: None,
            restarts: None,
            problem: None,
            log_tail: Vec::new(),
            progress: None,
            moved_at: None,
        }
    }

    /// Whether it was left out: its condition did not hold when its turn came.
    pub fn is_left_out(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| !outcome.succeeded)
    }

    /// Whether the list has gone on past it: it was done, or left out.
    pub fn is_over(&self) -> bool {
        self.state == ActionState::Succeeded || self.is_left_out()
    }

    /// What conditions can name of it. `None`: it is not over, or how it ended is not known, because only a receipt says that it has ended.
    pub fn known_outcome(&self) -> Option<ActionOutcome> {
        let unconditional = self.state == ActionState::Succeeded && self.action.when.is_none();
        self.outcome.clone().filter(|_| self.is_over()).or_else(|| unconditional.then(ActionOutcome::done))
    }

    /// Whether an attempt has begun and not ended.
    pub fn is_under_way(&self) -> bool {
        self.state == ActionState::Running && self.started_at.is_some() && self.ended_at.is_none()
    }

    /// Whether the workflow waits at it until a person resumes it.
    pub fn holds(&self) -> bool {
        matches!(self.action.spec, ActionSpec::Hold(_)) && self.is_under_way()
    }
}

/// Unexpected restarts of the machine: another boot asked for a session while an attempt was under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restarts {
    /// How many, from 1.
    pub count: u32,
    /// The attempt that the newest one interrupted.
    pub attempt: u32,
    /// The kernel's id of the boot after the newest one.
    pub boot_id: String,
    /// When that boot was first heard, by the coordinator's clock.
    pub at: Timestamp,
}

/// The progress of a write. Counters are bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Stored bytes taken in.
    pub stored_bytes: u64,
    /// Stored bytes in all, 0 while unknown.
    #[serde(default)]
    pub stored_total: u64,
    /// Decoded bytes.
    pub raw_bytes: u64,
    /// Decoded bytes in all, 0 while unknown.
    #[serde(default)]
    pub raw_total: u64,
    /// Bytes really written to the device.
    #[serde(default)]
    pub written_bytes: u64,
    /// Decoded bytes per second, lately.
    #[serde(default)]
    pub bytes_per_second: u64,
    /// What it is doing: `fetch`, `verify`, `commit`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// Seconds to go, as the agent reckons; 0 while unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub eta_seconds: u64,
    /// The slowest stage, the one that the others wait for: `fetch`, `hash`, `decode` or `write`. Absent while unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub slowest: String,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Progress {
    /// Bytes done and in all: raw ones where their total is known, else stored ones. The total is 0 while unknown.
    pub const fn share(&self) -> (u64, u64) {
        if self.raw_total > 0 { (self.raw_bytes, self.raw_total) } else { (self.stored_bytes, self.stored_total) }
    }

    /// Seconds to go: as the agent reckons; else (an older agent says nothing) at the present rate, which counts decoded
    /// bytes. Where their total is unknown the stored bytes' share stands in for it.
    pub fn remaining_seconds(&self) -> Option<u64> {
        if self.eta_seconds > 0 {
            return Some(self.eta_seconds);
        }
        let rate = u128::from(self.bytes_per_second);
        let left = if self.raw_total > 0 {
            u128::from(self.raw_total.saturating_sub(self.raw_bytes))
        } else {
            let stored_left = u128::from(self.stored_total.saturating_sub(self.stored_bytes));
            (u128::from(self.raw_bytes) * stored_left)
                .checked_div(u128::from(self.stored_bytes))
                .filter(|_| self.stored_total > 0)?
        };
        left.checked_div(rate).map(|seconds| u64::try_from(seconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_comes_from_agent_or_byte_counts() {
        let mut progress = Progress { raw_bytes: 100, raw_total: 300, bytes_per_second: 50, ..Progress::default() };
        assert_eq!(progress.remaining_seconds(), Some(4));
        progress.raw_total = 0;
        assert_eq!(progress.remaining_seconds(), None);
        (progress.stored_bytes, progress.stored_total) = (10, 20);
        assert_eq!(progress.remaining_seconds(), Some(2));
        progress.bytes_per_second = 0;
        assert_eq!(progress.remaining_seconds(), None);
        progress.eta_seconds = 7;
        assert_eq!(progress.remaining_seconds(), Some(7));
    }
}
