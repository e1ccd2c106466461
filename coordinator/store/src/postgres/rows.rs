//! What a transaction writes, as the arrays that its statements take.

use std::collections::BTreeMap;

use landfall_api::{Document, HistoryEntry, Kind};

use super::error::PostgresError;
use super::job::Note;
use super::load::as_stored;
use crate::{Change, ChangeOp, StoreError};

/// Documents, or lines about them.
#[derive(Default)]
pub(super) struct Rows<'p> {
    pub(super) kinds: Vec<&'p str>,
    pub(super) names: Vec<&'p str>,
    pub(super) json: Vec<&'p str>,
}

impl<'p> Rows<'p> {
    fn push(&mut self, (kind, name): (&'p str, &'p str), json: &'p str) {
        self.kinds.push(kind);
        self.names.push(name);
        self.json.push(json);
    }
}

fn key(change: &Change) -> (&str, &str) {
    (change.document.kind().as_str(), &change.document.metadata().name)
}

/// A change's JSON, which is made before it is planned.
fn json(change: &Change) -> Result<&str, PostgresError> {
    change.written_json().ok_or(PostgresError::Another)
}

/// What is left of each document at the end: those that are there, and those that are gone.
pub(super) fn left(changes: &[Change]) -> Result<(Rows<'_>, Rows<'_>), PostgresError> {
    let last: BTreeMap<_, _> = changes.iter().map(|change| (key(change), change)).collect();
    let (mut put, mut gone) = (Rows::default(), Rows::default());
    for (of, change) in last {
        let rows = if change.op == ChangeOp::Deleted { &mut gone } else { &mut put };
        rows.push(of, json(change)?);
    }
    Ok((put, gone))
}

/// Every change, for the other coordinators.
#[derive(Default)]
pub(super) struct Changes<'p> {
    pub(super) revisions: Vec<i64>,
    pub(super) ops: Vec<i16>,
    pub(super) rows: Rows<'p>,
}

/// As [`super::load`] reads them.
pub(super) fn changes(changes: &[Change]) -> Result<Changes<'_>, PostgresError> {
    let mut out = Changes::default();
    for change in changes {
        out.revisions.push(as_stored(change.revision));
        out.ops.push(match change.op {
            ChangeOp::Added => 0,
            ChangeOp::Modified => 1,
            ChangeOp::Deleted => 2,
        });
        out.rows.push(key(change), json(change)?);
    }
    Ok(out)
}

/// A line of a document's history.
pub(super) struct Entry {
    kind: Kind,
    name: String,
    revision: i64,
    time: i64,
    json: String,
}

impl Entry {
    pub(super) fn of(document: &Document, entry: &HistoryEntry) -> Result<Self, StoreError> {
        let (kind, name) = (document.kind(), document.metadata().name.clone());
        let corrupt = |source| StoreError::Corrupt { what: format!("the history of {kind} {name}"), source };
        let json = serde_json::to_string(entry).map_err(corrupt)?;
        let (revision, time) = (as_stored(entry.resource_version), entry.time.as_millisecond());
        Ok(Self { kind, name, revision, time, json })
    }
}

/// Lines of history.
#[derive(Default)]
pub(super) struct History<'p> {
    pub(super) revisions: Vec<i64>,
    pub(super) times: Vec<i64>,
    pub(super) rows: Rows<'p>,
}

pub(super) fn history(entries: &[Entry]) -> History<'_> {
    let mut out = History::default();
    for entry in entries {
        out.revisions.push(entry.revision);
        out.times.push(entry.time);
        out.rows.push((entry.kind.as_str(), &entry.name), &entry.json);
    }
    out
}

/// Lines of the audit log, and the intents whose place they take.
#[derive(Default)]
pub(super) struct Audit<'p> {
    pub(super) intents: Vec<i64>,
    pub(super) rings: Vec<i16>,
    pub(super) are_intents: Vec<bool>,
    pub(super) json: Vec<&'p str>,
}

pub(super) fn audit<'p>(notes: &[&'p Note]) -> Audit<'p> {
    let mut out = Audit::default();
    for note in notes {
        out.intents.extend(note.instead_of);
        out.rings.push(note.ring);
        out.are_intents.push(note.is_intent);
        out.json.push(&note.json);
    }
    out
}
