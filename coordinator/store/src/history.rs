//! Watching: the last changes, kept in memory within a bound, and cursors over them.
//!
//! A cursor holds no queue: a slow reader costs nothing, and learns that it is too late from a typed `Expired` answer.
//! After a restart nothing is kept, so every older revision is expired but the newest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use landfall_api::{Document, Kind};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::{error::StoreError, json};

/// This many changes are kept for watchers,
const KEPT: usize = 4096;
/// of at most so many bytes of documents in all, as JSON.
const KEPT_BYTES: usize = 32 << 20;

/// What happened to a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOp {
    /// It is new.
    Added,
    /// It was replaced.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change.
#[derive(Debug, Clone)]
pub struct Change {
    /// The store's revision after it; rises by one with every change.
    pub revision: u64,
    /// What happened.
    pub op: ChangeOp,
    /// The document after it, or as it was when it was deleted.
    pub document: Document,
    /// The same as JSON, once anybody has asked for it.
    encoded: Arc<OnceLock<Arc<RawValue>>>,
    /// The length of that JSON, or of the last one that was made of the document.
    pub(crate) bytes: usize,
    /// Whether the disk has it too.
    pub(crate) is_written: bool,
    /// Whether another coordinator may have made it.
    is_of_others: bool,
}

impl Change {
    /// A change that was encoded for the disk.
    pub(crate) fn encoded(revision: u64, op: ChangeOp, document: Document, json: Arc<RawValue>) -> Self {
        let bytes = json.get().len();
        Self { revision, op, document, encoded: Arc::new(json.into()), bytes, is_written: true, is_of_others: true }
    }

    /// A change that is written later; `bytes` is the length of what was written last.
    pub(crate) fn unwritten(revision: u64, document: Document, bytes: usize) -> Self {
        let (encoded, op) = (Arc::default(), ChangeOp::Modified);
        Self { revision, op, document, encoded, bytes, is_written: false, is_of_others: true }
    }

    /// The same, made by this coordinator.
    pub(crate) fn own(self) -> Self {
        Self { is_of_others: false, ..self }
    }

    /// Whether another coordinator may have made it. Where the store cannot tell, it may.
    pub fn is_of_others(&self) -> bool {
        self.is_of_others
    }

    /// The document's JSON, if it was made already.
    pub(crate) fn written_json(&self) -> Option<&str> {
        self.encoded.get().map(|json| json.get())
    }

    /// The document as JSON. Encoded once, for the disk and for every watcher.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], [`StoreError::Corrupt`].
    pub fn json(&self) -> Result<Arc<RawValue>, StoreError> {
        if let Some(json) = self.encoded.get() {
            return Ok(json.clone());
        }
        let json = json::encoded(&self.document)?;
        Ok(self.encoded.get_or_init(|| json).clone())
    }
}

/// A watch that cannot go on.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Changes after `asked` are no longer known; list again and watch from there.
    #[error("changes after revision {asked} are no longer kept; list again and watch from the revision of that list")]
    Expired { asked: u64, oldest: u64 },
    /// The store was shut down.
    #[error("the store is shut down")]
    Closed,
}

struct Kept {
    /// Changes with revisions `floor + 1 ..= newest`, without gaps: where the store leaves revisions out, it begins after those.
    changes: VecDeque<Change>,
    /// What their documents come to.
    bytes: usize,
    floor: u64,
}

pub(super) struct History {
    kept: Arc<Mutex<Kept>>,
    newest: watch::Sender<u64>,
}

impl History {
    pub(super) fn starting_at(revision: u64) -> Self {
        let kept = Kept { changes: VecDeque::new(), bytes: 0, floor: revision };
        Self { kept: Arc::new(Mutex::new(kept)), newest: watch::Sender::new(revision) }
    }

    pub(super) fn publish(&self, change: Change) {
        let revision = change.revision;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if revision != kept.floor + kept.changes.len() as u64 + 1 {
            *kept = Kept { changes: VecDeque::new(), bytes: 0, floor: revision - 1 };
        }
        kept.bytes += change.bytes;
        kept.changes.push_back(change);
        while kept.changes.len() > KEPT || kept.bytes > KEPT_BYTES {
            let Some(oldest) = kept.changes.pop_front() else { break };
            kept.bytes -= oldest.bytes;
            kept.floor += 1;
        }
        drop(kept);
        self.newest.send_replace(revision);
    }

    /// Forgets everything: what follows begins after `revision`.
    pub(super) fn begin_again(&self, revision: u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Kept { changes: VecDeque::new(), bytes: 0, floor: revision };
        drop(kept);
        self.newest.send_replace(revision);
    }

    pub(super) fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        let oldest = self.kept.lock().unwrap_or_else(PoisonError::into_inner).floor;
        let newest = self.newest.subscribe();
        if from_revision < oldest || from_revision > *newest.borrow() {
            return Err(WatchError::Expired { asked: from_revision, oldest });
        }
        Ok(Watch { kept: self.kept.clone(), newest, kind, seen: from_revision })
    }
}

/// A cursor over changes.
pub struct Watch {
    kept: Arc<Mutex<Kept>>,
    newest: watch::Receiver<u64>,
    kind: Option<Kind>,
    seen: u64,
}

impl Watch {
    /// The next change, as soon as there is one. Cancel safe.
    ///
    /// # Errors
    /// [`WatchError::Expired`] once, if this cursor fell behind what is kept; [`WatchError::Closed`] at shutdown.
    pub async fn next(&mut self) -> Result<Change, WatchError> {
        loop {
            self.newest.borrow_and_update();
            if let Some(change) = self.advance()? {
                return Ok(change);
            }
            self.newest.changed().await.map_err(|_| WatchError::Closed)?;
        }
    }

    fn advance(&mut self) -> Result<Option<Change>, WatchError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.seen < kept.floor {
            return Err(WatchError::Expired { asked: self.seen, oldest: kept.floor });
        }
        // Cannot truncate: at most KEPT changes lie above the floor.
        let skip = (self.seen - kept.floor) as usize;
        for change in kept.changes.iter().skip(skip) {
            self.seen = change.revision;
            if self.kind.is_none_or(|kind| kind == change.document.kind()) {
                return Ok(Some(change.clone()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_kept_for_watchers_are_bounded_in_bytes() {
        let document = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}}});
        let document = Document::from_value(document).unwrap();
        let history = History::starting_at(0);
        let of = |revision, bytes: usize| {
            let json = RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap().into();
            Change::encoded(revision, ChangeOp::Modified, document.clone(), json)
        };
        for revision in 1..=100 {
            history.publish(of(revision, 1 << 20));
        }
        assert_eq!(history.watch(None, 67).err(), Some(WatchError::Expired { asked: 67, oldest: 68 }));
        assert!(history.watch(None, 68).is_ok());
        for revision in 101..=5100 {
            history.publish(of(revision, 100));
        }
        assert_eq!(history.watch(None, 0).err(), Some(WatchError::Expired { asked: 0, oldest: 5100 - KEPT as u64 }));
        assert_eq!(history.kept.lock().unwrap().bytes, KEPT * 100);
    }
}
