//! The back end in memory: for tests, for simulation, and as the read side of the SQLite one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, Kind};
use uuid::Uuid;

use super::{
    Change, ChangeOp, DocumentStore, EventLog, LoggedEvent, MAX_EVENTS_PER_WORKFLOW, SecretStore, StoreError, Watch,
    WatchError,
    history::History,
    rules::{self, Updated},
};
use crate::workflow::EventRecord;

/// Every document, by kind and name, and the changes for watchers.
pub(super) struct Table {
    rows: Mutex<Rows>,
    history: History,
}

struct Rows {
    documents: BTreeMap<(Kind, String), Document>,
    revision: u64,
}

impl Table {
    pub(super) fn new(documents: Vec<Document>, revision: u64) -> Self {
        let documents = documents.into_iter().map(|d| ((d.kind(), d.metadata().name.clone()), d)).collect();
        Self { rows: Mutex::new(Rows { documents, revision }), history: History::starting_at(revision) }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // Every critical section leaves the rows whole, so a poisoned lock is still good.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<Document> {
        self.rows().documents.get(&(kind, name.to_owned())).cloned()
    }

    pub(super) fn list(&self, kind: Kind) -> (Vec<Document>, u64) {
        let rows = self.rows();
        (rows.documents.iter().filter(|((k, _), _)| *k == kind).map(|(_, d)| d.clone()).collect(), rows.revision)
    }

    pub(super) fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.history.watch(kind, from_revision)
    }

    /// Takes in a change that is durable.
    pub(super) fn apply(&self, change: Change) {
        let mut rows = self.rows();
        Self::put(&mut rows, &change);
        // Published under the lock, so that watchers see changes in the order of their revisions.
        self.history.publish(change);
    }

    fn put(rows: &mut Rows, change: &Change) {
        let key = (change.document.kind(), change.document.metadata().name.clone());
        rows.revision = change.revision;
        match change.op {
            ChangeOp::Deleted => rows.documents.remove(&key),
            ChangeOp::Added | ChangeOp::Modified => rows.documents.insert(key, change.document.clone()),
        };
    }
}

/// The whole store in memory.
pub struct MemoryStore {
    table: Table,
    log: Mutex<Log>,
    secrets: Mutex<HashMap<String, (Vec<u8>, Timestamp)>>,
}

#[derive(Default)]
struct Log {
    last: u64,
    events: HashMap<Uuid, Vec<LoggedEvent>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { table: Table::new(Vec::new(), 0), log: Mutex::default(), secrets: Mutex::default() }
    }
}

impl MemoryStore {
    fn change(
        &self,
        op: ChangeOp,
        make: impl FnOnce(&Rows) -> Result<Updated, StoreError>,
    ) -> Result<Option<Document>, StoreError> {
        let mut rows = self.table.rows();
        let Updated::New(document) = make(&rows)? else { return Ok(None) };
        rules::encoded(&document)?;
        let change = Change { revision: rows.revision + 1, op, document: document.clone() };
        Table::put(&mut rows, &change);
        self.table.history.publish(change);
        Ok(Some(document))
    }
}

#[async_trait]
impl DocumentStore for MemoryStore {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.table.get(kind, name))
    }

    async fn list(&self, kind: Kind) -> Result<(Vec<Document>, u64), StoreError> {
        Ok(self.table.list(kind))
    }

    async fn create(&self, document: Document) -> Result<Document, StoreError> {
        let (kind, name) = (document.kind(), document.metadata().name.clone());
        let created = self.change(ChangeOp::Added, |rows| {
            if rows.documents.contains_key(&(kind, name.clone())) {
                return Err(StoreError::AlreadyExists { kind, name: name.clone() });
            }
            Ok(Updated::New(rules::created(document, rows.revision + 1)))
        })?;
        created.ok_or(StoreError::NotFound { kind, name })
    }

    async fn update(&self, document: Document) -> Result<Document, StoreError> {
        let (kind, name) = (document.kind(), document.metadata().name.clone());
        let written = self.change(ChangeOp::Modified, |rows| {
            let Some(stored) = rows.documents.get(&(kind, name.clone())) else {
                return Err(StoreError::NotFound { kind, name: name.clone() });
            };
            rules::updated(stored, document, rows.revision + 1)
        })?;
        written.or_else(|| self.table.get(kind, &name)).ok_or(StoreError::NotFound { kind, name })
    }

    async fn delete(&self, kind: Kind, name: &str) -> Result<Document, StoreError> {
        let gone = self.change(ChangeOp::Deleted, |rows| match rows.documents.get(&(kind, name.to_owned())) {
            Some(document) => Ok(Updated::New(document.clone())),
            None => Err(StoreError::NotFound { kind, name: name.to_owned() }),
        })?;
        gone.ok_or_else(|| StoreError::NotFound { kind, name: name.to_owned() })
    }

    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.table.watch(kind, from_revision)
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn append(&self, batch: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut positions = Vec::with_capacity(batch.len());
        let (mut last, mut added) = (log.last, Vec::<LoggedEvent>::new());
        for record in batch {
            let earlier = log.events.get(&record.workflow_uid).into_iter().flatten();
            let of_workflow = earlier.chain(added.iter().filter(|e| e.record.workflow_uid == record.workflow_uid));
            let (mut count, mut newest, mut known) = (0, 0, None);
            for event in of_workflow {
                count += 1;
                if event.record.key() == record.key() {
                    known = Some(event.position);
                }
                if (event.record.action_index, event.record.attempt) == (record.action_index, record.attempt) {
                    newest = newest.max(event.record.seq);
                }
            }
            if let Some(position) = known {
                positions.push(position);
                continue;
            }
            record.check_next(newest, count)?;
            last += 1;
            positions.push(last);
            added.push(LoggedEvent { position: last, record });
        }
        log.last = last;
        for event in added {
            log.events.entry(event.record.workflow_uid).or_default().push(event);
        }
        Ok(positions)
    }

    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let events = log.events.get(&workflow_uid).into_iter().flatten();
        Ok(events.filter(|event| event.position > after).take(limit).cloned().collect())
    }

    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(log.events.remove(&workflow_uid).map_or(0, |events| events.len() as u64))
    }
}

#[async_trait]
impl SecretStore for MemoryStore {
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.insert(name.to_owned(), (value.to_vec(), expires));
        Ok(())
    }

    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(secrets.get(name).filter(|(_, expires)| *expires > now).map(|(value, _)| value.clone()))
    }

    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(secrets.remove(name).filter(|(_, expires)| *expires > now).map(|(value, _)| value))
    }

    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let before = secrets.len();
        secrets.retain(|_, (_, expires)| *expires > now);
        Ok((before - secrets.len()) as u64)
    }
}

// The bound on a workflow's events is the same in every back end.
impl EventRecord {
    /// Whether this may follow `newest` (the highest seq of its attempt, 0 if none) in a workflow of `count` events.
    pub(super) fn check_next(&self, newest: u64, count: u64) -> Result<(), StoreError> {
        if self.seq != newest + 1 {
            return Err(StoreError::EventGap {
                workflow_uid: self.workflow_uid,
                action_index: self.action_index,
                attempt: self.attempt,
                expected: newest + 1,
                got: self.seq,
            });
        }
        if count >= MAX_EVENTS_PER_WORKFLOW {
            return Err(StoreError::TooManyEvents { workflow_uid: self.workflow_uid });
        }
        Ok(())
    }
}
