//! A workflow as the coordinator hands it to an agent: every default stated, every secret in place.

use std::{fmt, time::Duration};

use uuid::Uuid;

use super::action::ActionKind;
use crate::{ActionOutcome, Digest, DiskReceipt, When};

/// A workflow handed to a machine, under a lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The epoch of the session it is handed out in.
    pub epoch: u64,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// The workflow's name, for people and receipts.
    pub workflow_name: String,
    /// The machine it is for.
    pub machine_uid: Uuid,
    /// The machine document's generation when the workflow was rendered.
    pub generation: u64,
    /// How long the agent may act, from `counts_from`, without hearing from the coordinator. Never zero.
    pub lease: Duration,
    /// The agent's own clock in the newest hello or heartbeat that the coordinator had heard; `None`: from the arrival.
    pub counts_from: Option<Duration>,
    /// Every action of the workflow; never empty.
    pub actions: Vec<AssignedAction>,
    /// Actions before this index have already succeeded. May equal the length: nothing is left to do.
    pub start_index: u32,
    /// The attempt number to use for the action at `start_index`; from 1.
    pub start_attempt: u32,
    /// Every action to start at once, one a branch, that at `start_index` among them; empty if nothing is left to do. A
    /// branch of the same stage that has none has ended.
    pub starts: Vec<Start>,
    /// Workflows whose work this one takes over: disks that carry their receipts were written for this one.
    pub earlier_runs: Vec<Uuid>,
    /// Every receipt the coordinator believes is on this machine: the compare of compare-and-swap.
    pub expected_receipts: Vec<DiskReceipt>,
    /// What actions before `starts` came to, as far as conditions that are left name them.
    pub results: Vec<KnownResult>,
    /// A person asked for this workflow by name, so a disk that is not blank may be written.
    pub person_authorised: bool,
    /// A person said `--force`: write whatever receipt is found.
    pub force: bool,
    /// The agent checks the whole list before its first action that destroys data.
    pub precheck: bool,
    /// Where an action of the list needs it: the layer with the worker that performs it.
    pub tools: Option<ToolsLayer>,
}

/// A squashfs file with the worker and Debian's tools, as the coordinator serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsLayer {
    /// http or https.
    pub url: String,
    /// The same at the coordinators that take this one's place.
    pub other_urls: Vec<String>,
    /// Of the file.
    pub digest: Digest,
    /// Bytes of the file; at most [`Self::MAX_BYTES`].
    pub size_bytes: u64,
}

impl ToolsLayer {
    /// The largest file, bytes: the agent holds it in memory, and machines of 512 MiB must have room beside it.
    pub const MAX_BYTES: u64 = 64 << 20;
}

/// What an action came to that had ended before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownResult {
    /// Index of the action.
    pub index: u32,
    /// As conditions name it.
    pub outcome: ActionOutcome,
}

/// One action that an agent is to begin, and the number of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Index of the action.
    pub index: u32,
    /// From 1.
    pub attempt: u32,
}

/// One action of an [`Assignment`].
#[derive(Clone, PartialEq)]
pub struct AssignedAction {
    /// Unique within its list.
    pub name: String,
    /// How long one attempt may take. Never zero.
    pub timeout: Duration,
    /// How often it is tried.
    pub retry: Retry,
    /// Consecutive actions that name a branch form one stage: its branches run at once, the actions of one in order.
    pub branch: Option<String>,
    /// Over results of actions before it: it is done only if this holds when its turn comes.
    pub when: Option<When>,
    /// What it does.
    pub kind: ActionKind,
}

/// Its name alone: secrets may stand in any of its texts.
impl fmt::Debug for AssignedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssignedAction").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How often an action is tried, and how long to wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// At least 1; 1 means no retry.
    pub max_attempts: u32,
    /// Wait before the second attempt; doubles each time. Never zero.
    pub initial_backoff: Duration,
    /// The longest wait between two attempts. Never zero.
    pub max_backoff: Duration,
}
