//! Events: what an agent reports about an action, and what the log keeps.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ActionRef, ActionResult};
use crate::{DiskReceipt, HealthReport, Problem, WipeReport};

/// One numbered fact about an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    /// The run.
    pub workflow_uid: Uuid,
    /// Index of the action in the workflow's list.
    pub action_index: u32,
    /// From 1.
    pub attempt: u32,
    /// From 1, without gaps within (workflow, action, attempt).
    pub seq: u64,
    /// By the agent's clock.
    pub time: Timestamp,
    /// What happened.
    pub body: EventBody,
}

/// What names an event: sent twice it counts once.
pub type EventKey = (Uuid, u32, u32, u64);

impl EventRecord {
    /// An event of that attempt.
    pub const fn of(action: ActionRef, seq: u64, time: Timestamp, body: EventBody) -> Self {
        let ActionRef { workflow_uid, action_index, attempt } = action;
        Self { workflow_uid, action_index, attempt, seq, time, body }
    }
    /// The attempt it is about.
    pub const fn action(&self) -> ActionRef {
        ActionRef { workflow_uid: self.workflow_uid, action_index: self.action_index, attempt: self.attempt }
    }
    /// What names it.
    pub fn key(&self) -> EventKey {
        (self.workflow_uid, self.action_index, self.attempt, self.seq)
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum EventBody {
    /// The attempt began.
    Started,
    /// The attempt succeeded.
    Finished {
        /// What came of it.
        result: ActionResult,
    },
    /// The attempt failed.
    Failed {
        /// Why.
        problem: Problem,
        /// False: trying again cannot help, or could destroy something.
        retryable: bool,
    },
    /// The action's condition over results does not hold: it has ended without an effect, and without having begun.
    Skipped,
    /// The receipt on a disk changed.
    ReceiptWritten {
        /// What it says now.
        receipt: DiskReceipt,
    },
    /// A part of the machine was tested; the action may go on with others.
    HealthTested {
        /// How it did.
        report: HealthReport,
    },
    /// A disk was wiped; the action may go on with others.
    DiskWiped {
        /// How.
        report: WipeReport,
    },
}

impl EventBody {
    /// Whether the attempt is over with it.
    pub const fn ends_attempt(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Failed { .. } | Self::Skipped)
    }
}
