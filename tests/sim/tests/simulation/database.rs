//! A database that several coordinators have: one memory store, and what each of them sees of the others' sessions, as PostgreSQL's
//! store has it. Who leads, who is there, and who does what one alone does at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use landfall_api::Kind;
use landfall_store::{Alone, DocumentStore as _, Hold, MemoryStore, Store, StoreError, Turn};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::{Instant, sleep};

use super::flag::Flag;

/// After so long without a question a session is ended.
const SILENT: Duration = Duration::from_secs(5);
/// The server ends a session that hangs in a transaction after so long: what is done alone is one.
const IN_TRANSACTION: Duration = Duration::from_secs(4);

/// A coordinator's way to the database.
#[derive(Clone)]
pub(crate) struct Link(Flag<Way>);

/// How it is.
#[derive(Clone, Copy, Default)]
struct Way {
    /// What keeps the answers away: more than one fault at a time may.
    cuts: u32,
    /// Since when nothing is answered.
    since: Option<Instant>,
    /// The connections are new ones: what was asked on the older ones is answered no more.
    connected: u64,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self(Flag::new(Way::default()))
    }
    fn change(&self, change: impl FnOnce(&mut Way)) {
        let mut way = self.0.get();
        change(&mut way);
        self.0.set(way);
    }
    pub(crate) fn cut_since(&self) -> Option<Instant> {
        self.0.get().since
    }
    /// It answered last at `since`.
    pub(crate) fn cut(&self, since: Instant) {
        self.change(|way| {
            way.cuts += 1;
            way.since.get_or_insert(since);
        });
    }
    pub(crate) fn mend(&self) {
        self.change(|way| {
            way.cuts = way.cuts.saturating_sub(1);
            way.since.take_if(|_| way.cuts == 0);
        });
    }
    pub(crate) async fn mended(&self) {
        self.0.until(|way| way.since.is_none()).await;
    }
    /// The server has ended the connections. The coordinator hears of that when it reaches the server, or its host.
    fn broken(&self) {
        self.change(|way| way.connected += 1);
    }
    /// Waits until what is asked now is answered no more, as far as the coordinator can know.
    pub(crate) async fn lost(&self, is_down: &Flag<bool>) {
        let connected = self.0.get().connected;
        self.0.until(|way| way.connected != connected && (way.since.is_none() || is_down.get())).await;
    }
    async fn is_cut_for(&self, long: Duration) {
        loop {
            let since = self.0.until(|way| way.since.is_some()).await.since.unwrap_or_else(Instant::now);
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
    alone: [Arc<AsyncMutex<()>>; 3],
    /// The number of the newest turn of each.
    turns: Arc<Mutex<[u64; 3]>>,
    /// Whether the server has crashed, and is not back.
    down: Flag<bool>,
    /// Up to which revision it has been written.
    written: Flag<u64>,
}

#[derive(Default)]
struct Sessions {
    /// By the number of the life that has it.
    of: BTreeMap<u64, Session>,
    /// Every life that ever had one, and goes on.
    lives: BTreeMap<u64, Seat>,
    leads: Option<u64>,
}

struct Session {
    seat: Seat,
    silent: Option<Instant>,
}

impl Sessions {
    fn end_silent(&mut self) {
        self.of.retain(|_, session| {
            let stays = session.silent.is_none_or(|since| since.elapsed() <= SILENT);
            if !stays {
                session.seat.link.broken();
            }
            stays
        });
        if self.leads.is_some_and(|leads| !self.of.contains_key(&leads)) {
            self.leads = None;
        }
    }
}

impl Database {
    pub(crate) fn new() -> Self {
        let (rows, sessions, alone, turns) = Default::default();
        Self { rows, sessions, alone, turns, down: Flag::new(false), written: Flag::new(0) }
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
        let comes = is_free && !seat.over.get() && !self.down.get();
        if comes {
            sessions.lives.insert(seat.life, seat.clone());
            sessions.of.insert(seat.life, Session { seat: seat.clone(), silent: None });
        }
        comes
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
        sessions.lives.remove(&life);
        sessions.end_silent();
    }

    /// The server crashes: every session is gone. `None` if it has crashed already; else what brings it back.
    pub(crate) fn crash(&self) -> Option<impl FnOnce() + Send + use<>> {
        if self.down.get() {
            return None;
        }
        self.down.set(true);
        let seats: Vec<_> = {
            let mut sessions = self.sessions();
            (sessions.of, sessions.leads) = (BTreeMap::new(), None);
            sessions.lives.values().cloned().collect()
        };
        for seat in &seats {
            seat.link.cut(Instant::now());
            seat.link.broken();
        }
        let database = self.clone();
        Some(move || {
            database.down.set(false);
            for seat in &seats {
                database.back(seat);
            }
        })
    }

    /// What kept the coordinator from the database is over.
    pub(crate) fn back(&self, seat: &Seat) {
        seat.link.mend();
        if seat.link.cut_since().is_none() {
            self.come(seat);
        }
    }

    /// Whether the server is there.
    pub(crate) const fn down(&self) -> &Flag<bool> {
        &self.down
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

    /// Whether what is written now is written in no turn that is over.
    pub(crate) fn in_turn(&self) -> Result<(), StoreError> {
        let turns = *self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = Turn::now().is_some_and(|turn| turns[turn.what as usize] != turn.number);
        if is_over { Err(StoreError::NotAlone) } else { Ok(()) }
    }

    /// Waits until no other one does the same. It ends with the process (`over`), or when that cannot be reached for too long.
    pub(crate) async fn hold(&self, what: Alone, link: &Link, over: Flag<bool>) -> Hold {
        let guard = self.alone[what as usize].clone().lock_owned().await;
        let (release, released) = oneshot::channel();
        let number = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns[what as usize] += 1;
            turns[what as usize]
        };
        let (link, down, seen) = (link.clone(), self.down.clone(), revision(&self.rows));
        let (is_lost, asks) = (Arc::<AtomicBool>::default(), link.clone());
        let lost = is_lost.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = released => {}
                () = link.is_cut_for(IN_TRANSACTION) => {
                    drop(guard);
                    // It finds that out when it asks the next time.
                    link.mended().await;
                    lost.store(true, Ordering::Release);
                }
                () = link.lost(&down) => lost.store(true, Ordering::Release),
                _ = over.until(|over| *over) => sleep(IN_TRANSACTION).await,
            }
        });
        let unconfirmed = move || match asks.cut_since() {
            _ if is_lost.load(Ordering::Acquire) => Duration::MAX,
            since => since.map_or(Duration::ZERO, |since| since.elapsed()),
        };
        Hold::of(Turn { what, number }, seen, release, Arc::new(unconfirmed))
    }
}
