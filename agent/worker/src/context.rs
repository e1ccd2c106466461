//! What every action of the worker gets, and how it fails.

use std::path::Path;

use landfall_api::{Problem, message::WorkerJob};
use landfall_disk::{Authority, CancelFlag, LeaseGuard, ReceiptIntent, SelectionGuard};

use crate::Reporter;

/// One attempt at one action.
pub struct Context<'a> {
    /// The workflow, the action, the machine's disks.
    pub job: &'a WorkerJob,
    /// Receives log lines, progress and receipts.
    pub report: &'a Reporter,
    /// Where the new system's root is mounted, by the agent or by the action itself: an empty directory of the tools layer
    /// otherwise.
    pub target: &'a Path,
}

impl Context<'_> {
    /// On whose authority this action changes the disk that `selection` chose.
    pub(crate) fn authority(&self, selection: SelectionGuard) -> Authority {
        let run = &self.job.assignment;
        Authority {
            receipt: ReceiptIntent {
                machine_uid: run.machine_uid,
                workflow_uid: run.workflow_uid,
                workflow_name: run.workflow_name.clone(),
                generation: run.generation,
                action_index: run.start_index,
            },
            expected: run.expected_receipts.clone(),
            person_authorised: run.person_authorised,
            force: run.force,
            selection,
            // The end of either is the end of this process: see the crate's documentation.
            lease: LeaseGuard::unlimited(),
            cancel: CancelFlag::new(),
        }
    }
}

/// An attempt that failed and has stopped everything it did.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Why.
    pub problem: Problem,
    /// Whether another attempt may succeed and cannot destroy anything.
    pub retryable: bool,
}

impl Failure {
    /// A failure that another attempt cannot cure.
    pub const fn last(problem: Problem) -> Self {
        Self { problem, retryable: false }
    }

    /// A failure that another attempt may cure.
    pub const fn passing(problem: Problem) -> Self {
        Self { problem, retryable: true }
    }
}
