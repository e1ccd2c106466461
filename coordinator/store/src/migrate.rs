//! A whole store from SQLite into PostgreSQL, or back, while no coordinator has either.
//!
//! Row by row, as JSON, which both databases make of their rows and read again; secrets stay sealed, since both have one key. Then
//! every row is read from both and compared, before the copy counts.

use std::fs;
use std::path::{Path, PathBuf};

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::Value;
use tokio_postgres::Transaction;

use crate::audit::AuditLog;
use crate::error::StoreError;
use crate::open_error::OpenError;
use crate::postgres::{Alone, PostgresError, PostgresOptions};
use crate::seal::KEY_FILE;
use crate::sqlite::{DATABASE, SqliteStore, hold};

/// Bytes of rows that are written in one statement; the last row may add a document's.
const CHUNK_BYTES: usize = 1 << 20;
/// What the SQLite database is called once its content is in PostgreSQL.
pub const MIGRATED: &str = "landfall.db.migrated";
/// Where the SQLite database is made; below the data directory, and removed before and after.
const STAGING: &str = "migrating";

/// Why a store was not copied. Where it should have come from, nothing has changed, but for what [`MigrateError::Unmarked`] says.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The SQLite store cannot be opened.
    #[error(transparent)]
    Sqlite(#[from] OpenError),
    /// PostgreSQL refused something, or a coordinator has the database.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// SQLite refused something.
    #[error("SQLite: {0}")]
    Database(#[from] rusqlite::Error),
    /// The audit log cannot be brought to order.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be made, moved or removed.
    #[error("cannot {doing} {path}")]
    File { doing: &'static str, path: PathBuf, source: std::io::Error },
    /// There is nothing to copy.
    #[error("{path} is missing: there is nothing to copy")]
    Missing { path: PathBuf },
    /// It would be written over.
    #[error("{path} already exists; move it away first")]
    Exists { path: PathBuf },
    /// The PostgreSQL database is in use, or a copy was made before.
    #[error(
        "the PostgreSQL database already has {rows} rows in {table}; name an empty database, or, if a migrate-store was cut short after its \
            copy, move landfall.db away: a copy is there whole or not at all"
    )]
    NotEmpty { table: &'static str, rows: i64 },
    /// The copy is there, and it is not known whether the PostgreSQL database counts no more.
    #[error(
        "{path} has everything, but PostgreSQL did not confirm that its database is marked as moved; if a coordinator refuses that database \
            because it was moved, the copy counts; otherwise move {path} away and repeat migrate-store"
    )]
    Unmarked { path: PathBuf, source: Box<PostgresError> },
    /// A row was not copied as it was.
    #[error("row {row} of {table} differs after the copy; nothing was changed; report this as a defect of Landfall")]
    Differs { table: &'static str, row: u64 },
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error.into())
    }
}

/// How many rows of each table were copied and compared.
pub type Migrated = Vec<(&'static str, u64)>;

/// A table of both databases.
struct Table {
    name: &'static str,
    /// As they are called in PostgreSQL, in the order of the rows' key.
    columns: &'static [&'static str],
    /// In which rows are compared. Of SQLite, which compares bytes.
    order: &'static str,
}

const TABLES: &[Table] = &[
    Table { name: "documents", columns: &["kind", "name", "json", "schema"], order: "kind, name" },
    Table { name: "history", columns: &["revision", "kind", "name", "time", "json"], order: "revision" },
    Table {
        name: "events",
        columns: &["position", "workflow", "action_index", "attempt", "seq", "json"],
        order: "position",
    },
    Table { name: "secrets", columns: &["name", "value", "expires"], order: "name" },
    Table { name: "grants", columns: &["kind", "name", "json"], order: "kind, name" },
    Table { name: "audit", columns: &["position", "ring", "json"], order: "position" },
];

impl Table {
    /// Each row as JSON.
    fn select_sqlite(&self) -> String {
        let pairs: Vec<_> = self.columns.iter().map(|column| format!("'{column}', {}", read_sqlite(column))).collect();
        format!("SELECT json_object({}) FROM {} ORDER BY {}", pairs.join(", "), self.name, self.order)
    }

    fn select_postgres(&self) -> String {
        let columns = self.columns.join(", ");
        let order = self.order.replace("kind", "kind COLLATE \"C\"").replace("name", "name COLLATE \"C\"");
        format!("SELECT row_to_json(r)::text FROM (SELECT {columns} FROM {} ORDER BY {order}) r", self.name)
    }

    /// Rows, in an array of JSON, into the table.
    fn insert_sqlite(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|column| in_sqlite(column)).collect();
        let values: Vec<_> = self.columns.iter().map(|column| written_sqlite(column)).collect();
        let (sealed, one) = if self.name == "secrets" { (", sealed", ", 1") } else { ("", "") };
        let (names, values) = (names.join(", "), values.join(", "));
        format!("INSERT INTO {} ({names}{sealed}) SELECT {values}{one} FROM json_each(?1)", self.name)
    }

    fn insert_postgres(&self) -> String {
        let columns = self.columns.join(", ");
        let (intent, no) = if self.name == "audit" { (", is_intent", ", false") } else { ("", "") };
        format!(
            "INSERT INTO {name} ({columns}{intent}) OVERRIDING SYSTEM VALUE
             SELECT {columns}{no} FROM json_populate_recordset(NULL::{name}, $1::text::json)",
            name = self.name
        )
    }
}

/// The one column that is called otherwise there.
fn in_sqlite(column: &'static str) -> &'static str {
    if column == "ring" { "refusal" } else { column }
}

/// A value as PostgreSQL makes JSON of it.
fn read_sqlite(column: &'static str) -> String {
    if column == "value" { "'\\x' || lower(hex(value))".to_owned() } else { in_sqlite(column).to_owned() }
}

fn written_sqlite(column: &'static str) -> String {
    let value = format!("json_each.value ->> '{column}'");
    if column == "value" { format!("unhex(substr({value}, 3))") } else { value }
}

/// Copies the SQLite store in `data_dir` into an empty PostgreSQL database, and renames its file to [`MIGRATED`].
///
/// # Errors
/// [`MigrateError`].
pub async fn to_postgres(data_dir: &Path, options: PostgresOptions) -> Result<Migrated, MigrateError> {
    let (from, aside) = (data_dir.join(DATABASE), data_dir.join(MIGRATED));
    if !from.exists() {
        return Err(MigrateError::Missing { path: from });
    }
    if aside.exists() {
        return Err(MigrateError::Exists { path: aside });
    }
    // Brings it to this version's schema, as a start does; what was intended and not done is shown from then on.
    let store = SqliteStore::open(data_dir)?;
    AuditLog::reveal(&store, Timestamp::MAX).await?;
    drop(store);
    let _held = hold(data_dir)?;
    let sqlite = Connection::open(&from)?;
    // All of it in one file, which can be renamed.
    sqlite.pragma_update(None, "journal_mode", "DELETE")?;

    let mut alone = Alone::open(options, true).await?;
    let postgres = alone.transaction().await?;
    for table in TABLES {
        let rows: i64 = postgres.query_one(&format!("SELECT count(*) FROM {}", table.name), &[]).await?.get(0);
        if rows > 0 {
            return Err(MigrateError::NotEmpty { table: table.name, rows });
        }
    }
    for table in TABLES {
        let insert = postgres.prepare(&table.insert_postgres()).await?;
        let mut select = sqlite.prepare(&table.select_sqlite())?;
        let mut chunk = Chunk::default();
        for row in select.query_map([], |row| row.get::<_, String>(0))? {
            chunk.push(&row?);
            if chunk.is_full() {
                postgres.execute(&insert, &[&chunk.take()]).await?;
            }
        }
        postgres.execute(&insert, &[&chunk.take()]).await?;
    }
    let last = |table: &str| -> Result<i64, rusqlite::Error> {
        // Missing before its first row.
        let last = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0)";
        sqlite.query_row(last, [table], |row| row.get(0))
    };
    let revision: i64 = sqlite.query_row("SELECT value FROM meta WHERE key = 'revision'", [], |row| row.get(0))?;
    postgres.execute("UPDATE landfall SET revision = $1", &[&revision]).await?;
    postgres.execute("UPDATE audit_count SET newest = $1", &[&last("audit")?]).await?;
    let next = "SELECT setval(pg_get_serial_sequence('events', 'position'), $1::bigint + 1, false)";
    postgres.execute(next, &[&last("events")?]).await?;
    let runs = "INSERT INTO runs SELECT workflow, count(*), max(position) FROM events GROUP BY workflow";
    postgres.execute(runs, &[]).await?;
    let migrated = compare(&sqlite, &postgres).await?;
    postgres.commit().await?;
    drop(sqlite);
    let file = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| MigrateError::File { doing, path, source }
    };
    fs::rename(&from, &aside).map_err(file("rename", &from))?;
    fs::File::open(data_dir).and_then(|directory| directory.sync_all()).map_err(file("flush", data_dir))?;
    Ok(migrated)
}

/// Copies the PostgreSQL store into a SQLite one in `data_dir`, which has none. What is in PostgreSQL stays there, and no coordinator opens
/// it any more.
///
/// # Errors
/// [`MigrateError`].
pub async fn to_sqlite(data_dir: &Path, options: PostgresOptions) -> Result<Migrated, MigrateError> {
    let (staging, to) = (data_dir.join(STAGING), data_dir.join(DATABASE));
    if to.exists() {
        return Err(MigrateError::Exists { path: to });
    }
    let _held = hold(data_dir)?;
    // Whatever its server loses, the store leaves it.
    let mut alone = Alone::open(options.in_use(), false).await?;
    let file = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| MigrateError::File { doing, path, source }
    };
    if staging.exists() {
        fs::remove_dir_all(&staging).map_err(file("remove", &staging))?;
    }
    fs::create_dir(&staging).map_err(file("make", &staging))?;
    let key = data_dir.join(KEY_FILE);
    fs::copy(&key, staging.join(KEY_FILE)).map_err(file("copy", &key))?;
    drop(SqliteStore::open(&staging)?);
    let mut sqlite = Connection::open(staging.join(DATABASE))?;
    sqlite.pragma_update(None, "journal_mode", "DELETE")?;

    let postgres = alone.transaction().await?;
    let copied = sqlite.transaction()?;
    for table in TABLES {
        let mut insert = copied.prepare(&table.insert_sqlite())?;
        let mut rows = std::pin::pin!(rows_of(&postgres, table).await?);
        let mut chunk = Chunk::default();
        while let Some(row) = rows.next().await {
            chunk.push(&row?);
            if chunk.is_full() {
                insert.execute([chunk.take()])?;
            }
        }
        insert.execute([chunk.take()])?;
    }
    let number = async |of: &str| -> Result<i64, MigrateError> { Ok(postgres.query_one(of, &[]).await?.get(0)) };
    let revision = number("SELECT revision FROM landfall").await?;
    copied.execute("UPDATE meta SET value = ?1 WHERE key = 'revision'", [revision])?;
    for (table, last) in [
        ("audit", number("SELECT newest FROM audit_count").await?),
        ("events", number("SELECT last_value - (NOT is_called)::int FROM events_position_seq").await?),
    ] {
        copied.execute("DELETE FROM sqlite_sequence WHERE name = ?1", [table])?;
        copied.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", rusqlite::params![table, last])?;
    }
    let migrated = compare(&copied, &postgres).await?;
    copied.commit()?;
    drop(sqlite);
    let made = staging.join(DATABASE);
    fs::File::open(&made).and_then(|file| file.sync_all()).map_err(file("flush", &made))?;
    fs::rename(&made, &to).map_err(file("rename", &made))?;
    fs::File::open(data_dir).and_then(|directory| directory.sync_all()).map_err(file("flush", data_dir))?;
    let mark = async {
        postgres.execute("UPDATE turn SET moved = true", &[]).await?;
        postgres.commit().await
    };
    mark.await.map_err(|source| MigrateError::Unmarked { path: to.clone(), source: Box::new(source.into()) })?;
    fs::remove_dir_all(&staging).map_err(file("remove", &staging))?;
    Ok(migrated)
}

/// Rows for one statement, as they are written in an array of JSON.
#[derive(Default)]
struct Chunk(String);

impl Chunk {
    fn push(&mut self, row: &str) {
        self.0.push(if self.0.is_empty() { '[' } else { ',' });
        self.0.push_str(row);
    }

    fn is_full(&self) -> bool {
        self.0.len() >= CHUNK_BYTES
    }

    fn take(&mut self) -> String {
        let rows = std::mem::take(&mut self.0);
        if rows.is_empty() { "[]".to_owned() } else { rows + "]" }
    }
}

async fn rows_of<'t>(
    postgres: &'t Transaction<'_>, table: &Table,
) -> Result<impl Stream<Item = Result<String, tokio_postgres::Error>> + use<'t>, MigrateError> {
    let rows = postgres.query_raw(&table.select_postgres(), std::iter::empty::<i32>()).await?;
    Ok(rows.map(|row| row?.try_get(0)))
}

/// Reads every row of both.
async fn compare(sqlite: &Connection, postgres: &Transaction<'_>) -> Result<Migrated, MigrateError> {
    let mut compared = Vec::new();
    for table in TABLES {
        let mut select = sqlite.prepare(&table.select_sqlite())?;
        let mut here = select.query_map([], |row| row.get::<_, String>(0))?;
        let mut there = std::pin::pin!(rows_of(postgres, table).await?);
        let mut row = 0;
        loop {
            let (one, other) = (here.next().transpose()?, there.next().await.transpose()?);
            let (Some(one), Some(other)) = (&one, &other) else {
                match (one, other) {
                    (None, None) => break,
                    _ => return Err(MigrateError::Differs { table: table.name, row: row + 1 }),
                }
            };
            row += 1;
            let read = |text: &str| serde_json::from_str::<Value>(text).ok();
            if read(one).is_none() || read(one) != read(other) {
                return Err(MigrateError::Differs { table: table.name, row });
            }
        }
        compared.push((table.name, row));
    }
    Ok(compared)
}
