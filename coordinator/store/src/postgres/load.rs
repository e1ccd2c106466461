//! What the database has, taken into memory: everything at the start, and then the changes of other coordinators.

use tokio_postgres::{Client, IsolationLevel, Row};

use super::error::PostgresError;
use super::session::Session;
use crate::memory::Table;
use crate::stored::{self, DOCUMENT_SCHEMA, Loaded};
use crate::{Change, ChangeOp};

/// Documents in one answer of the server: some MB.
const PAGE: i64 = 1000;

/// Every document, and the revision at which that was so.
pub(super) async fn documents(client: &mut Client) -> Result<(Loaded, u64), PostgresError> {
    let reading = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let transaction = reading.start().await?;
    let revision = number(transaction.query_one("SELECT revision FROM landfall", &[]).await?.get(0));
    let select = transaction
        .prepare(
            "SELECT kind, name, json, schema FROM documents WHERE (kind, name) > ($1, $2) ORDER BY kind, name LIMIT $3",
        )
        .await?;
    let mut loaded = Loaded::default();
    let mut after = (String::new(), String::new());
    loop {
        let rows = transaction.query(&select, &[&after.0, &after.1, &PAGE]).await?;
        for row in &rows {
            after = (row.get(0), row.get(1));
            refuse_newer(&after, row.get(3))?;
            loaded.take(after.0.clone(), after.1.clone(), Ok(row.get(2)));
        }
        if (rows.len() as i64) < PAGE {
            break;
        }
    }
    for document in &loaded.unreadable {
        tracing::error!(%document, "a stored document cannot be read; it stays in the store, and nothing takes its place");
    }
    Ok((loaded, revision))
}

/// Takes in what other coordinators have changed. Whether that could be done: if not, some of it is no longer kept or not to be
/// read, and everything is to be loaded.
pub(super) async fn catch_up(session: &Session, table: &Table) -> Result<bool, PostgresError> {
    loop {
        let seen = table.revision();
        let rows = session.client.query(&session.statements.changes, &[&as_stored(seen), &PAGE]).await?;
        let Some(newest) = rows.first().map(|row| number(row.get(0))) else { return Err(PostgresError::Another) };
        if newest < seen {
            return Err(PostgresError::WentBack { found: newest, seen });
        }
        if newest == seen {
            return Ok(true);
        }
        for row in &rows {
            match change(row)? {
                Some(change) if change.revision == table.revision() + 1 => table.apply(change),
                _ => return Ok(false),
            }
        }
    }
}

/// `None` if there is none, or none that this version can read.
fn change(row: &Row) -> Result<Option<Change>, PostgresError> {
    let Some(revision) = row.get::<_, Option<i64>>(1) else { return Ok(None) };
    let (op, of, json): (i16, (String, String), String) = (row.get(2), (row.get(3), row.get(4)), row.get(5));
    refuse_newer(&of, row.get(6))?;
    let op = match op {
        0 => ChangeOp::Added,
        1 => ChangeOp::Modified,
        _ => ChangeOp::Deleted,
    };
    let document = stored::read(&of.0, &of.1, &json).map(|row| row.document);
    let encoded = serde_json::value::RawValue::from_string(json);
    let (Ok(document), Ok(json)) = (document, encoded) else { return Ok(None) };
    Ok(Some(Change::encoded(number(revision), op, document, json.into())))
}

fn refuse_newer((kind, name): &(String, String), schema: i32) -> Result<(), PostgresError> {
    match u32::try_from(schema).unwrap_or_default() {
        found if found > DOCUMENT_SCHEMA => {
            Err(PostgresError::NewerDocument { what: format!("{kind} {name}"), found, known: DOCUMENT_SCHEMA })
        }
        _ => Ok(()),
    }
}

/// Revisions, positions and counts are never negative.
pub(super) fn number(stored: i64) -> u64 {
    stored.unsigned_abs()
}

/// As PostgreSQL has it, which knows no number without a sign. What is larger than any in the database stays so.
pub(super) fn as_stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
