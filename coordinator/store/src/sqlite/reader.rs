//! A connection of its own for what is read from the disk: history, events, audit log. A long read delays no write, and
//! sees whatever was acknowledged before it began.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;
use crate::open_error::OpenError;

/// Reads one after another, off the async threads.
pub(super) struct Reader(Arc<Mutex<Connection>>);

impl Reader {
    /// Beside the writer's connection, which must be open.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let database = |source| OpenError::of_database(path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(database)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(database)?;
        connection.pragma_update(None, "query_only", "ON").map_err(database)?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    pub(super) async fn read<T: Send + 'static>(
        &self, operation: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = self.0.clone();
        // A read that panicked left nothing half done.
        let read = move || operation(&connection.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(read).await.map_err(|_| StoreError::Closed)?
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::Kind;

    use super::super::SqliteStore;
    use crate::access::{GrantKind, GrantStore};
    use crate::audit::AuditLog;
    use crate::conformance::{event, machine};
    use crate::traits::{DocumentStore, EventLog, SecretStore};

    #[tokio::test]
    async fn reads_from_the_disk_do_not_wait_for_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        store.create(machine("m1")).await.unwrap();
        let run = uuid::Uuid::new_v4();
        EventLog::append(&store, 1, vec![event(run, 1, 1)]).await.unwrap();
        SecretStore::put(&store, "a", b"b", jiff::Timestamp::MAX).await.unwrap();
        let (go, wait) = std::sync::mpsc::channel();
        let (begins, began) = tokio::sync::oneshot::channel();
        let held = store.writer.submit(move |_| {
            begins.send(()).unwrap();
            wait.recv().unwrap();
            Ok(())
        });
        let reads = async {
            began.await.unwrap();
            assert_eq!(store.history(Kind::Machine, "m1", 9).await.unwrap().len(), 1);
            assert_eq!(EventLog::list(&store, run, 0, 9).await.unwrap().len(), 1);
            assert_eq!(store.runs().await.unwrap().len(), 1);
            assert!(AuditLog::list(&store, 0, 9).await.unwrap().is_empty());
            assert!(store.all(GrantKind::Token).await.unwrap().is_empty());
            let secret = SecretStore::get(&store, "a", jiff::Timestamp::UNIX_EPOCH).await.unwrap();
            assert_eq!(secret.as_deref(), Some(&b"b"[..]));
            go.send(()).unwrap();
        };
        let limit = std::time::Duration::from_secs(60);
        let both = async { tokio::join!(held, reads).0.unwrap() };
        tokio::time::timeout(limit, both).await.expect("a read waits for the writer");
    }
}
