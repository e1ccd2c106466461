//! The write-ahead log's bound.
//!
//! SQLite folds the log back every 4096 pages, but it can begin again only at an instant without readers: a program
//! that reads continuously (a forgotten `sqlite3` shell, a backup tool) would let it grow until the disk is full. So
//! beyond a size the writer asks for that instant, and beyond a larger one it takes no writes until it gets it.

use std::{path::PathBuf, time::Duration};

use rusqlite::Connection;

use crate::error::StoreError;

/// When the log is folded back and cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// From this size on the writer waits for readers to let go of it, bytes.
    pub(super) soft: u64,
    /// From this size on nothing is written, bytes.
    pub(super) hard: u64,
}

impl Default for Bounds {
    /// Four times what SQLite keeps it at by itself; and what a data directory can be expected to spare.
    fn default() -> Self {
        Self { soft: 64 << 20, hard: 512 << 20 }
    }
}

/// So long a fold waits for readers: they see the newest state in one read, or they are not of the quick kind.
const PATIENCE: Duration = Duration::from_millis(250);

/// The log beside a database.
pub(super) struct Wal {
    path: PathBuf,
    bounds: Bounds,
    /// At this size the next fold is tried.
    next: u64,
}

impl Wal {
    pub(super) fn new(path: PathBuf, bounds: Bounds) -> Self {
        Self { path, bounds, next: bounds.soft }
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// After a commit.
    pub(super) fn keep_bounded(&mut self, connection: &Connection) {
        let bytes = self.bytes();
        if bytes < self.next {
            return;
        }
        match fold(connection) {
            Ok(true) => self.next = self.bounds.soft,
            Ok(false) => {
                tracing::warn!(bytes, path = %self.path.display(), "another program reads the database; its log grows meanwhile");
                self.next = bytes + self.bounds.soft;
            }
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "the write-ahead log was not checkpointed");
                self.next = bytes + self.bounds.soft;
            }
        }
    }

    /// Before a transaction.
    pub(super) fn admit(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let bytes = self.bytes();
        if bytes < self.bounds.hard || fold(connection)? {
            return Ok(());
        }
        Err(StoreError::WalFull { path: self.path.clone(), bytes })
    }
}

/// Folds the log back and cuts it; whether it could be done whole.
pub(super) fn fold(connection: &Connection) -> Result<bool, rusqlite::Error> {
    connection.busy_timeout(PATIENCE)?;
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(busy == 0)
}
