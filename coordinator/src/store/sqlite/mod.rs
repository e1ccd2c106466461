//! The SQLite back end: one file, one connection, one writer thread.
//!
//! The thread *is* the group commit: it drains whatever waits in the queue into one transaction, syncs once, and only
//! then answers everybody. Documents are read from memory, which holds exactly what was committed, so a reader never
//! waits for a disk.

mod open;
mod ops;
mod writer;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, Kind};
use uuid::Uuid;

pub use open::OpenError;

use super::{DocumentStore, EventLog, LoggedEvent, SecretStore, StoreError, Watch, WatchError, memory::Table};
use crate::workflow::EventRecord;
use writer::Writer;

/// The whole store in one SQLite file.
pub struct SqliteStore {
    table: Arc<Table>,
    writer: Writer,
}

impl SqliteStore {
    /// Opens, or makes, `landfall.db` in `data_dir`, and locks it against other processes until dropped.
    ///
    /// # Errors
    /// [`OpenError`] naming the file.
    pub fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let opened = open::open(data_dir)?;
        let table = Arc::new(Table::new(opened.documents, opened.revision));
        let writer = Writer::start(opened.connection, opened.lock, table.clone(), opened.revision)?;
        Ok(Self { table, writer })
    }
}

#[async_trait]
impl DocumentStore for SqliteStore {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.table.get(kind, name))
    }

    async fn list(&self, kind: Kind) -> Result<(Vec<Document>, u64), StoreError> {
        Ok(self.table.list(kind))
    }

    async fn create(&self, document: Document) -> Result<Document, StoreError> {
        self.writer.submit(move |batch| ops::create(batch, document)).await
    }

    async fn update(&self, document: Document) -> Result<Document, StoreError> {
        self.writer.submit(move |batch| ops::update(batch, document)).await
    }

    async fn delete(&self, kind: Kind, name: &str) -> Result<Document, StoreError> {
        let name = name.to_owned();
        self.writer.submit(move |batch| ops::delete(batch, kind, &name)).await
    }

    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.table.watch(kind, from_revision)
    }
}

#[async_trait]
impl EventLog for SqliteStore {
    async fn append(&self, events: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        self.writer.submit(move |batch| events.iter().map(|event| ops::append(batch, event)).collect()).await
    }

    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        self.writer.submit(move |batch| ops::events(batch, workflow_uid, after, limit)).await
    }

    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError> {
        self.writer.submit(move |batch| ops::forget(batch, workflow_uid)).await
    }
}

#[async_trait]
impl SecretStore for SqliteStore {
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.writer.submit(move |batch| ops::put_secret(batch, &name, &value, expires)).await
    }

    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name.to_owned();
        self.writer.submit(move |batch| ops::secret(batch, &name, now)).await
    }

    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name.to_owned();
        self.writer.submit(move |batch| ops::consume_secret(batch, &name, now)).await
    }

    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.writer.submit(move |batch| ops::purge_secrets(batch, now)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::machine;

    #[tokio::test]
    async fn what_was_answered_is_there_after_reopening_and_old_revisions_are_expired() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        let first = store.create(machine("m1")).await.unwrap();
        store.create(machine("m2")).await.unwrap();
        DocumentStore::delete(&store, Kind::Machine, "m2").await.unwrap();
        drop(store);

        let store = SqliteStore::open(dir.path()).unwrap();
        let (all, revision) = DocumentStore::list(&store, Kind::Machine).await.unwrap();
        assert_eq!((all, revision), (vec![first], 3));
        assert!(matches!(store.watch(None, 1), Err(WatchError::Expired { asked: 1, oldest: 3 })));
        assert!(store.watch(None, 3).is_ok());
    }

    #[test]
    fn a_second_opener_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let _first = SqliteStore::open(dir.path()).unwrap();
        let error = SqliteStore::open(dir.path()).err().unwrap();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    }

    #[test]
    fn a_newer_schema_and_a_damaged_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(SqliteStore::open(dir.path()).unwrap());
        let file = dir.path().join("landfall.db");
        let raw = rusqlite::Connection::open(&file).unwrap();
        raw.pragma_update(None, "user_version", 999).unwrap();
        drop(raw);
        assert!(matches!(SqliteStore::open(dir.path()).err().unwrap(), OpenError::Newer { found: 999, .. }));

        std::fs::write(&file, b"this is no database, whatever its name says".repeat(100)).unwrap();
        let error = SqliteStore::open(dir.path()).err().unwrap();
        assert!(error.to_string().contains("landfall.db"), "{error}");
    }

    #[tokio::test]
    async fn one_refused_write_leaves_its_neighbours_in_the_batch_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
        let writes = (0..200).map(|n| {
            let store = store.clone();
            // Every name twice: one of each pair must be refused, whichever batch they fall into.
            tokio::spawn(async move { store.create(machine(&format!("m{}", n / 2))).await })
        });
        let mut refused = 0;
        for write in writes.collect::<Vec<_>>() {
            refused += usize::from(write.await.unwrap().is_err());
        }
        assert_eq!(refused, 100);
        let (all, revision) = DocumentStore::list(&*store, Kind::Machine).await.unwrap();
        assert_eq!((all.len(), revision), (100, 100));
    }
}
