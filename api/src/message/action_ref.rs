//! Which attempt a message is about.

use std::fmt;

use uuid::Uuid;

/// One attempt at one action of one workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionRef {
    /// The workflow.
    pub workflow_uid: Uuid,
    /// Index in the workflow's action list, from 0.
    pub action_index: u32,
    /// The attempt, from 1.
    pub attempt: u32,
}

impl fmt::Display for ActionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.workflow_uid, self.action_index, self.attempt)
    }
}
