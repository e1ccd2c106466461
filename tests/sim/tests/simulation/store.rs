//! The memory store as a disk that a coordinator's crash leaves behind: slow, and cut off from the crashed process at any
//! point between two of its operations, also between the moment something is durable and the moment it is answered. Or as a database
//! that a coordinator is cut off from, which goes on with what it has in memory; others may write to it, and it hears of that late.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind, message::EventRecord};
use landfall_sim::chance::Chance;
use landfall_store::{
    Alone, ChangeSet, Counts, DocumentStore, EventLog, Hold, LoggedEvent, LoggedRun, MemoryStore, Page, PostgresError,
    SecretStore, Store, StoreError, Watch, WatchError,
};
use std::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::database::{Database, Link, revision};
use super::{flag::Flag, truth::Truth};

/// One life of a coordinator: after its end, its tasks no longer reach the store.
pub(crate) struct Fuse {
    chance: Mutex<Chance>,
    /// Steps until the crash; `None`: it will not crash by itself.
    left: Mutex<Option<u64>>,
    pub(crate) blown: Flag<bool>,
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
    pub(crate) fn draw<T>(&self, with: impl FnOnce(&mut Chance) -> T) -> T {
        with(&mut self.chance.lock().unwrap())
    }
    async fn pass(&self) {
        let delay = self.draw(|chance| chance.below(6));
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

/// A coordinator's view of the store, for as long as its fuse holds, and what its crash takes back. `own`: it is one of several.
pub(crate) fn behind(
    database: &Database, own: Option<Arc<str>>, fuse: Arc<Fuse>, link: Link, truth: Truth,
) -> (Store, Arc<View>) {
    let (inner, memory) = (database.store(), database.copy());
    let following = Mutex::new(inner.documents().watch(None, revision(&memory)).unwrap());
    let view = View {
        database: database.clone(),
        inner,
        memory,
        following,
        own,
        fuse,
        truth,
        link,
        wrote: Mutex::default(),
        durable: Mutex::default(),
    };
    let view = Arc::new(view);
    (Store::new(view.clone(), view.clone(), view.clone()), view)
}

/// So long at most a store on a disk leaves a status unwritten, as the coordinator asks of it.
const UNWRITTEN: Duration = Duration::from_secs(10);
/// So long a coordinator waits for an answer of a database that it cannot reach.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

pub(crate) struct View {
    database: Database,
    inner: Store,
    /// What the coordinator has in memory.
    memory: Arc<MemoryStore>,
    /// What the memory does not have yet.
    following: Mutex<Watch>,
    /// Its URL, where it is one of several.
    own: Option<Arc<str>>,
    fuse: Arc<Fuse>,
    truth: Truth,
    link: Link,
    /// The revisions that it wrote and has not taken in: it knows what is in them.
    wrote: Mutex<BTreeSet<u64>>,
    /// What the disk has of documents that are newer in memory, and since when.
    durable: Mutex<HashMap<(Kind, String), (Instant, Document)>>,
}

impl View {
    /// Takes in what others write, as late as they are heard of.
    pub(crate) async fn follow(&self) {
        loop {
            let known = revision(&self.memory);
            self.database.written_after(known).await;
            // By a hint, at most 20 in a second; or by a look, twice in a second.
            let late = self.fuse.draw(|chance| if chance.percent(80) { chance.below(50) } else { chance.below(600) });
            sleep(Duration::from_millis(late)).await;
            self.link.mended().await;
            self.catch_up();
        }
    }

    fn catch_up(&self) {
        let mut following = self.following.lock().unwrap();
        while self.link.cut_since().is_none()
            && let Some(change) = tokio::task::unconstrained(following.next()).now_or_never()
        {
            let change = change.unwrap();
            let is_own = self.wrote.lock().unwrap().remove(&change.revision);
            self.memory.take_in(change, is_own);
        }
    }

    /// Does something to the store, unless a crash or a cut comes between; or between that and the answer.
    async fn reach<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.reach_and_write(async { Ok((work.await?, Vec::new())) }).await
    }

    /// The same. `work` answers with the revisions that it wrote; with the answer this coordinator knows that they are its own.
    async fn reach_and_write<T>(
        &self, work: impl Future<Output = Result<(T, Vec<u64>), StoreError>>,
    ) -> Result<T, StoreError> {
        // A connection may break at any time, before what was asked or after it.
        let breaks = self.own.is_some() && self.fuse.draw(|chance| chance.below(400) == 0);
        let in_time = async {
            self.fuse.pass().await;
            self.link.mended().await;
            let done = work.await;
            self.fuse.pass().await;
            self.link.mended().await;
            if let Ok((_, revisions)) = &done
                && !breaks
            {
                let known = revision(&self.memory);
                self.wrote.lock().unwrap().extend(revisions.iter().filter(|revision| **revision > known));
            }
            self.catch_up();
            Ok(done?.0)
        };
        let lost = |after| StoreError::Postgres(Arc::new(PostgresError::Silent(after)));
        if self.database.down().get() {
            return Err(lost(Duration::ZERO));
        }
        if breaks && self.fuse.draw(|chance| chance.percent(50)) {
            return Err(lost(Duration::ZERO));
        }
        let answer = tokio::select! {
            biased;
            () = self.link.lost(self.database.down()) => return Err(lost(Duration::ZERO)),
            answer = timeout(ANSWER, in_time) => answer.unwrap_or_else(|_| Err(lost(ANSWER))),
        };
        if breaks { Err(lost(Duration::ZERO)) } else { answer }
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

    async fn change(&self, mut set: ChangeSet) -> Result<(Vec<Document>, Vec<u64>), StoreError> {
        let (later, new, mut before) = (set.is_later, set.new.len(), Vec::new());
        for document in &mut set.new {
            // By the seed: what goes by their order is the same each time.
            let uid = self.fuse.draw(|chance| Uuid::from_u64_pair(chance.next(), chance.next()));
            document.metadata_mut().uid.get_or_insert(uid);
        }
        for document in &set.changed {
            before.push(self.inner.documents().get(document.kind(), &document.metadata().name).await?);
        }
        self.database.in_turn()?;
        let after = self.inner.documents().write(set).await?;
        self.database.wrote();
        let version = |document: &Document| document.metadata().resource_version;
        let mut revisions: Vec<_> = after.iter().take(new).map(version).collect();
        for (before, after) in before.into_iter().zip(after.iter().skip(new)) {
            let Some(before) = before.filter(|before| before != after) else { continue };
            revisions.push(version(after));
            match (&before, after) {
                (Document::Machine(old), Document::Machine(new)) => {
                    let workflow = match new.status.as_ref().and_then(|status| status.workflow.as_deref()) {
                        Some(name) => self.inner.workflow(name).await?.and_then(|workflow| workflow.metadata.uid),
                        None => None,
                    };
                    self.truth.machine_changed(old, new, workflow);
                }
                (Document::Workflow(old), Document::Workflow(new)) => {
                    let machine = self.inner.machine(&new.spec.machine).await?.unwrap();
                    self.truth.workflow_changed(self.own.as_deref(), &machine, old, new);
                }
                _ => {}
            }
            if self.own.is_some() {
                continue;
            }
            let key = (after.kind(), after.metadata().name.clone());
            let mut durable = self.durable.lock().unwrap();
            if !later {
                durable.remove(&key);
            } else if durable.get(&key).is_none_or(|(since, _)| since.elapsed() >= UNWRITTEN) {
                durable.insert(key, (Instant::now(), before));
            }
        }
        Ok((after, revisions))
    }
}

#[async_trait]
impl DocumentStore for View {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        // From memory: neither slow nor a place to crash at.
        DocumentStore::get(&*self.memory, kind, name).await
    }
    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError> {
        self.memory.page(kind, after, limit).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.memory.counts().await
    }
    async fn write(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError> {
        self.reach_and_write(self.change(set)).await
    }
    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError> {
        self.reach(async {
            self.database.in_turn()?;
            let deleted = self.inner.documents().delete_if(kind, name, version).await?;
            self.database.wrote();
            Ok(deleted)
        })
        .await
    }
    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        self.reach(self.inner.documents().history(kind, name, limit)).await
    }
    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError> {
        self.reach(self.inner.documents().trim_history(before, most)).await
    }
    fn unconfirmed(&self) -> Duration {
        self.link.cut_since().map_or(Duration::ZERO, |since| since.elapsed())
    }
    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.memory.watch(kind, from_revision)
    }
    async fn hold(&self, what: Alone) -> Result<Hold, StoreError> {
        self.reach(async { Ok(self.database.hold(what, &self.link, self.fuse.blown.clone()).await) }).await
    }
}

#[async_trait]
impl EventLog for View {
    async fn append(&self, epoch: u64, batch: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        self.reach(async {
            let of: Vec<_> = batch.iter().map(|event| event.workflow_uid).collect();
            let stored = self.inner.events().append(epoch, batch).await;
            self.truth.appended(&of, epoch, &stored);
            stored
        })
        .await
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
    async fn swap(
        &self, name: &str, old: Option<&[u8]>, value: &[u8], expires: Timestamp, now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.reach(self.inner.secrets().swap(name, old, value, expires, now)).await
    }
    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        self.reach(self.inner.secrets().consume(name, now)).await
    }
    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.reach(self.inner.secrets().purge(now)).await
    }
}
