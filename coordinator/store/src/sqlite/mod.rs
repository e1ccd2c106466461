//! The SQLite back end: one file, one connection, one writer thread.
//!
//! The thread *is* the group commit: it drains whatever waits in the queue into one transaction, syncs once, and only
//! then answers all callers. Documents are read from memory, which holds exactly what was committed, so a reader never
//! waits for a disk.

mod access;
mod load;
mod open;
mod ops;
mod reader;
mod snapshot;
#[cfg(test)]
mod tests;
mod unwritten;
mod vacuum;
mod wal;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind};
use uuid::Uuid;

pub use open::{DATABASE, REPLACED, RESTORING, SCHEMA, examine, hold};

use super::journal::By;
use super::memory::Table;
use super::open_error::OpenError;
use super::rules::Asked;
use super::seal::Sealer;
use super::traits::left_out;
use super::{
    ChangeSet, Counts, DocumentStore, Ended, EventLog, INCARNATION, LoggedEvent, LoggedRun, Page, SecretStore, Sizes,
    StoreError, Unreadable, Upkeep, Watch, WatchError,
};
use landfall_api::message::EventRecord;
use reader::Reader;
use wal::Bounds;
use writer::{Batch, Writer};

/// Documents that were to be written later, in one transaction: a few milliseconds.
const WRITTEN_AT_ONCE: usize = 256;

/// The whole store in one SQLite file.
pub struct SqliteStore {
    table: Arc<Table>,
    // Closed before the writer, whose last act is to fold the log back.
    reader: Reader,
    writer: Writer,
    sealer: Arc<Sealer>,
    path: PathBuf,
    unreadable: Arc<Vec<Unreadable>>,
}

/// Copies the database of `data_dir`, which no other process may have open, to the new file `to`: what is in its
/// write-ahead log too, and whatever version wrote it.
///
/// # Errors
/// [`StoreError`] of the database or of `to`.
pub fn copy_database(data_dir: &Path, to: &Path) -> Result<(), StoreError> {
    let connection = rusqlite::Connection::open_with_flags(
        data_dir.join(DATABASE),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    snapshot::copy(&connection, to, || ())
}

impl SqliteStore {
    /// Opens, or makes, `landfall.db` in `data_dir`, and locks it against other processes until dropped.
    ///
    /// # Errors
    /// [`OpenError`] naming the file.
    pub fn open(data_dir: &Path) -> Result<Self, OpenError> {
        Self::open_within(data_dir, Bounds::default())
    }

    fn open_within(data_dir: &Path, bounds: Bounds) -> Result<Self, OpenError> {
        let open::Opened { connection, lock, loaded, revision, sealer } = open::open(data_dir)?;
        let table = Arc::new(Table::new(loaded.documents, revision));
        let path = data_dir.join(DATABASE);
        let reader = Reader::open(&path)?;
        let wal = wal::Wal::new(wal_of(&path), bounds);
        let last = |batch: &mut Batch<'_>| ops::write_older(batch, Instant::now(), usize::MAX).map(drop);
        let writer = Writer::start(connection, wal, lock, table.clone(), revision, last)?;
        Ok(Self { table, reader, writer, sealer: Arc::new(sealer), path, unreadable: Arc::new(loaded.unreadable) })
    }
}

fn wal_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn sizes(&self) -> Result<Sizes, StoreError> {
        let bytes = |path: PathBuf| match std::fs::metadata(&path) {
            Ok(file) => Ok(file.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(source) => Err(StoreError::File { path, source }),
        };
        Ok(Sizes { database: bytes(self.path.clone())?, wal: bytes(wal_of(&self.path))? })
    }

    async fn write_older(&self, age: Duration) -> Result<(), StoreError> {
        let Some(before) = Instant::now().checked_sub(age) else { return Ok(()) };
        loop {
            let written = self.writer.submit(move |batch| ops::write_older(batch, before, WRITTEN_AT_ONCE)).await?;
            if written < WRITTEN_AT_ONCE {
                return Ok(());
            }
        }
    }

    async fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        self.write_older(Duration::ZERO).await?;
        self.writer.snapshot(to.to_owned()).await
    }
}

#[async_trait]
impl DocumentStore for SqliteStore {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.table.get(kind, name))
    }

    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError> {
        Ok(self.table.page(kind, after, limit))
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.table.counts())
    }

    async fn write(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError> {
        let by = By::now();
        self.writer.submit(move |batch| ops::write_set(batch, set, &by)).await
    }

    fn writes_later(&self) -> bool {
        true
    }

    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError> {
        let (asked, by) = (Asked::Delete { kind, name: name.to_owned(), version }, By::now());
        self.writer.submit(move |batch| ops::change(batch, asked, by)).await
    }

    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        let name = name.to_owned();
        self.reader.read(move |connection| ops::history(connection, kind, &name, limit)).await
    }

    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError> {
        self.writer.submit(move |batch| ops::trim_history(batch, before, most)).await
    }

    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.table.watch(kind, from_revision)
    }

    async fn ended(&self) -> Ended {
        self.writer.ended().await;
        Ended::Failed
    }

    fn unreadable(&self) -> Arc<Vec<Unreadable>> {
        self.unreadable.clone()
    }
}

#[async_trait]
impl EventLog for SqliteStore {
    async fn append(&self, _epoch: u64, events: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        self.writer.submit(move |batch| ops::append(batch, &events)).await
    }

    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        self.reader.read(move |connection| ops::events(connection, workflow_uid, after, limit)).await
    }

    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError> {
        self.writer.submit(move |batch| ops::forget(batch, workflow_uid)).await
    }

    async fn runs(&self) -> Result<Vec<LoggedRun>, StoreError> {
        self.reader.read(ops::runs).await
    }
}

#[async_trait]
impl SecretStore for SqliteStore {
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
        let (sealed, name) = (self.sealer.seal(name, value)?, name.to_owned());
        self.writer.submit(move |batch| ops::put_secret(batch, &name, &sealed, expires)).await
    }

    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let owned = name.to_owned();
        let sealed = self.reader.read(move |connection| ops::secret(connection, &owned, now)).await?;
        self.sealer.unseal_found(name, sealed)
    }

    async fn swap(
        &self, name: &str, old: Option<&[u8]>, value: &[u8], expires: Timestamp, now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (sealed, sealer) = (self.sealer.seal(name, value)?, self.sealer.clone());
        let (name, old) = (name.to_owned(), old.map(<[u8]>::to_vec));
        self.writer
            .submit(move |batch| {
                let there = sealer.unseal_found(&name, ops::secret(&batch.transaction, &name, now)?)?;
                if there == old {
                    ops::put_secret(batch, &name, &sealed, expires)?;
                }
                Ok(there == old)
            })
            .await
    }

    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let owned = name.to_owned();
        let sealed = self.writer.submit(move |batch| ops::consume_secret(batch, &owned, now)).await?;
        self.sealer.unseal_found(name, sealed)
    }

    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.writer.submit(move |batch| ops::purge_secrets(batch, now)).await
    }

    async fn begin_incarnation(&self, incarnation: &[u8]) -> Result<(), StoreError> {
        let sealed = self.sealer.seal(INCARNATION, incarnation)?;
        self.writer
            .submit(move |batch| {
                ops::leave_out(batch, left_out())?;
                ops::put_secret(batch, INCARNATION, &sealed, Timestamp::MAX)
            })
            .await
    }
}
