//! The memory store as a disk that a coordinator's crash leaves behind: slow, and cut off from the crashed process at any
//! point between two of its operations, also between the moment something is durable and the moment it is answered. Or as a database
//! that a coordinator is cut off from, which goes on with what it has in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind, message::EventRecord};
use landfall_sim::chance::Chance;
use landfall_store::{
    ChangeSet, Counts, DocumentStore, EventLog, LoggedEvent, LoggedRun, Page, PostgresError, SecretStore, Store,
    StoreError, Watch, WatchError,
};
use std::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::{flag::Flag, truth::Truth};

/// One life of a coordinator: after its end, its tasks no longer reach the store.
pub(crate) struct Fuse {
    chance: Mutex<Chance>,
    /// Steps until the crash; `None`: it will not crash by itself.
    left: Mutex<Option<u64>>,
    blown: Flag<bool>,
}

impl Fuse {
    pub(crate) fn new(chance: Chance, left: Option<u64>) -> Arc<Self> {
        Arc::new(Self { chance: Mutex::new(chance), left: Mutex::new(left), blown: Flag::new(false) })
    }
    /// Disables further crashes.
    pub(crate) fn disarm(&self) {
        *self.left.lock().unwrap() = None;
    }
    /// From now on its tasks reach the store no more.
    pub(crate) fn blow(&self) {
        self.blown.set(true);
    }
    pub(crate) async fn blown(&self) {
        self.blown.until(|blown| *blown).await;
    }
    async fn pass(&self) {
        let delay = self.chance.lock().unwrap().below(6);
        if delay > 0 {
            sleep(Duration::from_millis(delay)).await;
        }
        {
            let mut left = self.left.lock().unwrap();
            if let Some(steps) = left.as_mut() {
                *steps = steps.saturating_sub(1);
                if *steps == 0 {
                    self.blown.set(true);
                }
            }
        }
        if self.blown.get() {
            std::future::pending::<()>().await;
        }
    }
}

/// A coordinator's view of the store, for as long as its fuse holds, and what its crash takes back.
pub(crate) fn behind(inner: Store, fuse: Arc<Fuse>, truth: Truth) -> (Store, Arc<View>) {
    let view = Arc::new(View { inner, fuse, truth, durable: Mutex::default(), cut: Mutex::default() });
    (Store::new(view.clone(), view.clone(), view.clone()), view)
}

/// So long at most a store on a disk leaves a status unwritten, as the coordinator asks of it.
const UNWRITTEN: Duration = Duration::from_secs(10);
/// So long a coordinator waits for an answer of a database that it cannot reach.
const ANSWER: Duration = Duration::from_secs(15);

/// A coordinator without its database.
struct Cut {
    /// When the database last answered.
    since: Instant,
    /// What it had in memory then.
    documents: BTreeMap<(Kind, String), Document>,
}

pub(crate) struct View {
    inner: Store,
    fuse: Arc<Fuse>,
    truth: Truth,
    /// What the disk has of documents that are newer in memory, and since when.
    durable: Mutex<HashMap<(Kind, String), (Instant, Document)>>,
    cut: Mutex<Option<Cut>>,
}

impl View {
    /// The database is out of reach, for good; it answered last at `since`.
    pub(crate) async fn cut_off(&self, since: Instant) {
        let mut documents = BTreeMap::new();
        for kind in Kind::ALL {
            for document in self.inner.documents().list(kind).await.unwrap().0 {
                documents.insert((kind, document.metadata().name.clone()), document);
            }
        }
        *self.cut.lock().unwrap() = Some(Cut { since, documents });
    }

    fn cut_since(&self) -> Option<Instant> {
        Some(self.cut.lock().unwrap().as_ref()?.since)
    }

    /// Does something to the store, unless a crash or a cut comes between; or between that and the answer.
    async fn reach<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.fuse.pass().await;
        let done = match self.cut_since() {
            None => Some(work.await),
            Some(_) => None,
        };
        self.fuse.pass().await;
        match (self.cut_since(), done) {
            (None, Some(done)) => done,
            (since, _) => {
                sleep_until(since.unwrap_or_else(Instant::now) + ANSWER).await;
                Err(StoreError::Postgres(Arc::new(PostgresError::Silent(ANSWER))))
            }
        }
    }

    /// The coordinator has crashed: what was to be written later never was.
    pub(crate) async fn lose_unwritten(&self) {
        let durable = std::mem::take(&mut *self.durable.lock().unwrap());
        for ((kind, name), (since, mut document)) in durable.into_iter().collect::<BTreeMap<_, _>>() {
            let Some(newest) = self.inner.documents().get(kind, &name).await.unwrap() else { continue };
            if since.elapsed() < UNWRITTEN {
                document.metadata_mut().resource_version = newest.metadata().resource_version;
                self.inner.documents().update(document).await.unwrap();
                self.truth.with(|known| known.taken_back += 1);
            }
        }
    }

    async fn change(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError> {
        let (later, new, mut before) = (set.is_later, set.new.len(), Vec::new());
        for document in &set.changed {
            before.push(self.inner.documents().get(document.kind(), &document.metadata().name).await?);
        }
        let after = self.inner.documents().write(set).await?;
        for (before, after) in before.into_iter().zip(after.iter().skip(new)) {
            let Some(before) = before.filter(|before| before != after) else { continue };
            self.truth.changed(&before, after);
            let key = (after.kind(), after.metadata().name.clone());
            let mut durable = self.durable.lock().unwrap();
            if !later {
                durable.remove(&key);
            } else if durable.get(&key).is_none_or(|(since, _)| since.elapsed() >= UNWRITTEN) {
                durable.insert(key, (Instant::now(), before));
            }
        }
        Ok(after)
    }
}

#[async_trait]
impl DocumentStore for View {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        // From memory: neither slow nor a place to crash at.
        if let Some(cut) = &*self.cut.lock().unwrap() {
            return Ok(cut.documents.get(&(kind, name.to_owned())).cloned());
        }
        self.inner.documents().get(kind, name).await
    }
    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError> {
        if let Some(cut) = &*self.cut.lock().unwrap() {
            let all: Vec<_> = cut.documents.iter().filter(|((of, _), _)| *of == kind).collect();
            let left: Vec<_> = all.iter().filter(|((_, name), _)| name.as_str() > after).collect();
            let items = left.iter().take(limit).map(|(_, document)| (*document).clone()).collect();
            return Ok(Page { items, more: left.len() > limit, total: all.len() as u64, revision: 0 });
        }
        self.inner.documents().page(kind, after, limit).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.inner.documents().counts().await
    }
    async fn write(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError> {
        self.reach(self.change(set)).await
    }
    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError> {
        self.reach(self.inner.documents().delete_if(kind, name, version)).await
    }
    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        self.reach(self.inner.documents().history(kind, name, limit)).await
    }
    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError> {
        self.reach(self.inner.documents().trim_history(before, most)).await
    }
    fn unconfirmed(&self) -> Duration {
        self.cut_since().map_or(Duration::ZERO, |since| since.elapsed())
    }
    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.inner.documents().watch(kind, from_revision)
    }
}

#[async_trait]
impl EventLog for View {
    async fn append(&self, batch: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        self.reach(self.inner.events().append(batch)).await
    }
    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        self.reach(self.inner.events().list(workflow_uid, after, limit)).await
    }
    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError> {
        self.reach(self.inner.events().forget(workflow_uid)).await
    }
    async fn runs(&self) -> Result<Vec<LoggedRun>, StoreError> {
        self.reach(self.inner.events().runs()).await
    }
}

#[async_trait]
impl SecretStore for View {
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
        self.reach(self.inner.secrets().put(name, value, expires)).await
    }
    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        self.reach(self.inner.secrets().get(name, now)).await
    }
    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        self.reach(self.inner.secrets().consume(name, now)).await
    }
    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.reach(self.inner.secrets().purge(now)).await
    }
}
