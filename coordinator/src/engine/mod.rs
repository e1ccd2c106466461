//! The engine: the only writer of status. It applies the pure state machine to stored documents, one machine at a
//! time, and carries out what it asks for.

mod types;

use std::collections::BTreeMap;

use landfall_api::{Authority, Document, ErrorCode, Kind, MacAddr, Problem, Workflow};
use tokio::sync::broadcast;
use uuid::Uuid;

pub use types::*;

/// The engine.
pub struct Engine {}

fn soon() -> Problem {
    Problem::new(ErrorCode::Internal, "the engine is not wired yet")
}

impl Engine {
    /// What a machine that netboots from `mac` is told; mints a boot token if it is to run the agent.
    pub async fn boot_decision(&self, _mac: MacAddr, _smbios_uuid: Option<Uuid>) -> Result<BootDecision, Problem> {
        Err(soon())
    }
    /// Whether a machine document names this address.
    pub async fn known_mac(&self, _mac: MacAddr) -> bool {
        false
    }
    /// Creates or changes a document; `dry_run` only checks.
    pub async fn apply(
        &self,
        _document: Document,
        _who: &str,
        _dry_run: bool,
    ) -> Result<(Document, ApplyOutcome), Problem> {
        Err(soon())
    }
    /// Deletes a document.
    pub async fn delete(&self, _kind: Kind, _name: &str) -> Result<Document, Problem> {
        Err(soon())
    }
    /// A person asks for a run.
    pub async fn provision(
        &self,
        _machine: &str,
        _template: &str,
        _parameters: BTreeMap<String, serde_json::Value>,
        _authority: Authority,
    ) -> Result<Workflow, Problem> {
        Err(soon())
    }
    /// A person stops a run.
    pub async fn cancel(&self, _workflow: &str, _authority: Authority) -> Result<Workflow, Problem> {
        Err(soon())
    }
    /// An installed system phones home.
    pub async fn phone_home(&self, _bearer: &str, _report: PhoneHomeReport) -> Result<(), Problem> {
        Err(soon())
    }
    /// The newest log lines of a workflow, and those to come.
    pub fn logs(&self, _workflow_uid: Uuid) -> (Vec<LogRecord>, broadcast::Receiver<LogRecord>) {
        (Vec::new(), broadcast::channel(1).1)
    }
}
