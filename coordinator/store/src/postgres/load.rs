//! What the database has, taken into memory: everything at the start, and then the changes of other coordinators.

use landfall_api::Document;
use serde_json::value::RawValue;
use tokio_postgres::{Client, Error, IsolationLevel, Row};

use super::error::PostgresError;
use super::session::Session;
use crate::memory::Table;
use crate::stored::{self, DOCUMENT_SCHEMA, Loaded};
use crate::{Change, ChangeOp, json};

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
        let Some((others, newest)) = others(&rows_after(session, seen).await?, seen)? else { return Ok(false) };
        for other in others {
            let Some(change) = other.into_change() else { return Ok(false) };
            table.apply(change);
        }
        if newest == table.revision() {
            return Ok(true);
        }
    }
}

/// Refuses a database that went back, and in which others have written as much again since: its newest change that is known here is
/// another one. Only a connection that was lost can lead to it. Where that change is no longer kept, this cannot be seen.
///
/// # Errors
/// [`PostgresError::AnotherPast`].
pub(super) async fn refuse_another_past(session: &Session, table: &Table) -> Result<(), PostgresError> {
    let seen = table.revision();
    let select = "SELECT op, kind, name, json FROM changes WHERE revision = $1";
    let Some(row) = session.client.query_opt(select, &[&as_stored(seen)]).await? else { return Ok(()) };
    // One that this version cannot read was not taken in either.
    let Ok(stored) = stored::read(row.get(1), row.get(2), row.get(3)) else { return Ok(()) };
    let here = table.get(stored.document.kind(), row.get(2));
    // The text too: a number with many digits is not the same once it is read again.
    let is_as_written = |here: &Document| json::encoded(here).is_ok_and(|json| json.get() == row.get::<_, &str>(3));
    let is_same = match (op_of(row.get(0)), &here) {
        (ChangeOp::Deleted, here) => here.is_none(),
        (_, Some(here)) => *here == stored.document || is_as_written(here),
        (_, None) => false,
    };
    if is_same { Ok(()) } else { Err(PostgresError::AnotherPast { seen }) }
}

/// The changes after a revision, as [`others`] reads them; the oldest of them where there are many.
pub(super) async fn rows_after(session: &Session, seen: u64) -> Result<Vec<Row>, Error> {
    session.client.query(&session.statements.changes, &[&as_stored(seen), &PAGE]).await
}

/// A change of another coordinator, as the database has it.
pub(super) struct Other {
    revision: u64,
    op: ChangeOp,
    kind: String,
    name: String,
    json: String,
}

/// Those in the answer of [`rows_after`], and the revision of the store; none if some are no longer kept.
pub(super) fn others(rows: &[Row], seen: u64) -> Result<Option<(Vec<Other>, u64)>, PostgresError> {
    let Some(newest) = rows.first().map(|row| number(row.get(0))) else { return Err(PostgresError::Another) };
    if newest < seen {
        return Err(PostgresError::WentBack { found: newest, seen });
    }
    let (mut others, mut last) = (Vec::new(), seen);
    if newest > seen {
        for row in rows {
            let revision = row.get::<_, Option<i64>>(1).map(number);
            if revision != Some(last + 1) {
                return Ok(None);
            }
            last += 1;
            let op = op_of(row.get(2));
            let of = (row.get(3), row.get(4));
            refuse_newer(&of, row.get(6))?;
            others.push(Other { revision: last, op, kind: of.0, name: of.1, json: row.get(5) });
        }
    }
    Ok(Some((others, newest)))
}

impl Other {
    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    /// The kind and the name of its document.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.kind, &self.name)
    }

    /// The document after it, or that it is gone; `None` if this version cannot read it.
    pub(super) fn document(&self) -> Option<Option<Document>> {
        let document = stored::read(&self.kind, &self.name, &self.json).ok()?.document;
        Some(Some(document).filter(|_| self.op != ChangeOp::Deleted))
    }

    /// `None` if this version cannot read it.
    pub(super) fn into_change(self) -> Option<Change> {
        let document = stored::read(&self.kind, &self.name, &self.json).ok()?.document;
        let json = RawValue::from_string(self.json).ok()?;
        Some(Change::encoded(self.revision, self.op, document, json.into()))
    }
}

fn op_of(stored: i16) -> ChangeOp {
    match stored {
        0 => ChangeOp::Added,
        1 => ChangeOp::Modified,
        _ => ChangeOp::Deleted,
    }
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
