//! One of each back end, and what is most often asked of them.

use std::{path::Path, sync::Arc};

use landfall_api::{Document, Kind, Machine, Shared, Template, Workflow};

use crate::access::{Access, GrantStore, MemoryGrants};
use crate::audit::{Audit, AuditLog, MemoryAudit};
use crate::error::StoreError;
use crate::memory::MemoryStore;
use crate::open_error::OpenError;
use crate::postgres::{Alone, PostgresError, PostgresOptions, PostgresStore};
use crate::sqlite::SqliteStore;
use crate::traits::{DocumentStore, EventLog, SecretStore, Unreadable, Upkeep};

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

    /// Opens the PostgreSQL store, beside other coordinators; a database without tables gets them.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub async fn open_postgres(options: PostgresOptions) -> Result<Self, PostgresError> {
        Ok(Self::of_postgres(PostgresStore::open(options).await?))
    }

    /// The same of a database that has tables, if no coordinator is at work. A coordinator that comes now finds it without that secret.
    ///
    /// # Errors
    /// As [`PostgresStore::open`]; [`PostgresError::InUse`], [`PostgresError::Empty`].
    pub async fn open_unused_postgres(options: PostgresOptions, without: &str) -> Result<Self, PostgresError> {
        Alone::open(options.clone(), false).await?.leave_without(without).await?;
        Self::open_postgres(options).await
    }

    pub(crate) fn of_postgres(store: PostgresStore) -> Self {
        let store = Arc::new(store);
        Self::new(store.clone(), store.clone(), store.clone()).with_access(store.clone(), store)
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

    /// The stored documents that this version cannot read.
    pub fn unreadable(&self) -> Arc<Vec<Unreadable>> {
        self.documents.unreadable()
    }

    /// Whether that document is stored and cannot be read: what seems to belong to nothing may belong to it.
    pub fn is_unreadable(&self, kind: Kind, name: &str) -> bool {
        self.unreadable().iter().any(|document| document.kind == kind.as_str() && document.name == name)
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
    pub async fn machine(&self, name: &str) -> Result<Option<Shared<Machine>>, StoreError> {
        Ok(self.documents.get(Kind::Machine, name).await?.and_then(into_machine))
    }

    /// The template of that name.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn template(&self, name: &str) -> Result<Option<Shared<Template>>, StoreError> {
        Ok(self.documents.get(Kind::Template, name).await?.and_then(|document| match document {
            Document::Template(template) => Some(template),
            _ => None,
        }))
    }

    /// The workflow of that name.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn workflow(&self, name: &str) -> Result<Option<Shared<Workflow>>, StoreError> {
        Ok(self.documents.get(Kind::Workflow, name).await?.and_then(into_workflow))
    }

    /// Every machine.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn machines(&self) -> Result<Vec<Shared<Machine>>, StoreError> {
        Ok(self.documents.list(Kind::Machine).await?.0.into_iter().filter_map(into_machine).collect())
    }

    /// Every workflow.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn workflows(&self) -> Result<Vec<Shared<Workflow>>, StoreError> {
        Ok(self.documents.list(Kind::Workflow).await?.0.into_iter().filter_map(into_workflow).collect())
    }
}

fn into_machine(document: Document) -> Option<Shared<Machine>> {
    match document {
        Document::Machine(machine) => Some(machine),
        _ => None,
    }
}

fn into_workflow(document: Document) -> Option<Shared<Workflow>> {
    match document {
        Document::Workflow(workflow) => Some(workflow),
        _ => None,
    }
}
