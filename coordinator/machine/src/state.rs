//! One machine: its document, its workflow, its session.

use std::sync::Arc;

use landfall_api::{Machine, Shared, Workflow};

use crate::{effect::Which, session::Session};

/// Everything that a step looks at and changes. The documents are shared with the store, and copied once a step changes them.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineState {
    /// The machine's document.
    pub machine: Shared<Machine>,
    /// The machine's newest workflow.
    pub newest: Option<Shared<Workflow>>,
    /// An older workflow of the machine that the input names.
    pub older: Option<Shared<Workflow>>,
    /// The newest session; lives in this process alone.
    pub session: Option<Session>,
    /// The URL of the coordinator that makes the step, where several have one database.
    pub coordinator: Option<Arc<str>>,
}

impl MachineState {
    /// One of the two workflows.
    pub const fn workflow(&self, which: Which) -> Option<&Shared<Workflow>> {
        match which {
            Which::Newest => self.newest.as_ref(),
            Which::Older => self.older.as_ref(),
        }
    }

    pub(crate) const fn workflow_mut(&mut self, which: Which) -> Option<&mut Shared<Workflow>> {
        match which {
            Which::Newest => self.newest.as_mut(),
            Which::Older => self.older.as_mut(),
        }
    }
}
