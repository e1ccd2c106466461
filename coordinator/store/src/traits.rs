//! The traits a back end implements: documents, events, secrets, and the upkeep that only a store on a disk has.

use std::sync::Arc;
use std::{path::Path, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind, message::EventRecord};
use uuid::Uuid;

use crate::counts::Counts;
use crate::error::StoreError;
use crate::history::{Watch, WatchError};
use crate::hold::{Alone, Hold};

/// Compare-and-swap on one document, list, watch, and what was changed by whom.
///
/// Who changes something is not an argument but [`crate::actor`]'s context: most writes are the engine's own.
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// The document, if there is one. What a store answers is shared with it, never copied: a fleet's documents are read often.
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError>;
    /// At most `limit` documents of a kind, by name, beginning with the first whose name is greater than `after`.
    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError>;
    /// Every document of a kind by name, and the revision of the whole store at which that was so.
    async fn list(&self, kind: Kind) -> Result<(Vec<Document>, u64), StoreError> {
        let all = self.page(kind, "", usize::MAX).await?;
        Ok((all.items, all.revision))
    }
    /// How many documents there are.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// Makes changes that are one: all of them or none, each document once, and only while those of `seen` are as they were read.
    /// Answers the new documents and then the changed ones, in their order.
    ///
    /// # Errors
    /// As [`Self::create`] and [`Self::update`], of the first that is refused.
    async fn write(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError>;
    /// Stores a new document; gives it uid, generation 1, resourceVersion and creation time where they are missing.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`].
    async fn create(&self, document: Document) -> Result<Document, StoreError> {
        one(self.write(ChangeSet { new: vec![document], ..ChangeSet::default() }).await?)
    }
    /// Replaces a document if `metadata.resourceVersion` is the one stored. The generation rises exactly if the spec
    /// changed; uid and creation time stay the stored ones. A document equal to the stored one is not written again.
    ///
    /// A document whose deletion was asked for keeps its `deletionTimestamp` and takes no new finalizers; the write that
    /// removes its last one removes the document, and answers what it was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`].
    async fn update(&self, document: Document) -> Result<Document, StoreError> {
        one(self.write(ChangeSet { changed: vec![document], ..ChangeSet::default() }).await?)
    }
    /// The same as [`ChangeSet::is_later`].
    ///
    /// # Errors
    /// As [`DocumentStore::update`].
    async fn update_later(&self, document: Document) -> Result<Document, StoreError> {
        one(self.write(ChangeSet { changed: vec![document], is_later: true, ..ChangeSet::default() }).await?)
    }
    /// Whether [`ChangeSet::is_later`] leaves anything unwritten.
    fn writes_later(&self) -> bool {
        false
    }
    /// Deletes a document and answers what it was. One with finalizers is only marked: it has a `deletionTimestamp` from
    /// then on, and goes with its last finalizer; asked for again, nothing more happens.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn delete(&self, kind: Kind, name: &str) -> Result<Document, StoreError> {
        self.delete_if(kind, name, None).await
    }
    /// The same, of the document with that `resourceVersion` alone, where one is stated.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`].
    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError>;
    /// The newest `limit` changes of what people decide about a document (see `journal`), oldest first; also of one that
    /// is gone. Kept within [`crate::HISTORY_PER_DOCUMENT`].
    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError>;
    /// Drops changes older than `before`, and the oldest beyond `most` of all documents together; how many there were.
    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError>;
    /// Changes after `from_revision`, of one kind or of all. The watch answers [`WatchError::Expired`] when changes it
    /// has not handed out are no longer kept; list again then.
    ///
    /// # Errors
    /// [`WatchError::Expired`] if that revision is already too old (or from the future: another store's).
    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError>;
    /// The newest revision that is stored. Where several coordinators write, this one may not have taken it in yet.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    async fn newest(&self) -> Result<u64, StoreError> {
        Ok(self.page(Kind::Machine, "", 0).await?.revision)
    }
    /// Waits for the other coordinators that do the same thing, and keeps them from it until the answer is dropped: for 4 s at most
    /// where this one hangs.
    ///
    /// # Errors
    /// [`StoreError`] of the back end; the others take too long.
    async fn hold(&self, what: Alone) -> Result<Hold, StoreError> {
        tracing::trace!(?what, "there are no others");
        Ok(Hold::default())
    }
    /// Waits until nothing can be written any more: every later write fails.
    async fn ended(&self) -> Ended {
        std::future::pending().await
    }
    /// For how long nothing has confirmed that others see this coordinator at work. Zero where there are no others. Below
    /// [`crate::CONFIRMED_WITHIN`] none has taken its machines over, and what an agent is promised holds.
    fn unconfirmed(&self) -> Duration {
        Duration::ZERO
    }
    /// The stored documents that could not be read when all were loaded last.
    fn unreadable(&self) -> Arc<Vec<Unreadable>> {
        Arc::default()
    }
}

fn one(mut stored: Vec<Document>) -> Result<Document, StoreError> {
    stored.pop().ok_or(StoreError::Closed)
}

/// Changes that are made together.
#[derive(Debug, Default)]
pub struct ChangeSet {
    /// To be created.
    pub new: Vec<Document>,
    /// To be updated.
    pub changed: Vec<Document>,
    /// What they go by besides.
    pub seen: Vec<Seen>,
    /// What is changed are statuses that a crash may take back, because the event log or the agent says them again: readers and
    /// watchers see them at once, and a store on a disk may write them as late as [`Upkeep::write_older`] asks for it. Whatever
    /// writes a machine writes its workflow with it, and the other way round.
    pub is_later: bool,
}

/// A document that a change goes by and leaves as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The resourceVersion that was read.
    pub version: u64,
}

/// The secret that changes whenever a database that went back is marked as such. A coordinator that knew an earlier one begins anew.
pub const INCARNATION: &str = "store/incarnation";

/// At least so many revisions and positions are left out where a store went back: more than it can have given out since. As etcd's
/// documentation advises for a restored snapshot (`--bump-revision`): a week of 1,500 changes each second.
pub(crate) const LEFT_OUT: u64 = 1_000_000_000;
/// And up to so many more: where it goes back to the same state a second time, it does not give out the same numbers again. JSON's
/// numbers are exact up to 2^53: enough for 9,000 times.
const MORE: u64 = 1_000_000_000_000;

/// How many are left out now.
pub(crate) fn left_out() -> u64 {
    LEFT_OUT + Uuid::new_v4().as_u64_pair().1 % MORE
}

/// Why a store cannot be written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// What writes it has panicked.
    Failed,
    /// It is not what it was: the coordinator must begin anew.
    WentBack,
}

/// Documents of a kind, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// They.
    pub items: Vec<Document>,
    /// Whether there are others beyond the last of them.
    pub more: bool,
    /// How many there are of the kind.
    pub total: u64,
    /// The revision of the whole store at which that was so.
    pub revision: u64,
}

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedEvent {
    /// Rises with every event of the log, from 1.
    pub position: u64,
    /// The event.
    #[serde(flatten)]
    pub record: EventRecord,
}

/// The log of what agents reported.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Appends a batch, all or nothing, durable when this returns; answers each one's position. An event with the
    /// (workflow, action, attempt, seq) of one that is there is not stored again and answers the position of the first.
    ///
    /// `epoch` is of the session that reports it. Where several coordinators have the store, it counts in the transaction itself: what
    /// this one knows of the machine may be behind. (One that has its store alone has asked before, under the machine's lock.)
    ///
    /// # Errors
    /// [`StoreError::EventGap`], [`StoreError::TooManyEvents`]; [`StoreError::NewerEpoch`] where a workflow in the batch was its machine's
    /// newest when the machine was stored with a higher epoch.
    async fn append(&self, epoch: u64, batch: Vec<EventRecord>) -> Result<Vec<u64>, StoreError>;
    /// The events of one workflow with a position above `after`, in order, at most `limit`.
    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError>;
    /// Drops every event of a workflow; how many there were.
    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError>;
    /// Every workflow that has events, the one whose newest event is oldest first.
    async fn runs(&self) -> Result<Vec<LoggedRun>, StoreError>;
}

/// How much the log holds of one workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedRun {
    /// The run.
    pub workflow_uid: Uuid,
    /// Its events.
    pub events: u64,
    /// The position of its newest event.
    pub newest: u64,
}

/// Small secrets by name, each with an end.
#[async_trait]
pub trait SecretStore: Send + Sync {
    /// Stores or replaces a secret.
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError>;
    /// The secret, unless it has expired at `now`.
    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError>;
    /// Stores a secret if the one that is there at `now` is `old` (`None`: if there is none), and answers whether it did. Of two callers
    /// with the same `old` one stores.
    async fn swap(
        &self, name: &str, old: Option<&[u8]>, value: &[u8], expires: Timestamp, now: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Takes the secret away and answers it, unless it has expired at `now`: of two callers one gets it.
    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError>;
    /// Drops everything that has expired at `now`; how many there were.
    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError>;
    /// Keeps `incarnation` as the secret [`INCARNATION`]: the store went back, and what it kept since then is lost. A store that
    /// outlives its process leaves out a billion revisions or more in the same commit, and as many positions of events and of the audit log.
    /// So nothing that is stored from now on has a number of what was lost: who watched that is answered [`WatchError::Expired`], and no later
    /// version of a document is taken for one of it.
    async fn begin_incarnation(&self, incarnation: &[u8]) -> Result<(), StoreError> {
        self.put(INCARNATION, incarnation, Timestamp::MAX).await
    }
}

/// What only a store on this host's own disk has: a size, and a copy of itself.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// How much disk it takes.
    async fn sizes(&self) -> Result<Sizes, StoreError>;
    /// Writes what [`ChangeSet::is_later`] has left unwritten for longer than `age`; durable when this returns.
    async fn write_older(&self, age: Duration) -> Result<(), StoreError>;
    /// Writes a consistent copy, durable when this returns, to `to`, which must not be there. Writers go on meanwhile.
    async fn snapshot(&self, to: &Path) -> Result<(), StoreError>;
}

/// A stored document that this version cannot read. It stays in the store as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its kind, as stored.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.name, self.why)
    }
}

/// How much disk a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The database, bytes.
    pub database: u64,
    /// The write-ahead log beside it, bytes.
    pub wal: u64,
}
