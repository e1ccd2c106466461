//! The memory store as a disk that a coordinator's crash leaves behind: slow, and cut off from the crashed process at any
//! point between two of its operations, also between the moment something is durable and the moment it is answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind, message::EventRecord};
use landfall_sim::chance::Chance;
use landfall_store::{
    Counts, DocumentStore, EventLog, LoggedEvent, LoggedRun, Page, SecretStore, Store, StoreError, Watch, WatchError,
};
use std::sync::Mutex;
use tokio::time::{Instant, sleep};
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
    async fn around<T>(&self, work: impl Future<Output = T>) -> T {
        self.pass().await;
        let done = work.await;
        self.pass().await;
        done
    }
}

/// A coordinator's view of the store, for as long as its fuse holds, and what its crash takes back.
pub(crate) fn behind(inner: Store, fuse: Arc<Fuse>, truth: Truth) -> (Store, Arc<View>) {
    let view = Arc::new(View { inner, fuse, truth, durable: Mutex::default() });
    (Store::new(view.clone(), view.clone(), view.clone()), view)
}

/// So long at most a store on a disk leaves a status unwritten, as the coordinator asks of it.
const UNWRITTEN: Duration = Duration::from_secs(10);

pub(crate) struct View {
    inner: Store,
    fuse: Arc<Fuse>,
    truth: Truth,
    /// What the disk has of documents that are newer in memory, and since when.
    durable: Mutex<HashMap<(Kind, String), (Instant, Document)>>,
}

impl View {
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

    async fn replace(&self, document: Document, later: bool) -> Result<Document, StoreError> {
        let key = (document.kind(), document.metadata().name.clone());
        let before = self.inner.documents().get(key.0, &key.1).await?;
        let after = self.inner.documents().update(document).await?;
        if let Some(before) = before.filter(|before| *before != after) {
            self.truth.changed(&before, &after);
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
        self.inner.documents().get(kind, name).await
    }
    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError> {
        self.inner.documents().page(kind, after, limit).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.inner.documents().counts().await
    }
    async fn create(&self, document: Document) -> Result<Document, StoreError> {
        self.fuse.around(self.inner.documents().create(document)).await
    }
    async fn update(&self, document: Document) -> Result<Document, StoreError> {
        self.fuse.around(self.replace(document, false)).await
    }
    async fn update_later(&self, document: Document) -> Result<Document, StoreError> {
        self.fuse.around(self.replace(document, true)).await
    }
    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError> {
        self.fuse.around(self.inner.documents().delete_if(kind, name, version)).await
    }
    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        self.fuse.around(self.inner.documents().history(kind, name, limit)).await
    }
    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError> {
        self.fuse.around(self.inner.documents().trim_history(before, most)).await
    }
    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.inner.documents().watch(kind, from_revision)
    }
}

#[async_trait]
impl EventLog for View {
    async fn append(&self, batch: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        self.fuse.around(self.inner.events().append(batch)).await
    }
    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        self.fuse.around(self.inner.events().list(workflow_uid, after, limit)).await
    }
    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError> {
        self.fuse.around(self.inner.events().forget(workflow_uid)).await
    }
    async fn runs(&self) -> Result<Vec<LoggedRun>, StoreError> {
        self.fuse.around(self.inner.events().runs()).await
    }
}

#[async_trait]
impl SecretStore for View {
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
        self.fuse.around(self.inner.secrets().put(name, value, expires)).await
    }
    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        self.fuse.around(self.inner.secrets().get(name, now)).await
    }
    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        self.fuse.around(self.inner.secrets().consume(name, now)).await
    }
    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.fuse.around(self.inner.secrets().purge(now)).await
    }
}
