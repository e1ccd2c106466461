//! Opening the file: the lock, the pragmas, the integrity check, the migrations.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use landfall_api::Document;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::Connection;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{path} is in use by another process; stop that coordinator first, or give this one a data_dir of its own")]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// A file or directory cannot be made or read.
    #[error("cannot open {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("cannot open the database {path}")]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// SQLite found damage.
    #[error("the database {path} is damaged: {report}; restore it from a backup, nothing was changed")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's first finding.
        report: String,
    },
    /// A newer coordinator wrote it.
    #[error("the database {path} has schema {found}, this coordinator knows up to {known}; start the newer one")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: usize,
        /// The newest known here.
        known: usize,
    },
    /// A document in it does not parse.
    #[error("the database {path} holds {what}, which does not parse: {why}")]
    Document {
        /// The file.
        path: PathBuf,
        /// Kind and name.
        what: String,
        /// What the parser said.
        why: String,
    },
}

pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) lock: Flock<File>,
    pub(super) documents: Vec<Document>,
    pub(super) revision: u64,
}

/// Each takes the schema from its index to the next. Never edit one that was released: append.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('revision', 0);
    CREATE TABLE documents (kind TEXT NOT NULL, name TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (kind, name));
    CREATE TABLE events (
        position INTEGER PRIMARY KEY AUTOINCREMENT, workflow TEXT NOT NULL, action_index INTEGER NOT NULL,
        attempt INTEGER NOT NULL, seq INTEGER NOT NULL, json TEXT NOT NULL,
        UNIQUE (workflow, action_index, attempt, seq));
    CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
"];

pub(super) fn open(data_dir: &Path) -> Result<Opened, OpenError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(io(data_dir))?;
    let lock_path = data_dir.join("lock");
    let private = |path: &Path| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(io(path))
    };
    let lock = Flock::lock(private(&lock_path)?, FlockArg::LockExclusiveNonblock)
        .map_err(|_| OpenError::InUse { path: lock_path })?;
    let path = data_dir.join("landfall.db");
    // Made here, so that SQLite never makes it (and the WAL beside it, which copies the mode) readable to others.
    drop(private(&path)?);
    let database = |source| OpenError::Database { path: path.clone(), source };
    let mut connection = Connection::open(&path).map_err(database)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(database)?;
    for (pragma, value) in [("journal_mode", "WAL"), ("synchronous", "FULL"), ("foreign_keys", "ON")] {
        connection.pragma_update(None, pragma, value).map_err(database)?;
    }
    // The WAL is folded back every 1000 pages, and its file cut to 16 MiB after a burst.
    connection.pragma_update(None, "wal_autocheckpoint", 1000).map_err(database)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20).map_err(database)?;
    let report: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(database)?;
    if report != "ok" {
        return Err(OpenError::Damaged { path, report });
    }
    let found: usize = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(database)?;
    if found > MIGRATIONS.len() {
        return Err(OpenError::Newer { path, found, known: MIGRATIONS.len() });
    }
    for (version, migration) in MIGRATIONS.iter().enumerate().skip(found) {
        let transaction = connection.transaction().map_err(database)?;
        transaction.execute_batch(migration).map_err(database)?;
        transaction.pragma_update(None, "user_version", version + 1).map_err(database)?;
        transaction.commit().map_err(database)?;
    }
    let revision = connection
        .query_row("SELECT value FROM meta WHERE key = 'revision'", [], |row| row.get(0))
        .map_err(database)?;
    let documents = documents(&connection, &path)?;
    Ok(Opened { connection, lock, documents, revision })
}

fn documents(connection: &Connection, path: &Path) -> Result<Vec<Document>, OpenError> {
    let database = |source| OpenError::Database { path: path.to_owned(), source };
    let mut select = connection.prepare("SELECT kind, name, json FROM documents").map_err(database)?;
    let rows = select
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)))
        .map_err(database)?;
    let mut documents = Vec::new();
    for row in rows {
        let (kind, name, json) = row.map_err(database)?;
        let bad = |why: String| OpenError::Document { path: path.to_owned(), what: format!("{kind} {name}"), why };
        let value = serde_json::from_str(&json).map_err(|e| bad(e.to_string()))?;
        documents.push(Document::from_value(value).map_err(|p| bad(p.to_string()))?);
    }
    Ok(documents)
}
