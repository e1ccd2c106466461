//! What one of several coordinators does at a time.
//!
//! A coordinator that hangs is not waited for: the database ends what it holds, and another one has its turn. So what it writes when it
//! wakes up names the turn that it was asked for in, as [`crate::acting`] names its author, and the back end refuses one that is over.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

/// What one of several coordinators does at a time, because it goes by more than one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// It writes which computer is which machine.
    Identity,
    /// It begins a workflow, if there is room beside the others.
    Beginning,
    /// It writes a secret: its values and its document are two writes.
    Secret,
}

/// A coordinator may go on for so long after the store last confirmed that it is there: another one takes its machines over no
/// earlier.
pub const CONFIRMED_WITHIN: Duration = Duration::from_secs(4);

/// For how long nothing has confirmed something.
pub type Unconfirmed = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Which turn something is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// What is done in it.
    pub what: Alone,
    /// Rises with each turn that begins, at whichever coordinator.
    pub number: u64,
}

tokio::task_local! {
    static TURN: Option<Turn>;
}

impl Turn {
    /// The turn that what is written now belongs to, if any.
    pub fn now() -> Option<Self> {
        TURN.try_with(|turn| *turn).ok().flatten()
    }
}

/// No other coordinator does the same until this is dropped.
#[derive(Default)]
pub struct Hold {
    /// What others stored up to this revision counts; absent where there are no others.
    pub seen: Option<u64>,
    pub(crate) turn: Option<Turn>,
    pub(crate) release: Option<oneshot::Sender<()>>,
    /// For how long nothing has confirmed it.
    pub(crate) unconfirmed: Option<Unconfirmed>,
}

impl Hold {
    /// One for this turn, that sends a word to `release` when it is dropped, and is confirmed by `unconfirmed`.
    #[cfg(feature = "testing")]
    pub fn of(turn: Turn, seen: u64, release: oneshot::Sender<()>, unconfirmed: Unconfirmed) -> Self {
        Self { seen: Some(seen), turn: Some(turn), release: Some(release), unconfirmed: Some(unconfirmed) }
    }

    /// Whether no other coordinator can do the same: the server ends it no earlier than [`CONFIRMED_WITHIN`] after it was confirmed.
    pub fn holds(&self) -> bool {
        self.unconfirmed.as_ref().is_none_or(|unconfirmed| unconfirmed() < CONFIRMED_WITHIN)
    }

    /// Runs `work`. What it writes of documents, and what it puts and consumes of secrets, is refused
    /// ([`crate::StoreError::NotAlone`]) if another coordinator has had its turn since. A task that it spawns is outside.
    pub async fn during<F: Future>(&self, work: F) -> F::Output {
        TURN.scope(self.turn, work).await
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Where the connection that holds it is gone, so is the lock.
        self.release.take().map(|release| release.send(()));
    }
}
