//! The back end in memory: for tests, for simulation, and as the read side of the SQLite one.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind};
use uuid::Uuid;

use super::history::History;
use super::journal::By;
use super::rules::{Asked, Written};
use super::{
    Change, ChangeOp, ChangeSet, Counts, DocumentStore, EventLog, HISTORY_PER_DOCUMENT, LoggedEvent, LoggedRun,
    MAX_EVENTS_PER_WORKFLOW, Page, SecretStore, StoreError, Watch, WatchError, journal, json,
};
use landfall_api::message::EventRecord;

/// Every document, by kind and name, and the changes for watchers.
pub(super) struct Table {
    rows: Mutex<Rows>,
    history: History,
}

/// A document, and the length of the last JSON that was made of it.
pub(super) struct Row {
    pub(super) document: Document,
    pub(super) bytes: usize,
}

#[derive(Default)]
struct Rows {
    documents: BTreeMap<Kind, BTreeMap<String, Row>>,
    counts: Counts,
    revision: u64,
}

impl Rows {
    fn new(documents: Vec<Row>, revision: u64) -> Self {
        let mut rows = Self { revision, ..Self::default() };
        for row in documents {
            rows.put(ChangeOp::Added, row);
        }
        rows
    }

    fn get(&self, kind: Kind, name: &str) -> Option<&Row> {
        self.documents.get(&kind)?.get(name)
    }

    fn put(&mut self, op: ChangeOp, row: Row) {
        let (kind, now) = (row.document.kind(), (op != ChangeOp::Deleted).then(|| row.document.clone()));
        let of_kind = self.documents.entry(kind).or_default();
        let name = &row.document.metadata().name;
        let before = match (op, of_kind.get_mut(name)) {
            (ChangeOp::Deleted, _) => of_kind.remove(name),
            // In place: the name is there, and this runs with every event.
            (_, Some(known)) => Some(std::mem::replace(known, row)),
            (_, None) => of_kind.insert(name.clone(), row),
        };
        self.counts.replace(kind, before.as_ref().map(|row| &row.document), now.as_ref());
    }
}

impl Table {
    pub(super) fn new(documents: Vec<Row>, revision: u64) -> Self {
        Self { rows: Mutex::new(Rows::new(documents, revision)), history: History::starting_at(revision) }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // Every critical section leaves the rows whole, so a poisoned lock is still good.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<Document> {
        self.rows().get(kind, name).map(|row| row.document.clone())
    }

    /// The length of the last JSON that was made of a document; 0 if it is not there.
    pub(super) fn bytes(&self, kind: Kind, name: &str) -> usize {
        self.rows().get(kind, name).map_or(0, |row| row.bytes)
    }

    pub(super) fn page(&self, kind: Kind, after: &str, limit: usize) -> Page {
        let rows = self.rows();
        let beyond = (Bound::Excluded(after), Bound::Unbounded);
        let mut rest = rows.documents.get(&kind).into_iter().flat_map(|of_kind| of_kind.range::<str, _>(beyond));
        let items = rest.by_ref().take(limit).map(|(_, row)| row.document.clone()).collect();
        Page { items, more: rest.next().is_some(), total: rows.counts.of(kind), revision: rows.revision }
    }

    pub(super) fn counts(&self) -> Counts {
        self.rows().counts.clone()
    }

    /// The revision up to which it is.
    pub(super) fn revision(&self) -> u64 {
        self.rows().revision
    }

    /// Holds these documents from now on. Every watch that has not seen this revision expires.
    pub(super) fn replace(&self, documents: Vec<Row>, revision: u64) {
        let new = Rows::new(documents, revision);
        let mut rows = self.rows();
        *rows = new;
        self.history.begin_again(revision);
    }

    /// The next change comes after `revision`. Every watch that has not seen that expires.
    pub(super) fn leave_out(&self, revision: u64) {
        let mut rows = self.rows();
        rows.revision = revision;
        self.history.begin_again(revision);
    }

    pub(super) fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.history.watch(kind, from_revision)
    }

    /// Takes in a change that is durable.
    pub(super) fn apply(&self, change: Change) {
        self.apply_to(&mut self.rows(), change);
    }

    fn apply_to(&self, rows: &mut Rows, change: Change) {
        rows.revision = change.revision;
        rows.put(change.op, Row { document: change.document.clone(), bytes: change.bytes });
        // Published under the lock, so that watchers see changes in the order of their revisions.
        self.history.publish(change);
    }
}

/// The whole store in memory.
pub struct MemoryStore {
    table: Table,
    journal: Mutex<BTreeMap<(Kind, String), Vec<HistoryEntry>>>,
    log: Mutex<Log>,
    secrets: Mutex<HashMap<String, (Vec<u8>, Timestamp)>>,
}

#[derive(Default)]
struct Log {
    last: u64,
    events: HashMap<Uuid, Vec<LoggedEvent>>,
    /// The epoch of the newest session that the machine of each workflow had.
    epochs: HashMap<Uuid, u64>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            table: Table::new(Vec::new(), 0),
            journal: Mutex::default(),
            log: Mutex::default(),
            secrets: Mutex::default(),
        }
    }
}

#[cfg(feature = "testing")]
impl MemoryStore {
    /// A store with the same content, as of now: what a backup holds.
    pub fn copy(&self) -> Self {
        let (documents, revision) = {
            let rows = self.table.rows();
            let copy = |row: &Row| Row { document: row.document.clone(), bytes: row.bytes };
            (rows.documents.values().flat_map(BTreeMap::values).map(copy).collect(), rows.revision)
        };
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            table: Table::new(documents, revision),
            journal: Mutex::new(self.journal().clone()),
            log: Mutex::new(Log { last: log.last, events: log.events.clone(), epochs: log.epochs.clone() }),
            secrets: Mutex::new(secrets),
        }
    }

    /// Takes in the next change of the store that this is a copy of. `is_own`: who has the copy made it.
    pub fn take_in(&self, change: Change, is_own: bool) {
        self.table.apply(if is_own { change.own() } else { change });
    }
}

impl MemoryStore {
    fn journal(&self) -> MutexGuard<'_, BTreeMap<(Kind, String), Vec<HistoryEntry>>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them or none. Answers what is stored afterwards, or what was.
    fn change_all(&self, asked: Vec<Asked>) -> Result<Vec<Document>, StoreError> {
        let (mut rows, by) = (self.table.rows(), By::now());
        let (mut answers, mut changes, mut revision) = (Vec::with_capacity(asked.len()), Vec::new(), rows.revision);
        for asked in asked {
            let (kind, name) = asked.key();
            let (name, old) = (name.to_owned(), rows.get(kind, name).map(|row| row.document.clone()));
            let (op, document) = match (asked.on(old.as_ref(), by.time, revision + 1)?, old.as_ref()) {
                (Written::As(op, document), _) => (op, document),
                (Written::Same, Some(old)) => {
                    answers.push(old.clone());
                    continue;
                }
                (Written::Same, None) => return Err(StoreError::NotFound { kind, name }),
            };
            revision += 1;
            let entry = journal::entry(old.as_ref(), &document, op, revision, by.clone());
            answers.push(document.clone());
            let json = json::encoded(&document)?;
            changes.push((entry, Change::encoded(revision, op, document, json)));
        }
        for (entry, change) in changes {
            if let Some(entry) = entry {
                let mut journal = self.journal();
                let of = (change.document.kind(), change.document.metadata().name.clone());
                let entries = journal.entry(of).or_default();
                entries.push(entry);
                let excess = entries.len().saturating_sub(HISTORY_PER_DOCUMENT);
                entries.drain(..excess);
            }
            if let Some((workflow, epoch)) = fence_of(&change.document)
                && let Some(uid) = rows.get(Kind::Workflow, workflow).and_then(|row| row.document.metadata().uid)
            {
                let epochs = &mut self.log.lock().unwrap_or_else(PoisonError::into_inner).epochs;
                epochs.entry(uid).and_modify(|known| *known = epoch.max(*known)).or_insert(epoch);
            }
            self.table.apply_to(&mut rows, change);
        }
        Ok(answers)
    }
}

#[async_trait]
impl DocumentStore for MemoryStore {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.table.get(kind, name))
    }

    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError> {
        Ok(self.table.page(kind, after, limit))
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.table.counts())
    }

    async fn write(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError> {
        let (asked, checks) = Asked::all(set);
        Ok(self.change_all(asked)?.split_off(checks))
    }

    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError> {
        self.change_all(vec![Asked::Delete { kind, name: name.to_owned(), version }])?.pop().ok_or(StoreError::Closed)
    }

    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        let journal = self.journal();
        let entries = journal.get(&(kind, name.to_owned())).map(Vec::as_slice).unwrap_or_default();
        Ok(entries.iter().skip(entries.len().saturating_sub(limit)).cloned().collect())
    }

    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError> {
        let mut journal = self.journal();
        let count = |journal: &BTreeMap<_, Vec<HistoryEntry>>| journal.values().map(Vec::len).sum::<usize>();
        let was = count(&journal);
        journal.values_mut().for_each(|entries| entries.retain(|entry| entry.time >= before));
        let mut revisions: Vec<u64> = journal.values().flatten().map(|entry| entry.resource_version).collect();
        revisions.sort_unstable();
        let excess = revisions.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
        if let Some(last) = excess.checked_sub(1).and_then(|n| revisions.get(n)).copied() {
            journal.values_mut().for_each(|entries| entries.retain(|entry| entry.resource_version > last));
        }
        journal.retain(|_, entries| !entries.is_empty());
        Ok((was - count(&journal)) as u64)
    }

    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.table.watch(kind, from_revision)
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn append(&self, epoch: u64, batch: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        check_epoch(&batch, epoch, &log.epochs)?;
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
            check_next(&record, newest, count)?;
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
        log.epochs.remove(&workflow_uid);
        Ok(log.events.remove(&workflow_uid).map_or(0, |events| events.len() as u64))
    }

    async fn runs(&self) -> Result<Vec<LoggedRun>, StoreError> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let run = |(uid, events): (&Uuid, &Vec<LoggedEvent>)| LoggedRun {
            workflow_uid: *uid,
            events: events.len() as u64,
            newest: events.last().map_or(0, |event| event.position),
        };
        let mut runs: Vec<_> = log.events.iter().map(run).collect();
        runs.sort_unstable_by_key(|run| run.newest);
        Ok(runs)
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

    async fn swap(
        &self, name: &str, old: Option<&[u8]>, value: &[u8], expires: Timestamp, now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let there = secrets.get(name).filter(|(_, expires)| *expires > now);
        let is_old = there.map(|(value, _)| value.as_slice()) == old;
        if is_old {
            secrets.insert(name.to_owned(), (value.to_vec(), expires));
        }
        Ok(is_old)
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

/// Of a machine: its newest workflow's name, and the epoch of its newest session. Older ones report nothing on that workflow any more.
pub(super) fn fence_of(document: &Document) -> Option<(&str, u64)> {
    let Document::Machine(machine) = document else { return None };
    let status = machine.status.as_ref()?;
    Some((status.workflow.as_deref()?, status.epoch))
}

/// Whether a session of this epoch may still report these events. `epochs`: of the newest session of each workflow's machine.
pub(super) fn check_epoch(events: &[EventRecord], given: u64, epochs: &HashMap<Uuid, u64>) -> Result<(), StoreError> {
    let newest = |event: &EventRecord| Some((event.workflow_uid, *epochs.get(&event.workflow_uid)?));
    match events.iter().filter_map(newest).find(|(_, newest)| *newest > given) {
        Some((workflow_uid, newest)) => Err(StoreError::NewerEpoch { workflow_uid, newest, given }),
        None => Ok(()),
    }
}

/// Whether `event` may follow `newest` (the highest seq of its attempt, 0 if none) in a workflow of `count` events. The
/// bound on a workflow's events is the same in every back end.
pub(super) fn check_next(event: &EventRecord, newest: u64, count: u64) -> Result<(), StoreError> {
    if event.seq != newest + 1 {
        return Err(StoreError::EventGap {
            workflow_uid: event.workflow_uid,
            action_index: event.action_index,
            attempt: event.attempt,
            expected: newest + 1,
            got: event.seq,
        });
    }
    if count >= MAX_EVENTS_PER_WORKFLOW {
        return Err(StoreError::TooManyEvents { workflow_uid: event.workflow_uid });
    }
    Ok(())
}
