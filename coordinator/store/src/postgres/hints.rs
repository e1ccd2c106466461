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

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hints_come_at_most_20_a_second() {
        let (mut hints, mut given) = (Hints::default(), 0);
        for _ in 0..1000 {
            let may = hints.may_give();
            given += u32::from(may);
            hints.wrote(may);
            advance(Duration::from_millis(1)).await;
        }
        assert_eq!(given, 20);
        // The last one that was left out is made up for, once.
        timeout(BETWEEN, hints.due()).await.unwrap();
        hints.wrote(true);
        assert!(timeout(Duration::from_secs(3600), hints.due()).await.is_err());
    }
}
