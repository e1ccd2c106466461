//! The operations, each inside the writer's transaction.

use jiff::Timestamp;
use landfall_api::{Document, Kind};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::writer::Batch;
use crate::{
    store::{
        Change, ChangeOp, LoggedEvent, StoreError,
        rules::{self, Updated},
    },
    workflow::EventRecord,
};

fn stored(batch: &Batch<'_>, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
    let json: Option<String> = batch
        .transaction
        .prepare_cached("SELECT json FROM documents WHERE kind = ?1 AND name = ?2")?
        .query_row(params![kind.as_str(), name], |row| row.get(0))
        .optional()?;
    let Some(json) = json else { return Ok(None) };
    let corrupt = |source| StoreError::Corrupt { what: format!("{kind} {name}"), source };
    Ok(Some(match kind {
        Kind::Machine => Document::Machine(serde_json::from_str(&json).map_err(corrupt)?),
        Kind::Template => Document::Template(serde_json::from_str(&json).map_err(corrupt)?),
        Kind::Workflow => Document::Workflow(serde_json::from_str(&json).map_err(corrupt)?),
    }))
}

fn write(batch: &mut Batch<'_>, op: ChangeOp, document: &Document) -> Result<(), StoreError> {
    let (kind, name) = (document.kind().as_str(), &document.metadata().name);
    if op == ChangeOp::Deleted {
        batch.transaction.execute("DELETE FROM documents WHERE kind = ?1 AND name = ?2", params![kind, name])?;
    } else {
        let json = rules::encoded(document)?;
        batch
            .transaction
            .prepare_cached("INSERT OR REPLACE INTO documents (kind, name, json) VALUES (?1, ?2, ?3)")?
            .execute(params![kind, name, json])?;
    }
    batch.revision += 1;
    batch.changes.push(Change { revision: batch.revision, op, document: document.clone() });
    Ok(())
}

pub(super) fn create(batch: &mut Batch<'_>, document: Document) -> Result<Document, StoreError> {
    let (kind, name) = (document.kind(), document.metadata().name.clone());
    if stored(batch, kind, &name)?.is_some() {
        return Err(StoreError::AlreadyExists { kind, name });
    }
    let document = rules::created(document, batch.revision + 1);
    write(batch, ChangeOp::Added, &document)?;
    Ok(document)
}

pub(super) fn update(batch: &mut Batch<'_>, document: Document) -> Result<Document, StoreError> {
    let (kind, name) = (document.kind(), document.metadata().name.clone());
    let Some(old) = stored(batch, kind, &name)? else { return Err(StoreError::NotFound { kind, name }) };
    match rules::updated(&old, document, batch.revision + 1)? {
        Updated::Same => Ok(old),
        Updated::New(new) => {
            write(batch, ChangeOp::Modified, &new)?;
            Ok(new)
        }
    }
}

pub(super) fn delete(batch: &mut Batch<'_>, kind: Kind, name: &str) -> Result<Document, StoreError> {
    let not_found = || StoreError::NotFound { kind, name: name.to_owned() };
    let old = stored(batch, kind, name)?.ok_or_else(not_found)?;
    write(batch, ChangeOp::Deleted, &old)?;
    Ok(old)
}

pub(super) fn append(batch: &mut Batch<'_>, event: &EventRecord) -> Result<u64, StoreError> {
    let (workflow, index, attempt, seq) =
        (event.workflow_uid.to_string(), event.action_index, event.attempt, event.seq);
    let known = batch
        .transaction
        .prepare_cached(
            "SELECT position FROM events WHERE workflow = ?1 AND action_index = ?2 AND attempt = ?3 AND seq = ?4",
        )?
        .query_row(params![workflow, index, attempt, seq], |row| row.get(0))
        .optional()?;
    if let Some(position) = known {
        return Ok(position);
    }
    let newest = batch
        .transaction
        .prepare_cached(
            "SELECT COALESCE(MAX(seq), 0) FROM events WHERE workflow = ?1 AND action_index = ?2 AND attempt = ?3",
        )?
        .query_row(params![workflow, index, attempt], |row| row.get(0))?;
    let count = batch
        .transaction
        .prepare_cached("SELECT COUNT(*) FROM events WHERE workflow = ?1")?
        .query_row([&workflow], |row| row.get(0))?;
    event.check_next(newest, count)?;
    let corrupt = |source| StoreError::Corrupt { what: format!("an event of workflow {workflow}"), source };
    let json = serde_json::to_string(event).map_err(corrupt)?;
    batch
        .transaction
        .prepare_cached("INSERT INTO events (workflow, action_index, attempt, seq, json) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![workflow, index, attempt, seq, json])?;
    // Positions are rowids: positive.
    Ok(batch.transaction.last_insert_rowid().unsigned_abs())
}

pub(super) fn events(
    batch: &mut Batch<'_>,
    workflow_uid: Uuid,
    after: u64,
    limit: usize,
) -> Result<Vec<LoggedEvent>, StoreError> {
    let workflow = workflow_uid.to_string();
    let mut select = batch.transaction.prepare_cached(
        "SELECT position, json FROM events WHERE workflow = ?1 AND position > ?2 ORDER BY position LIMIT ?3",
    )?;
    let rows = select.query_map(params![workflow, after, limit], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (position, json) = row?;
        let corrupt = |source| StoreError::Corrupt { what: format!("event {position}"), source };
        Ok(LoggedEvent { position, record: serde_json::from_str(&json).map_err(corrupt)? })
    })
    .collect()
}

pub(super) fn forget(batch: &mut Batch<'_>, workflow_uid: Uuid) -> Result<u64, StoreError> {
    let gone = batch.transaction.execute("DELETE FROM events WHERE workflow = ?1", [workflow_uid.to_string()])?;
    Ok(gone as u64)
}

pub(super) fn put_secret(
    batch: &mut Batch<'_>,
    name: &str,
    value: &[u8],
    expires: Timestamp,
) -> Result<(), StoreError> {
    batch.transaction.execute(
        "INSERT OR REPLACE INTO secrets (name, value, expires) VALUES (?1, ?2, ?3)",
        params![name, value, expires.as_millisecond()],
    )?;
    Ok(())
}

pub(super) fn secret(batch: &mut Batch<'_>, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(batch
        .transaction
        .query_row(
            "SELECT value FROM secrets WHERE name = ?1 AND expires > ?2",
            params![name, now.as_millisecond()],
            |row| row.get(0),
        )
        .optional()?)
}

pub(super) fn consume_secret(batch: &mut Batch<'_>, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
    let value = secret(batch, name, now)?;
    batch.transaction.execute("DELETE FROM secrets WHERE name = ?1", [name])?;
    Ok(value)
}

pub(super) fn purge_secrets(batch: &mut Batch<'_>, now: Timestamp) -> Result<u64, StoreError> {
    Ok(batch.transaction.execute("DELETE FROM secrets WHERE expires <= ?1", [now.as_millisecond()])? as u64)
}
