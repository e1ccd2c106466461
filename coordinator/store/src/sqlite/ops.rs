//! The operations, each inside the writer's transaction.

use std::time::Instant;

use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use uuid::Uuid;

use super::{unwritten::Key, writer::Batch};
use crate::journal::By;
use crate::overlay::Effect;
use crate::rules::{Asked, Written};
use crate::stored::DOCUMENT_SCHEMA;
use crate::{
    Change, ChangeOp, ChangeSet, HISTORY_PER_DOCUMENT, LoggedEvent, LoggedRun, MAX_DOCUMENT_BYTES, StoreError, journal,
    json, rules,
};
use landfall_api::message::EventRecord;

/// A document larger than this many bytes is never written later: it could outgrow the limit meanwhile.
const LATER_BYTES: usize = MAX_DOCUMENT_BYTES / 2;

/// Writes what `asked` comes to; answers what is stored then, or what was.
pub(super) fn change(batch: &mut Batch<'_>, asked: Asked, by: By) -> Result<Document, StoreError> {
    match batch.overlay.effect(asked, by)? {
        Ok(effect) => write_one(batch, effect),
        Err(same) => Ok(same),
    }
}

fn write_one(batch: &mut Batch<'_>, Effect { change, entry }: Effect) -> Result<Document, StoreError> {
    let document = &change.document;
    write_others_of(batch, document)?;
    let (kind, name, json) = (document.kind(), &document.metadata().name, change.json()?);
    if change.op == ChangeOp::Deleted {
        batch
            .transaction
            .prepare_cached("DELETE FROM documents WHERE kind = ?1 AND name = ?2")?
            .execute(params![kind.as_str(), name])?;
    } else {
        // A new document takes no row's place: one that this version cannot read has the name already.
        let insert = match change.op {
            ChangeOp::Added => "INSERT INTO documents (kind, name, json, schema) VALUES (?1, ?2, ?3, ?4)",
            // In place: a replaced row would get a new rowid, and the index of names be written with every event.
            _ => {
                "INSERT INTO documents (kind, name, json, schema) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (kind, name) DO UPDATE SET json = excluded.json, schema = excluded.schema"
            }
        };
        let mut insert = batch.transaction.prepare_cached(insert)?;
        let written = insert.execute(params![kind.as_str(), name, json.get(), DOCUMENT_SCHEMA]);
        match written.map_err(|error| (error.sqlite_error_code(), error)) {
            Ok(_) => {}
            Err((Some(ErrorCode::ConstraintViolation), _)) => {
                return Err(StoreError::Unreadable { kind, name: name.clone() });
            }
            Err((_, error)) => return Err(error.into()),
        }
    }
    if let Some(entry) = entry {
        note(batch, kind, name, &entry)?;
    }
    Ok(batch.overlay.push(change))
}

fn note(batch: &Batch<'_>, kind: Kind, name: &str, entry: &HistoryEntry) -> Result<(), StoreError> {
    let corrupt = |source| StoreError::Corrupt { what: format!("the history of {kind} {name}"), source };
    let json = serde_json::to_string(entry).map_err(corrupt)?;
    batch
        .transaction
        .prepare_cached("INSERT INTO history (revision, kind, name, time, json) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![entry.resource_version, kind.as_str(), name, entry.time.as_millisecond(), json])?;
    batch
        .transaction
        .prepare_cached(
            "DELETE FROM history WHERE kind = ?1 AND name = ?2 AND revision <= (SELECT revision FROM history
             WHERE kind = ?1 AND name = ?2 ORDER BY revision DESC LIMIT 1 OFFSET ?3)",
        )?
        .execute(params![kind.as_str(), name, HISTORY_PER_DOCUMENT])?;
    Ok(())
}

/// [`change`] without the row: [`write_older`] follows. What people decide is written at once, and so is what may grow too large.
pub(super) fn update_later(batch: &mut Batch<'_>, document: Document, by: By) -> Result<Document, StoreError> {
    let (kind, name) = (document.kind(), document.metadata().name.clone());
    let overlay = &mut batch.overlay;
    let Some(old) = overlay.stored(kind, &name) else { return Err(StoreError::NotFound { kind, name }) };
    let bytes = overlay.changed(kind, &name).map_or_else(|| overlay.table.bytes(kind, &name), |change| change.bytes);
    let revision = overlay.revision + 1;
    match rules::updated(&old, document, revision)? {
        Written::Same => Ok(old),
        Written::As(ChangeOp::Modified, new) if bytes <= LATER_BYTES && journal::unchanged(&old, &new) => {
            Ok(overlay.push(Change::unwritten(revision, new, bytes).own()))
        }
        Written::As(op, new) => {
            let effect = overlay.written(Some(&old), op, new, by)?;
            write_one(batch, effect)
        }
    }
}

/// All or none: an operation of its own.
pub(super) fn write_set(batch: &mut Batch<'_>, set: ChangeSet, by: &By) -> Result<Vec<Document>, StoreError> {
    let is_later = set.is_later;
    let (asked, checks) = Asked::all(set);
    let write = |asked| match asked {
        Asked::Update(document) if is_later => update_later(batch, document, by.clone()),
        asked => change(batch, asked, by.clone()),
    };
    Ok(asked.into_iter().map(write).collect::<Result<Vec<_>, _>>()?.split_off(checks))
}

/// Writes at most `most` of the documents that were left unwritten before `before`; how many it wrote.
pub(super) fn write_older(batch: &mut Batch<'_>, before: Instant, most: usize) -> Result<usize, StoreError> {
    let due = batch.unwritten.older(before, most);
    for key in &due {
        if batch.written.contains(key) {
            continue;
        }
        let Some(document) = batch.overlay.stored(key.0, &key.1) else { continue };
        write_others_of(batch, &document)?;
        write_row(batch, key, &document)?;
    }
    Ok(due.len())
}

/// A machine's row and that of its workflow are as of one step. What the workflow contains of the event log is not read again at a
/// start, and would be missing in an older machine for good; what is read again would change a newer machine back.
fn write_others_of(batch: &mut Batch<'_>, document: &Document) -> Result<(), StoreError> {
    match document {
        Document::Workflow(workflow) => {
            let key = (Kind::Machine, workflow.spec.machine.clone());
            let machine = unwritten(batch, &key);
            if let Some(machine) = &machine {
                write_row(batch, &key, machine)?;
                // The machine's newest workflow, which may be another than this one.
                write_workflow_of(batch, machine)?;
            }
            Ok(())
        }
        machine => write_workflow_of(batch, machine),
    }
}

fn write_workflow_of(batch: &mut Batch<'_>, document: &Document) -> Result<(), StoreError> {
    let Document::Machine(machine) = document else { return Ok(()) };
    let Some(name) = machine.status.as_ref().and_then(|status| status.workflow.clone()) else { return Ok(()) };
    let key = (Kind::Workflow, name);
    match unwritten(batch, &key) {
        Some(workflow) => write_row(batch, &key, &workflow),
        None => Ok(()),
    }
}

/// The document, if it is newer in memory than on the disk.
fn unwritten(batch: &Batch<'_>, key: &Key) -> Option<Document> {
    match batch.overlay.changed(key.0, &key.1) {
        Some(change) => (!change.is_written && change.op != ChangeOp::Deleted).then(|| change.document.clone()),
        None if batch.unwritten.has(key) && !batch.written.contains(key) => batch.overlay.table.get(key.0, &key.1),
        None => None,
    }
}

/// Writes a document that is newer in memory.
fn write_row(batch: &mut Batch<'_>, key: &Key, document: &Document) -> Result<(), StoreError> {
    match json::encoded(document) {
        Ok(json) => {
            batch
                .transaction
                .prepare_cached("UPDATE documents SET json = ?3, schema = ?4 WHERE kind = ?1 AND name = ?2")?
                .execute(params![key.0.as_str(), key.1, json.get(), DOCUMENT_SCHEMA])?;
        }
        // The next step of its machine makes it shorter, and writes it.
        Err(error) => tracing::error!(%error, "a document stays as it was written last"),
    }
    batch.written.push(key.clone());
    Ok(())
}

pub(super) fn history(
    connection: &Connection, kind: Kind, name: &str, limit: usize,
) -> Result<Vec<HistoryEntry>, StoreError> {
    let mut select = connection
        .prepare_cached("SELECT json FROM history WHERE kind = ?1 AND name = ?2 ORDER BY revision DESC LIMIT ?3")?;
    let limit = limit.min(HISTORY_PER_DOCUMENT);
    let rows = select.query_map(params![kind.as_str(), name, limit], |row| row.get::<_, String>(0))?;
    let corrupt = |source| StoreError::Corrupt { what: format!("the history of {kind} {name}"), source };
    let mut entries = rows.map(|row| serde_json::from_str(&row?).map_err(corrupt)).collect::<Result<Vec<_>, _>>()?;
    entries.reverse();
    Ok(entries)
}

pub(super) fn trim_history(batch: &mut Batch<'_>, before: Timestamp, most: u64) -> Result<u64, StoreError> {
    let old = batch.transaction.execute("DELETE FROM history WHERE time < ?1", [before.as_millisecond()])?;
    let beyond = batch.transaction.execute(
        "DELETE FROM history WHERE revision <= (SELECT revision FROM history ORDER BY revision DESC LIMIT 1 OFFSET ?1)",
        [most],
    )?;
    Ok((old + beyond) as u64)
}

/// What the log has of a workflow and of one of its attempts.
struct Logged {
    workflow_uid: Uuid,
    action_index: u32,
    attempt: u32,
    /// The highest `seq` of the attempt; 0 if it has none.
    newest: u64,
    /// Events of the workflow.
    count: u64,
}

impl Logged {
    fn is_of(&self, event: &EventRecord) -> bool {
        (self.workflow_uid, self.action_index, self.attempt) == (event.workflow_uid, event.action_index, event.attempt)
    }
}

/// Appends events; the position of each.
pub(super) fn append(batch: &mut Batch<'_>, events: &[EventRecord]) -> Result<Vec<u64>, StoreError> {
    // Most events follow one of their own attempt: then nothing is to be read for them.
    let mut before: Option<Logged> = None;
    let mut positions = Vec::with_capacity(events.len());
    for event in events {
        let mut logged = match before.take() {
            Some(logged) if logged.is_of(event) && event.seq > logged.newest => logged,
            _ => match look_up(batch, event)? {
                Found::Before(logged) => logged,
                Found::At(position) => {
                    positions.push(position);
                    continue;
                }
            },
        };
        crate::memory::check_next(event, logged.newest, logged.count)?;
        positions.push(insert(batch, event)?);
        (logged.newest, logged.count) = (event.seq, logged.count + 1);
        before = Some(logged);
    }
    Ok(positions)
}

enum Found {
    /// The log has the event, at this position.
    At(u64),
    /// The event is new; it follows these.
    Before(Logged),
}

fn look_up(batch: &Batch<'_>, event: &EventRecord) -> Result<Found, StoreError> {
    let EventRecord { workflow_uid, action_index, attempt, seq, .. } = *event;
    let (known, newest, count): (Option<u64>, u64, u64) = batch
        .transaction
        .prepare_cached(
            "SELECT
             (SELECT position FROM events WHERE workflow = ?1 AND action_index = ?2 AND attempt = ?3 AND seq = ?4),
             (SELECT COALESCE(MAX(seq), 0) FROM events WHERE workflow = ?1 AND action_index = ?2 AND attempt = ?3),
             (SELECT COUNT(*) FROM events WHERE workflow = ?1)",
        )?
        .query_row(params![workflow_uid.to_string(), action_index, attempt, seq], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    Ok(known.map_or(Found::Before(Logged { workflow_uid, action_index, attempt, newest, count }), Found::At))
}

fn insert(batch: &Batch<'_>, event: &EventRecord) -> Result<u64, StoreError> {
    let workflow = event.workflow_uid.to_string();
    let corrupt = |source| StoreError::Corrupt { what: format!("an event of workflow {workflow}"), source };
    let json = serde_json::to_string(event).map_err(corrupt)?;
    batch
        .transaction
        .prepare_cached("INSERT INTO events (workflow, action_index, attempt, seq, json) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![workflow, event.action_index, event.attempt, event.seq, json])?;
    // Positions are rowids: positive.
    Ok(batch.transaction.last_insert_rowid().unsigned_abs())
}

pub(super) fn events(
    connection: &Connection, workflow_uid: Uuid, after: u64, limit: usize,
) -> Result<Vec<LoggedEvent>, StoreError> {
    let workflow = workflow_uid.to_string();
    let mut select = connection.prepare_cached(
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
    let mut delete = batch.transaction.prepare_cached("DELETE FROM events WHERE workflow = ?1")?;
    let gone = delete.execute([workflow_uid.to_string()])?;
    Ok(gone as u64)
}

pub(super) fn runs(connection: &Connection) -> Result<Vec<LoggedRun>, StoreError> {
    let mut select = connection.prepare_cached(
        "SELECT workflow, COUNT(*), MAX(position) FROM events GROUP BY workflow ORDER BY MAX(position)",
    )?;
    let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)))?;
    let mut runs = Vec::new();
    for row in rows {
        let (workflow, events, newest) = row?;
        // What is not a uid was never written here; it belongs to no run and is bounded by being there already.
        if let Ok(workflow_uid) = Uuid::parse_str(&workflow) {
            runs.push(LoggedRun { workflow_uid, events, newest });
        }
    }
    Ok(runs)
}

pub(super) fn put_secret(
    batch: &mut Batch<'_>, name: &str, sealed: &[u8], expires: Timestamp,
) -> Result<(), StoreError> {
    batch
        .transaction
        .prepare_cached("INSERT OR REPLACE INTO secrets (name, value, expires, sealed) VALUES (?1, ?2, ?3, 1)")?
        .execute(params![name, sealed, expires.as_millisecond()])?;
    Ok(())
}

/// Leaves out that many revisions, and as many positions of events and of the audit log.
pub(super) fn leave_out(batch: &mut Batch<'_>, count: u64) -> Result<(), StoreError> {
    batch.overlay.revision += count;
    // A table has its row there from its first entry on.
    batch.transaction.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT name, 0 FROM sqlite_schema
         WHERE name IN ('events', 'audit') AND name NOT IN (SELECT name FROM sqlite_sequence)",
        [],
    )?;
    batch.transaction.execute("UPDATE sqlite_sequence SET seq = seq + ?1", [count])?;
    Ok(())
}

pub(super) fn secret(connection: &Connection, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT value FROM secrets WHERE name = ?1 AND expires > ?2")?
        .query_row(params![name, now.as_millisecond()], |row| row.get(0))
        .optional()?)
}

pub(super) fn consume_secret(batch: &mut Batch<'_>, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
    let value = secret(&batch.transaction, name, now)?;
    batch.transaction.prepare_cached("DELETE FROM secrets WHERE name = ?1")?.execute([name])?;
    Ok(value)
}

pub(super) fn purge_secrets(batch: &mut Batch<'_>, now: Timestamp) -> Result<u64, StoreError> {
    Ok(batch.transaction.execute("DELETE FROM secrets WHERE expires <= ?1", [now.as_millisecond()])? as u64)
}
