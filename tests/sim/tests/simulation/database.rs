//! A database that several coordinators have: one memory store, and what each of them sees of the others' sessions, as PostgreSQL's
//! store has it. Who leads, who is there, and who does what one alone does at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use landfall_api::Kind;
use landfall_store::{Alone, DocumentStore as _, Hold, MemoryStore, Store};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::{Instant, sleep};

use super::flag::Flag;

/// After so long without a question a session is ended.
const SILENT: Duration = Duration::from_secs(5);
/// The server ends a session that hangs in a transaction after so long: what is done alone is one.
const IN_TRANSACTION: Duration = Duration::from_secs(4);

/// A coordinator's way to the database.
#[derive(Clone)]
pub(crate) struct Link {
    /// Since when nothing is answered.
    cut: Flag<Option<Instant>>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { cut: Flag::new(None) }
    }
    pub(crate) fn cut_since(&self) -> Option<Instant> {
        self.cut.get()
    }
    /// It answered last at `since`.
    pub(crate) fn cut(&self, since: Instant) {
        self.cut.set(Some(since));
    }
    pub(crate) fn mend(&self) {
        self.cut.set(None);
    }
    pub(crate) async fn mended(&self) {
        self.cut.until(Option::is_none).await;
    }
    async fn is_cut_for(&self, long: Duration) {
        loop {
            let since = self.cut.until(Option::is_some).await.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = self.mended() => {}
                () = tokio::time::sleep_until(since + long) => return,
            }
        }
    }
}

/// The revision of all that a store in memory holds.
pub(crate) fn revision(rows: &MemoryStore) -> u64 {
    rows.page(Kind::Machine, "", 0).now_or_never().unwrap().unwrap().revision
}

/// One life of one of several coordinators, as the database knows it.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) life: u64,
    pub(crate) url: Arc<str>,
    pub(crate) link: Link,
    /// Whether its process has ended.
    pub(crate) over: Flag<bool>,
}

/// All of it.
#[derive(Clone)]
pub(crate) struct Database {
    rows: Arc<MemoryStore>,
    sessions: Arc<Mutex<Sessions>>,
    alone: [Arc<AsyncMutex<()>>; 2],
    /// Up to which revision it has been written.
    written: Flag<u64>,
}

#[derive(Default)]
struct Sessions {
    /// By the number of the life that has it.
    of: BTreeMap<u64, Session>,
    leads: Option<u64>,
}

struct Session {
    seat: Seat,
    silent: Option<Instant>,
}

impl Sessions {
    fn end_silent(&mut self) {
        self.of.retain(|_, session| session.silent.is_none_or(|since| since.elapsed() <= SILENT));
        if self.leads.is_some_and(|leads| !self.of.contains_key(&leads)) {
            self.leads = None;
        }
    }
}

impl Database {
    pub(crate) fn new() -> Self {
        let (rows, sessions, alone) = Default::default();
        Self { rows, sessions, alone, written: Flag::new(0) }
    }

    /// What it holds.
    pub(crate) fn store(&self) -> Store {
        Store::new(self.rows.clone(), self.rows.clone(), self.rows.clone())
    }

    /// The documents as of now, for one coordinator's memory.
    pub(crate) fn copy(&self) -> Arc<MemoryStore> {
        Arc::new(self.rows.copy())
    }

    /// Something was written: those that follow hear of it.
    pub(crate) fn wrote(&self) {
        self.written.set(revision(&self.rows));
    }

    pub(crate) async fn written_after(&self, known: u64) {
        self.written.until(|written| *written > known).await;
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A coordinator has a session from now on, unless one of its URL is there.
    pub(crate) fn come(&self, seat: &Seat) -> bool {
        let mut sessions = self.sessions();
        sessions.end_silent();
        let is_free = !sessions.of.iter().any(|(of, session)| *of != seat.life && session.seat.url == seat.url);
        if is_free && !seat.over.get() {
            sessions.of.insert(seat.life, Session { seat: seat.clone(), silent: None });
        }
        is_free
    }

    /// Nothing comes from that session any more.
    pub(crate) fn silent(&self, life: u64) {
        if let Some(session) = self.sessions().of.get_mut(&life) {
            session.silent.get_or_insert_with(Instant::now);
        }
    }

    /// The process of that session ended.
    pub(crate) fn gone(&self, life: u64) {
        let mut sessions = self.sessions();
        sessions.of.remove(&life);
        sessions.end_silent();
    }

    /// The server crashes: every session is gone. Answers who had one.
    pub(crate) fn crash(&self) -> Vec<Seat> {
        let sessions = std::mem::take(&mut *self.sessions());
        let seats: Vec<_> = sessions.of.into_values().map(|session| session.seat).collect();
        seats.iter().for_each(|seat| seat.link.cut(Instant::now()));
        seats
    }

    /// Leads from now on, unless another one does.
    pub(crate) fn lead(&self, life: u64) -> bool {
        let mut sessions = self.sessions();
        sessions.end_silent();
        sessions.of.contains_key(&life) && *sessions.leads.get_or_insert(life) == life
    }

    pub(crate) fn leads(&self, life: u64) -> bool {
        let mut sessions = self.sessions();
        sessions.end_silent();
        sessions.leads == Some(life)
    }

    /// Who leads no more.
    pub(crate) fn cease(&self, life: u64) {
        self.sessions().leads.take_if(|leads| *leads == life);
    }

    /// The URLs of those that are there.
    pub(crate) fn there(&self) -> Vec<Arc<str>> {
        let mut sessions = self.sessions();
        sessions.end_silent();
        sessions.of.values().map(|session| session.seat.url.clone()).collect()
    }

    /// Waits until no other one does the same. It ends with the process (`over`), or when that cannot be reached for too long.
    pub(crate) async fn hold(&self, what: Alone, link: &Link, over: Flag<bool>) -> Hold {
        let guard = self.alone[what as usize].clone().lock_owned().await;
        let (release, released) = oneshot::channel();
        let (is_lost, link) = (Arc::<AtomicBool>::default(), link.clone());
        let seen = revision(&self.rows);
        let lost = is_lost.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = released => {}
                () = link.is_cut_for(IN_TRANSACTION) => lost.store(true, Ordering::Release),
                _ = over.until(|over| *over) => sleep(IN_TRANSACTION).await,
            }
            drop(guard);
        });
        Hold::of(seen, release, is_lost)
    }
}
