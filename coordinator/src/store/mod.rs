//! Where documents, events and secrets are kept: three narrow traits, and a facade that holds one of each.
//!
//! No transaction spans two of the traits; whoever needs more replays the event log. That keeps the door open for
//! back ends that offer one-object compare-and-swap and nothing else. `conformance` says what every back end owes.

#[cfg(test)]
mod conformance;
mod history;
mod memory;
mod rules;
mod sqlite;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, ErrorCode, Kind, Machine, Problem, Template, Workflow};
use uuid::Uuid;

pub use history::{Change, ChangeOp, Watch, WatchError};
pub use memory::MemoryStore;
pub use sqlite::{OpenError, SqliteStore};

use crate::workflow::EventRecord;

/// At most this many events are kept for one workflow; an agent that reports more is refused. A run of ten actions
/// with a hundred attempts each stays below it.
pub const MAX_EVENTS_PER_WORKFLOW: u64 = 10_000;

/// A document as stored, larger than this many bytes of JSON, is refused: other back ends hold 1.5 MiB an object.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// Why a store refused or could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No such document.
    #[error("there is no {kind} \"{name}\"")]
    NotFound {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// A document of that kind and name is there already.
    #[error("the {kind} \"{name}\" exists already")]
    AlreadyExists {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The document changed since the caller read it.
    #[error("the {kind} \"{name}\" changed meanwhile: it is at resourceVersion {stored}, the write named {given}")]
    Conflict {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// The version stored.
        stored: u64,
        /// The version the write named.
        given: u64,
    },
    /// The document is too large.
    #[error("the {kind} \"{name}\" is {bytes} bytes large; at most {MAX_DOCUMENT_BYTES} can be kept")]
    TooLarge {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// Its size as JSON.
        bytes: usize,
    },
    /// An event skips numbers: one before it is missing.
    #[error("event {got} of workflow {workflow_uid}, action {action_index}, attempt {attempt} skips {expected}")]
    EventGap {
        /// The run.
        workflow_uid: Uuid,
        /// The action.
        action_index: u32,
        /// The attempt.
        attempt: u32,
        /// The number that must come next.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// The workflow has as many events as are kept.
    #[error("workflow {workflow_uid} has {MAX_EVENTS_PER_WORKFLOW} events; no more are taken")]
    TooManyEvents {
        /// The run.
        workflow_uid: Uuid,
    },
    /// The database failed.
    #[error("the database failed")]
    Database(#[from] rusqlite::Error),
    /// The transaction was not committed, so nothing of it happened.
    #[error("the database did not commit")]
    Commit(#[source] Arc<rusqlite::Error>),
    /// What is stored does not parse.
    #[error("what is stored does not parse: {what}")]
    Corrupt {
        /// Which row.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The store was shut down.
    #[error("the store is shut down")]
    Closed,
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::NotFound { .. } => ErrorCode::NotFound,
            StoreError::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            StoreError::Conflict { .. } => ErrorCode::Conflict,
            StoreError::TooLarge { .. } | StoreError::EventGap { .. } => ErrorCode::InvalidDocument,
            StoreError::TooManyEvents { .. } => ErrorCode::LimitReached,
            StoreError::Database(_) | StoreError::Commit(_) | StoreError::Corrupt { .. } | StoreError::Closed => {
                ErrorCode::Internal
            }
        };
        Problem::new(code, error.to_string()).caused_by(&error)
    }
}

/// Compare-and-swap on one document, list and watch.
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// The document, if there is one.
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError>;
    /// Every document of a kind by name, and the revision of the whole store at which that was so.
    async fn list(&self, kind: Kind) -> Result<(Vec<Document>, u64), StoreError>;
    /// Stores a new document; gives it uid, generation 1, resourceVersion and creation time where they are missing.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`].
    async fn create(&self, document: Document) -> Result<Document, StoreError>;
    /// Replaces a document if `metadata.resourceVersion` is the one stored. The generation rises exactly if the spec
    /// changed; uid and creation time stay the stored ones. A document equal to the stored one is not written again.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`].
    async fn update(&self, document: Document) -> Result<Document, StoreError>;
    /// Deletes a document and answers what it was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn delete(&self, kind: Kind, name: &str) -> Result<Document, StoreError>;
    /// Changes after `from_revision`, of one kind or of all. The watch answers [`WatchError::Expired`] when changes it
    /// has not handed out are no longer kept; list again then.
    ///
    /// # Errors
    /// [`WatchError::Expired`] if that revision is already too old (or from the future: another store's).
    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError>;
}

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedEvent {
    /// Rises with every event of the log, from 1.
    pub position: u64,
    /// The event.
    #[serde(flatten)]
    pub record: EventRecord,
}

/// The log of what agents reported.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Appends a batch, all or nothing, durable when this returns; answers each one's position. An event with the
    /// (workflow, action, attempt, seq) of one that is there is not stored again and answers the position of the first.
    ///
    /// # Errors
    /// [`StoreError::EventGap`], [`StoreError::TooManyEvents`].
    async fn append(&self, batch: Vec<EventRecord>) -> Result<Vec<u64>, StoreError>;
    /// The events of one workflow with a position above `after`, in order, at most `limit`.
    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError>;
    /// Drops every event of a workflow; how many there were.
    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError>;
}

/// Small secrets by name, each with an end.
#[async_trait]
pub trait SecretStore: Send + Sync {
    /// Stores or replaces a secret.
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError>;
    /// The secret, unless it has expired at `now`.
    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError>;
    /// Takes the secret away and answers it, unless it has expired at `now`: of two callers one gets it.
    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError>;
    /// Drops everything that has expired at `now`; how many there were.
    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError>;
}

/// One of each.
#[derive(Clone)]
pub struct Store {
    documents: Arc<dyn DocumentStore>,
    events: Arc<dyn EventLog>,
    secrets: Arc<dyn SecretStore>,
}

impl Store {
    /// A store of three back ends.
    pub fn new(documents: Arc<dyn DocumentStore>, events: Arc<dyn EventLog>, secrets: Arc<dyn SecretStore>) -> Self {
        Self { documents, events, secrets }
    }

    /// Opens, or makes, the SQLite store in `data_dir`; it is this process's alone until dropped.
    ///
    /// # Errors
    /// [`OpenError`] naming the file: in use by another process, damaged, of a newer version, not readable.
    pub fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let store = Arc::new(SqliteStore::open(data_dir)?);
        Ok(Self::new(store.clone(), store.clone(), store))
    }

    /// A store in memory, for tests and simulation.
    pub fn memory() -> Self {
        let store = Arc::new(MemoryStore::default());
        Self::new(store.clone(), store.clone(), store)
    }

    /// The documents.
    pub fn documents(&self) -> &dyn DocumentStore {
        &*self.documents
    }

    /// The event log.
    pub fn events(&self) -> &dyn EventLog {
        &*self.events
    }

    /// The secrets.
    pub fn secrets(&self) -> &dyn SecretStore {
        &*self.secrets
    }

    /// The machine of that name.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn machine(&self, name: &str) -> Result<Option<Machine>, StoreError> {
        Ok(self.documents.get(Kind::Machine, name).await?.and_then(into_machine))
    }

    /// The template of that name.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn template(&self, name: &str) -> Result<Option<Template>, StoreError> {
        Ok(self.documents.get(Kind::Template, name).await?.and_then(|d| match d {
            Document::Template(t) => Some(*t),
            _ => None,
        }))
    }

    /// The workflow of that name.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn workflow(&self, name: &str) -> Result<Option<Workflow>, StoreError> {
        Ok(self.documents.get(Kind::Workflow, name).await?.and_then(into_workflow))
    }

    /// Every machine.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn machines(&self) -> Result<Vec<Machine>, StoreError> {
        Ok(self.documents.list(Kind::Machine).await?.0.into_iter().filter_map(into_machine).collect())
    }

    /// Every workflow.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn workflows(&self) -> Result<Vec<Workflow>, StoreError> {
        Ok(self.documents.list(Kind::Workflow).await?.0.into_iter().filter_map(into_workflow).collect())
    }
}

fn into_machine(document: Document) -> Option<Machine> {
    match document {
        Document::Machine(machine) => Some(*machine),
        _ => None,
    }
}

fn into_workflow(document: Document) -> Option<Workflow> {
    match document {
        Document::Workflow(workflow) => Some(*workflow),
        _ => None,
    }
}
