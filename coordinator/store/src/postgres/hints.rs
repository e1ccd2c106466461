//! When the other coordinators learn that something was written: PostgreSQL's notifications, at most 20 a second.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Between two hints. A transaction with one waits for every other such transaction of the whole server.
const BETWEEN: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Hints {
    last: Option<Instant>,
    /// Something was written, and no hint of it was given.
    is_owed: bool,
}

impl Hints {
    /// Whether the transaction that begins now may give one.
    pub(super) fn may_give(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= BETWEEN)
    }

    /// Something was written, and a hint given of everything so far or not.
    pub(super) fn wrote(&mut self, is_hinted: bool) {
        self.is_owed = !is_hinted;
        if is_hinted {
            self.last = Some(Instant::now());
        }
    }

    /// Waits until one is owed and may be given.
    pub(super) async fn due(&self) {
        match self.last {
            Some(last) if self.is_owed => sleep_until(last + BETWEEN).await,
            _ => std::future::pending().await,
        }
    }
}
