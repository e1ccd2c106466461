//! One connection, as its gate sees it: when bytes last went either way, and whether a request is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// One connection's account of itself.
#[derive(Debug)]
pub struct Seat {
    begun: Instant,
    /// Milliseconds since `begun` at which bytes last went either way.
    moved: AtomicU64,
    /// Milliseconds since `begun`, and one, since which it is the peer's turn; 0: it is ours.
    waits: AtomicU64,
    /// Milliseconds since `begun` since which no request is under way.
    idle: AtomicU64,
    /// Requests under way.
    requests: AtomicU32,
    /// Requests so far, those under way included; stays at its highest.
    taken: AtomicU32,
    wanted: CancellationToken,
}

impl Seat {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            begun: now,
            moved: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            wanted: CancellationToken::new(),
        }
    }

    /// Bytes went either way.
    pub fn moved(&self) {
        self.moved.store(self.since(Instant::now()), Ordering::Relaxed);
    }

    /// It is the peer's turn. Only then can it be too quiet: a connection that waits for a busy coordinator is not.
    pub fn waits(&self) {
        let now = self.since(Instant::now()) + 1;
        // Already waiting: since then.
        let _since = self.waits.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Bytes came: it is our turn.
    pub fn heard(&self) {
        self.moved();
        self.waits.store(0, Ordering::Relaxed);
    }

    /// A request begins; it ends when the answer's last byte is handed over and the value is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.requests.fetch_add(1, Ordering::Relaxed);
        // Wraps after four thousand million requests, which only makes one look like the first.
        self.taken.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Returns when another connection needs the place.
    pub async fn wanted(&self) {
        self.wanted.cancelled().await;
    }

    /// Returns when no request was under way for `between`, or when the first one did not come within `first`.
    pub async fn idle(&self, first: Duration, between: Duration) {
        loop {
            let wait = if self.is_busy() {
                between
            } else {
                let limit = if self.taken.load(Ordering::Relaxed) == 0 { first } else { between };
                let idle = self.since(Instant::now()).saturating_sub(self.idle.load(Ordering::Relaxed));
                match limit.checked_sub(Duration::from_millis(idle)) {
                    None | Some(Duration::ZERO) => return,
                    Some(left) => left,
                }
            };
            sleep(wait).await;
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    pub(super) fn quiet(&self, now: Instant) -> Duration {
        let Some(since) = self.waits.load(Ordering::Relaxed).checked_sub(1) else { return Duration::ZERO };
        let last = since.max(self.moved.load(Ordering::Relaxed));
        Duration::from_millis(self.since(now).saturating_sub(last))
    }

    pub(super) fn give_way(&self) {
        self.wanted.cancel();
    }

    fn since(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        let seat = &self.0;
        seat.idle.store(seat.since(Instant::now()), Ordering::Relaxed);
        seat.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
