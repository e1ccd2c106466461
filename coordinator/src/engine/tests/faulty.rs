//! A store in memory that refuses writes when a test says so, as one on a full disk does, or may have been taken by another
//! coordinator.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use landfall_api::HistoryEntry;

use super::*;
use landfall_store::{
    Alone, ChangeSet, Counts, DocumentStore, Hold, MemoryStore, Page, StoreError, Turn, Watch, WatchError,
};

type Refuses = Box<dyn Fn(&Document) -> bool + Send>;
/// What another writer makes of a document; whether it writes.
type Changes = Box<dyn FnMut(&mut Document) -> bool + Send>;
/// What another writer creates after a write.
type Creates = Box<dyn Fn(&Document) -> Option<Document> + Send>;

#[derive(Default)]
pub(super) struct Faulty {
    memory: Arc<MemoryStore>,
    refuses: Mutex<Option<Refuses>>,
    creates: Mutex<Option<Creates>>,
    contends: Mutex<Option<Changes>>,
    unconfirmed: Mutex<Duration>,
    /// Whether others have had their turn since this coordinator had any of its own.
    pub(super) others_had_turns: AtomicBool,
    updates: AtomicUsize,
    most_updates: AtomicUsize,
}

impl Faulty {
    pub(super) fn store(self: &Arc<Self>) -> Store {
        Store::new(self.clone(), self.memory.clone(), self.memory.clone())
    }

    /// From now on no document is written of which this is so.
    pub(super) fn refuse(&self, which: impl Fn(&Document) -> bool + Send + 'static) {
        *self.refuses.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(which));
    }

    /// From now on another writer comes just before each update and each deletion of a document, where this says so.
    pub(super) fn contend(&self, changes: impl FnMut(&mut Document) -> bool + Send + 'static) {
        *self.contends.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(changes));
    }

    /// Another coordinator changes the machine just before it is written next.
    pub(super) fn overtake(&self, mut change: impl FnMut(&mut Machine) + Send + 'static) {
        let mut is_done = false;
        self.contend(move |document| match document {
            Document::Machine(machine) if !std::mem::replace(&mut is_done, true) => {
                change(machine);
                true
            }
            _ => false,
        });
    }

    /// From now on nothing has confirmed for so long that the store is this coordinator's.
    pub(super) fn leave_unconfirmed(&self, duration: Duration) {
        *self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner) = duration;
    }

    /// Everything is written again.
    pub(super) fn mend(&self) {
        *self.refuses.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.contends.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Another writer creates a document right after a write that this answers one for.
    pub(super) fn then(&self, creates: impl Fn(&Document) -> Option<Document> + Send + 'static) {
        *self.creates.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(creates));
    }

    /// The most updates that were under way at one time since this was asked.
    pub(super) fn most_updates(&self) -> usize {
        self.most_updates.swap(0, Ordering::SeqCst)
    }

    /// Lets another writer come before what is about to be written.
    async fn be_overtaken(&self, kind: Kind, name: &str) -> Result<(), StoreError> {
        let Some(mut newer) = self.memory.get(kind, name).await? else { return Ok(()) };
        let contended = {
            let mut contends = self.contends.lock().unwrap_or_else(PoisonError::into_inner);
            contends.as_mut().is_some_and(|contends| contends(&mut newer))
        };
        if contended {
            self.memory.update(newer).await?;
        }
        Ok(())
    }

    fn in_turn(&self) -> Result<(), StoreError> {
        let is_over = Turn::now().is_some() && self.others_had_turns.load(Ordering::SeqCst);
        if is_over { Err(StoreError::NotAlone) } else { Ok(()) }
    }

    fn ask(&self, document: &Document) -> Result<(), StoreError> {
        let refuses = self.refuses.lock().unwrap_or_else(PoisonError::into_inner);
        if refuses.as_ref().is_some_and(|refuses| refuses(document)) { Err(StoreError::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl DocumentStore for Faulty {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        self.memory.get(kind, name).await
    }
    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError> {
        self.memory.page(kind, after, limit).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.memory.counts().await
    }
    async fn write(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError> {
        self.in_turn()?;
        set.new.iter().chain(&set.changed).try_for_each(|document| self.ask(document))?;
        let under_way = self.updates.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_updates.fetch_max(under_way, Ordering::SeqCst);
        // As long as a commit takes: all that can be asked for meanwhile is.
        for _ in 0..32 {
            tokio::task::yield_now().await;
        }
        self.updates.fetch_sub(1, Ordering::SeqCst);
        for document in &set.changed {
            self.be_overtaken(document.kind(), &document.metadata().name).await?;
        }
        let written = self.memory.write(set).await?;
        let others: Vec<_> = {
            let creates = self.creates.lock().unwrap_or_else(PoisonError::into_inner);
            creates.iter().flat_map(|creates| written.iter().filter_map(creates)).collect()
        };
        for other in others {
            self.memory.create(other).await?;
        }
        Ok(written)
    }
    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError> {
        self.in_turn()?;
        self.be_overtaken(kind, name).await?;
        self.memory.delete_if(kind, name, version).await
    }
    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        self.memory.history(kind, name, limit).await
    }
    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError> {
        self.memory.trim_history(before, most).await
    }
    async fn hold(&self, what: Alone) -> Result<Hold, StoreError> {
        let release = tokio::sync::oneshot::channel().0;
        Ok(Hold::of(Turn { what, number: 1 }, 0, release, Arc::new(|| Duration::ZERO)))
    }
    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.memory.watch(kind, from_revision)
    }
    fn unconfirmed(&self) -> Duration {
        *self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A world over such a store, with one machine and one template.
pub(super) async fn faulty_world() -> (Arc<Faulty>, World) {
    let faulty = Arc::new(Faulty::default());
    let world = World::over(faulty.store(), Arc::new(AtomicI64::new(1_000_000))).await.described().await;
    (faulty, world)
}
