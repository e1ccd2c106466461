//! What every action of the worker gets, and how it fails.

use std::path::Path;

use landfall_api::{Problem, message::WorkerJob};

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
