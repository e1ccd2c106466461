//! Where documents, events and secrets are kept: three narrow traits, and a facade that holds one of each.
//!
//! No transaction spans two of the traits; whoever needs more replays the event log. That keeps the door open for
//! back ends that offer one-object compare-and-swap and nothing else. `conformance` says what every back end owes.

pub mod actor;
#[cfg(test)]
mod conformance;
mod error;
mod history;
mod journal;
mod memory;
mod rules;
mod sqlite;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind, Machine, Template, Workflow};
use uuid::Uuid;

pub use error::StoreError;
pub use history::{Change, ChangeOp, Watch, WatchError};
pub use journal::{HISTORY_AGE, HISTORY_PER_DOCUMENT, HISTORY_TOTAL};
pub use memory::MemoryStore;
pub use sqlite::{DATABASE, KEY_FILE, OpenError, REPLACED, RESTORING, SCHEMA, SqliteStore, copy_database, hold};

use crate::{
    access::{Access, GrantStore, MemoryGrants},
    audit::{Audit, AuditLog, MemoryAudit},
    workflow::EventRecord,
};

/// At most this many events are kept for one workflow; an agent that reports more is refused. A run of ten actions
/// with a hundred attempts each stays below it.
pub const MAX_EVENTS_PER_WORKFLOW: u64 = 10_000;

/// A document as stored, larger than this many bytes of JSON, is refused: other back ends hold 1.5 MiB an object.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// Compare-and-swap on one document, list, watch, and what was changed by whom.
///
/// Who changes something is not an argument but [`actor`]'s context: most writes are the engine's own.
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// The document, if there is one. Shared: most who look change nothing, and a fleet's documents are looked at often.
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Arc<Document>>, StoreError>;
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
    /// A document whose deletion was asked for keeps its `deletionTimestamp` and takes no new finalizers; the write that
    /// removes its last one removes the document, and answers what it was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`].
    async fn update(&self, document: Document) -> Result<Document, StoreError>;
    /// Deletes a document and answers what it was. One with finalizers is only marked: it has a `deletionTimestamp` from
    /// then on, and goes with its last finalizer; asked for again, nothing more happens.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn delete(&self, kind: Kind, name: &str) -> Result<Document, StoreError>;
    /// The newest `limit` changes of what people decide about a document (see `journal`), oldest first; also of one that
    /// is gone. Kept within [`HISTORY_PER_DOCUMENT`].
    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError>;
    /// Drops changes older than `before`, and the oldest beyond `most` of all documents together; how many there were.
    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError>;
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
    /// Every workflow that has events, the one whose newest event is oldest first.
    async fn runs(&self) -> Result<Vec<LoggedRun>, StoreError>;
}

/// How much the log holds of one workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedRun {
    /// The run.
    pub workflow_uid: Uuid,
    /// Its events.
    pub events: u64,
    /// The position of its newest event.
    pub newest: u64,
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

/// What only a store on this host's own disk has: a size, and a copy of itself.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// How much disk it takes.
    async fn sizes(&self) -> Result<Sizes, StoreError>;
    /// Writes a consistent copy, durable when this returns, to `to`, which must not be there. Writers go on meanwhile.
    async fn snapshot(&self, to: &Path) -> Result<(), StoreError>;
}

/// How much disk a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The database, bytes.
    pub database: u64,
    /// The write-ahead log beside it, bytes.
    pub wal: u64,
}

/// One of each.
#[derive(Clone)]
pub struct Store {
    documents: Arc<dyn DocumentStore>,
    events: Arc<dyn EventLog>,
    secrets: Arc<dyn SecretStore>,
    upkeep: Option<Arc<dyn Upkeep>>,
    audit: Audit,
    access: Access,
}

impl Store {
    /// A store of three back ends; audit log and grants are in memory until [`Store::with_access`] says otherwise.
    pub fn new(documents: Arc<dyn DocumentStore>, events: Arc<dyn EventLog>, secrets: Arc<dyn SecretStore>) -> Self {
        let (audit, access) = (Arc::new(MemoryAudit::default()), Arc::new(MemoryGrants::default()));
        Self { documents, events, secrets, audit: Audit::new(audit), access: Access::new(access), upkeep: None }
    }

    /// The same, with the audit log and the grants in these back ends.
    #[must_use]
    pub fn with_access(mut self, audit: Arc<dyn AuditLog>, grants: Arc<dyn GrantStore>) -> Self {
        (self.audit, self.access) = (Audit::new(audit), Access::new(grants));
        self
    }

    /// Opens, or makes, the SQLite store in `data_dir`; it is this process's alone until dropped.
    ///
    /// # Errors
    /// [`OpenError`] naming the file: in use by another process, damaged, of a newer version, not writable, or without
    /// the key of its secrets.
    pub fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let store = Arc::new(SqliteStore::open(data_dir)?);
        let opened = Self::new(store.clone(), store.clone(), store.clone()).with_access(store.clone(), store.clone());
        Ok(Self { upkeep: Some(store), ..opened })
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

    /// What a store on this host's own disk has besides; `None` for the others.
    pub fn upkeep(&self) -> Option<&dyn Upkeep> {
        self.upkeep.as_deref()
    }

    /// The audit log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Bearer tokens, and operators whose certificates were withdrawn.
    pub fn access(&self) -> &Access {
        &self.access
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
        Ok(self.documents.get(Kind::Template, name).await?.and_then(|d| match Arc::unwrap_or_clone(d) {
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
        let listed = self.documents.list(Kind::Machine).await?.0.into_iter();
        Ok(listed
            .filter_map(|document| match document {
                Document::Machine(machine) => Some(*machine),
                _ => None,
            })
            .collect())
    }

    /// Every workflow.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn workflows(&self) -> Result<Vec<Workflow>, StoreError> {
        let listed = self.documents.list(Kind::Workflow).await?.0.into_iter();
        Ok(listed
            .filter_map(|document| match document {
                Document::Workflow(workflow) => Some(*workflow),
                _ => None,
            })
            .collect())
    }
}

fn into_machine(document: Arc<Document>) -> Option<Machine> {
    match Arc::unwrap_or_clone(document) {
        Document::Machine(machine) => Some(*machine),
        _ => None,
    }
}

fn into_workflow(document: Arc<Document>) -> Option<Workflow> {
    match Arc::unwrap_or_clone(document) {
        Document::Workflow(workflow) => Some(*workflow),
        _ => None,
    }
}
