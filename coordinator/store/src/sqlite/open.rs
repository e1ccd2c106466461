//! Opening the file: the lock, the pragmas, the integrity check, the migrations.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction};

use super::{load, wal};
use crate::open_error::OpenError;
use crate::seal::Sealer;
use crate::stored::Loaded;
use crate::{error::StoreError, traits::Unreadable};

/// The database's file in the data directory.
pub const DATABASE: &str = "landfall.db";

pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) lock: Flock<File>,
    pub(super) loaded: Loaded,
    pub(super) revision: u64,
    pub(super) sealer: Sealer,
}

/// Each takes the schema from its index to the next. Never edit one that was released: append.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('revision', 0);
    CREATE TABLE documents (kind TEXT NOT NULL, name TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (kind, name));
    CREATE TABLE events (
        position INTEGER PRIMARY KEY AUTOINCREMENT, workflow TEXT NOT NULL, action_index INTEGER NOT NULL,
        attempt INTEGER NOT NULL, seq INTEGER NOT NULL, json TEXT NOT NULL,
        UNIQUE (workflow, action_index, attempt, seq));
    CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
",
    super::access::SCHEMA,
    "
    CREATE TABLE history (
        revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, time INTEGER NOT NULL, json TEXT NOT NULL);
    CREATE INDEX history_of ON history (kind, name, revision);
    CREATE INDEX history_by_time ON history (time);
    ALTER TABLE secrets ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE sealing (id INTEGER PRIMARY KEY CHECK (id = 1), proof BLOB NOT NULL);
",
    "ALTER TABLE documents ADD COLUMN schema INTEGER NOT NULL DEFAULT 1;",
];

/// The schema that this version writes; it reads every older one.
pub const SCHEMA: usize = MIGRATIONS.len();

/// Takes the data directory for this process until dropped.
///
/// # Errors
/// [`OpenError::InUse`], or the lock's file cannot be made.
pub fn hold(data_dir: &Path) -> Result<Flock<File>, OpenError> {
    let path = data_dir.join("lock");
    let file = private(&path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| OpenError::InUse { path })
}

fn private(path: &Path) -> Result<File, OpenError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| OpenError::of_path(path, source))
}

/// What a restore has beside a data directory while it works: the new data, then also the old.
pub const RESTORING: &str = "restoring-";
/// See [`RESTORING`].
pub const REPLACED: &str = "replaced-";

/// Refuses to create a new store between a restore's two renames: it would come with a new CA, which no machine knows,
/// and the old data would be forgotten.
fn refuse_half_restored(data_dir: &Path) -> Result<(), OpenError> {
    let (Some(parent), Some(name)) = (data_dir.parent(), data_dir.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    if data_dir.join(DATABASE).exists() {
        return Ok(());
    }
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    // Where there is no directory to look into, there is nothing in it.
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let left = entry.file_name();
        let suffix = left.to_str().and_then(|left| left.strip_prefix(name)).and_then(|rest| rest.strip_prefix('.'));
        if suffix.is_some_and(|suffix| suffix.starts_with(RESTORING) || suffix.starts_with(REPLACED)) {
            return Err(OpenError::HalfRestored { path: data_dir.to_owned(), found: entry.path() });
        }
    }
    Ok(())
}

pub(super) fn open(data_dir: &Path) -> Result<Opened, OpenError> {
    refuse_half_restored(data_dir)?;
    let directory = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    directory.map_err(|source| OpenError::of_path(data_dir, source))?;
    let lock = hold(data_dir)?;
    let path = data_dir.join(DATABASE);
    // Made here, so that SQLite never makes it (and the WAL beside it, which copies the mode) readable to others.
    drop(private(&path)?);
    let database = |source| OpenError::of_database(&path, source);
    let mut connection = Connection::open(&path).map_err(database)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(database)?;
    // First: a file that has a page already takes it only when it is rebuilt.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(database)?;
    for (pragma, value) in
        [("journal_mode", "WAL"), ("synchronous", "FULL"), ("foreign_keys", "ON"), ("temp_store", "MEMORY")]
    {
        connection.pragma_update(None, pragma, value).map_err(database)?;
    }
    // The WAL is folded back every 4096 pages (16 MiB), and its file cut to 64 MiB after a burst; `wal` has the rest of its
    // bound. Each fold writes a page once, however often the events before it changed that page.
    connection.pragma_update(None, "wal_autocheckpoint", 4096).map_err(database)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20).map_err(database)?;
    // KiB; SQLite's own default is 2 MiB, less than the rows of a thousand workflows.
    connection.pragma_update(None, "cache_size", -(8 << 10)).map_err(database)?;
    // Every statement of `ops` and `access` keeps its compiled form: also when a parameter has another value, for which SQLite
    // would otherwise plan it again (a fifth of what an event cost).
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(database)?;
    // Every page, but not every index against its table, which takes many times as long: `examine` does that.
    sound(&connection, &path, "quick_check(1)")?;
    let found = schema(&connection, &path)?;
    for (version, migration) in MIGRATIONS.iter().enumerate().skip(found) {
        let transaction = connection.transaction().map_err(database)?;
        transaction.execute_batch(migration).map_err(database)?;
        transaction.pragma_update(None, "user_version", version + 1).map_err(database)?;
        transaction.commit().map_err(database)?;
    }
    let proof = connection.query_row("SELECT proof FROM sealing", [], |row| row.get(0)).optional().map_err(database)?;
    let (sealer, new_proof) = Sealer::open(data_dir, proof)?;
    if let Some(proof) = new_proof {
        connection.execute("INSERT INTO sealing (id, proof) VALUES (1, ?1)", [proof]).map_err(database)?;
    }
    seal(&mut connection, &sealer, &path)?;
    let revision = connection
        .query_row("SELECT value FROM meta WHERE key = 'revision'", [], |row| row.get(0))
        .map_err(database)?;
    let loaded = load::documents(&connection, &path)?;
    for document in &loaded.unreadable {
        tracing::error!(%document, "a stored document cannot be read; it stays in the store, and nothing takes its place");
    }
    Ok(Opened { connection, lock, loaded, revision, sealer })
}

fn sound(connection: &Connection, path: &Path, check: &str) -> Result<(), OpenError> {
    let report: String = connection
        .query_row(&format!("PRAGMA {check}"), [], |row| row.get(0))
        .map_err(|source| OpenError::of_database(path, source))?;
    if report == "ok" { Ok(()) } else { Err(OpenError::Damaged { path: path.to_owned(), report }) }
}

fn schema(connection: &Connection, path: &Path) -> Result<usize, OpenError> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    match found.map_err(|source| OpenError::of_database(path, source))? {
        found if found > SCHEMA => Err(OpenError::Newer { path: path.to_owned(), found, known: SCHEMA }),
        found => Ok(found),
    }
}

/// Looks through the whole database of `data_dir`, beside a coordinator that runs or without one, and changes nothing.
/// Answers the documents in it that this version cannot read; none of a database that the next start will migrate.
///
/// # Errors
/// [`OpenError`]: damaged, of a newer version, or not to be read.
pub fn examine(data_dir: &Path) -> Result<Vec<Unreadable>, OpenError> {
    let path = data_dir.join(DATABASE);
    let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|source| OpenError::of_database(&path, source))?;
    sound(&connection, &path, "integrity_check(1)")?;
    if schema(&connection, &path)? < SCHEMA {
        return Ok(Vec::new());
    }
    Ok(load::documents(&connection, &path)?.unreadable)
}

/// A former version's plain secrets become sealed ones, and their bytes leave the file and its log.
fn seal(connection: &mut Connection, sealer: &Sealer, path: &Path) -> Result<(), OpenError> {
    let database = |source| OpenError::of_database(path, source);
    let plain: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM secrets WHERE sealed = 0)", [], |row| row.get(0))
        .map_err(database)?;
    if !plain {
        return Ok(());
    }
    connection.pragma_update(None, "secure_delete", "ON").map_err(database)?;
    let transaction = connection.transaction().map_err(database)?;
    let sealed = seal_plain_rows(sealer, &transaction).map_err(|error| match error {
        StoreError::Database(source) => OpenError::of_database(path, source),
        other => OpenError::Seal { path: path.to_owned(), why: other.to_string() },
    })?;
    transaction.commit().map_err(database)?;
    wal::fold(connection).map_err(database)?;
    tracing::info!(sealed, "secrets that an earlier version stored unencrypted are now encrypted");
    Ok(())
}

/// Seals what a former version kept in plain, all or nothing.
fn seal_plain_rows(sealer: &Sealer, transaction: &Transaction<'_>) -> Result<usize, StoreError> {
    let mut select = transaction.prepare("SELECT name, value FROM secrets WHERE sealed = 0")?;
    let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    let plain = rows.collect::<Result<Vec<_>, _>>()?;
    for (name, value) in &plain {
        let sealed = sealer.seal(name, value)?;
        transaction
            .execute("UPDATE secrets SET value = ?2, sealed = 1 WHERE name = ?1", rusqlite::params![name, sealed])?;
    }
    Ok(plain.len())
}
