//! The documents as a transaction under way has them: what was committed, and what the transaction has changed since.
//!
//! What an operation makes of them is a pure function here, so that every back end that commits in groups does the same.

use landfall_api::{Document, HistoryEntry, Kind};

use crate::journal::By;
use crate::memory::Table;
use crate::rules::{Asked, Written};
use crate::{Change, ChangeOp, StoreError, journal, json};

/// The documents of one transaction.
pub(super) struct Overlay<'t> {
    /// Every document as it was committed last, but for those in `newer`.
    pub(super) table: &'t Table,
    /// What others have committed since, of documents that the transaction is about. Gone ones have no document.
    pub(super) newer: Vec<Newer>,
    /// The store's revision so far, this transaction's changes included.
    pub(super) revision: u64,
    /// What to publish once it is committed.
    pub(super) changes: Vec<Change>,
}

/// A document's kind and name, and what it is now.
pub(super) type Newer = (Kind, String, Option<Document>);

/// What is to be written of a change.
pub(super) struct Effect {
    pub(super) change: Change,
    /// Its line in the document's history, if it is one of what people decide.
    pub(super) entry: Option<HistoryEntry>,
}

impl<'t> Overlay<'t> {
    pub(super) fn new(table: &'t Table, newer: Vec<Newer>, revision: u64) -> Self {
        Self { table, newer, revision, changes: Vec::new() }
    }

    /// The newest change of a document within this transaction.
    pub(super) fn changed(&self, kind: Kind, name: &str) -> Option<&Change> {
        self.changes.iter().rev().find(|change| {
            let document = &change.document;
            document.kind() == kind && document.metadata().name == name
        })
    }

    /// The document, as this transaction has it.
    pub(super) fn stored(&self, kind: Kind, name: &str) -> Option<Document> {
        match self.changed(kind, name) {
            Some(change) => Some(change.document.clone()).filter(|_| change.op != ChangeOp::Deleted),
            None => match self.newer.iter().find(|newer| newer.0 == kind && newer.1 == name) {
                Some((_, _, document)) => document.clone(),
                None => self.table.get(kind, name),
            },
        }
    }

    /// What `asked` comes to: the effect of a change, or the stored document that is equal already.
    pub(super) fn effect(&self, asked: Asked, by: By) -> Result<Result<Effect, Document>, StoreError> {
        let (kind, name) = asked.key();
        let old = self.stored(kind, name);
        let not_found = StoreError::NotFound { kind, name: name.to_owned() };
        match (asked.on(old.as_ref(), by.time, self.revision + 1)?, old) {
            (Written::As(op, document), old) => self.written(old.as_ref(), op, document, by).map(Ok),
            (Written::Same, Some(old)) => Ok(Err(old)),
            (Written::Same, None) => Err(not_found),
        }
    }

    /// The effect of a change that is decided.
    pub(super) fn written(
        &self, old: Option<&Document>, op: ChangeOp, document: Document, by: By,
    ) -> Result<Effect, StoreError> {
        let (json, revision) = (json::encoded(&document)?, self.revision + 1);
        let entry = journal::entry(old, &document, op, revision, by);
        Ok(Effect { change: Change::encoded(revision, op, document, json).own(), entry })
    }

    /// Forgets what was taken in since there were `changes` of them, at `revision`.
    pub(super) fn back_to(&mut self, (revision, changes): (u64, usize)) {
        self.revision = revision;
        self.changes.truncate(changes);
    }

    /// Takes in a change that is part of the transaction; answers its document.
    pub(super) fn push(&mut self, change: Change) -> Document {
        let document = change.document.clone();
        self.revision = change.revision;
        self.changes.push(change);
        document
    }
}
