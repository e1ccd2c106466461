//! How long a failing server is retried: everything is bounded, and new bytes reset the bounds.

use std::time::{Duration, Instant};

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// Answers in a row that brought no new byte, before the image counts as cut short.
const FRUITLESS: u32 = 4;
/// Resumptions in all: a server that sends one byte at a time is unusable.
const RESUMPTIONS: u32 = 1000;
/// The longest wait that a server may ask for at once.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What is left of it.
#[derive(Debug, Clone)]
pub(in crate::source) struct Patience {
    /// How long there may be no answer at all.
    silence: Duration,
    /// How long a server may make us wait by Retry-After, in all, without giving a byte.
    asked: Duration,
    waited: Duration,
    fruitless: u32,
    resumptions: u32,
    silent_since: Option<Instant>,
    backoff: Duration,
}

impl Patience {
    /// With the only server there is: long enough for it to be restarted.
    pub(in crate::source) fn alone() -> Self {
        Self::new(Duration::from_secs(60), Duration::from_secs(300))
    }

    /// With one of several: the others are tried soon.
    pub(in crate::source) fn among_mirrors() -> Self {
        Self::new(Duration::from_millis(500), Duration::from_secs(5))
    }

    fn new(silence: Duration, asked: Duration) -> Self {
        Self {
            silence,
            asked,
            waited: Duration::ZERO,
            fruitless: 0,
            resumptions: 0,
            silent_since: None,
            backoff: FIRST_BACKOFF,
        }
    }

    /// New bytes came.
    pub(super) fn progress(&mut self) {
        (self.fruitless, self.silent_since, self.backoff, self.waited) = (0, None, FIRST_BACKOFF, Duration::ZERO);
    }

    /// A mirror is asked again after the others were: its faults so far are forgotten, but not how often it was resumed.
    pub(super) fn again(&mut self) {
        self.progress();
    }

    /// An answer broke off. How long to wait; `None`: that was the last one.
    pub(super) fn broken(&mut self) -> Option<Duration> {
        self.silent_since = None;
        self.fruitless += 1;
        self.resumptions += 1;
        (self.fruitless < FRUITLESS && self.resumptions <= RESUMPTIONS).then(|| self.step())
    }

    /// No answer came. As above.
    pub(super) fn unanswered(&mut self) -> Option<Duration> {
        self.resumptions += 1;
        let silent = self.silent_since.get_or_insert_with(Instant::now).elapsed();
        (silent < self.silence).then(|| self.step())
    }

    /// The server says when to come back. As above; at least as long as if it had not answered.
    pub(super) fn told_to_wait(&mut self, wait: Duration) -> Option<Duration> {
        self.silent_since = None;
        self.resumptions += 1;
        let wait = wait.min(LONGEST_RETRY_AFTER).max(self.step());
        self.waited += wait;
        (self.waited <= self.asked).then_some(wait)
    }

    fn step(&mut self) -> Duration {
        let wait = self.backoff;
        self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_always_defers_is_abandoned_in_bounded_time() {
        for said in [Duration::ZERO, Duration::from_secs(7), Duration::from_secs(1_000_000)] {
            let mut patience = Patience::alone();
            let waits: Vec<_> = std::iter::from_fn(|| patience.told_to_wait(said)).take(10_000).collect();
            assert!(waits.iter().sum::<Duration>() <= Duration::from_secs(300), "{said:?}");
            assert!(waits.iter().all(|w| *w <= LONGEST_RETRY_AFTER && *w >= FIRST_BACKOFF));
        }
    }

    #[test]
    fn answers_that_bring_nothing_are_counted_and_bytes_renew_them() {
        let mut patience = Patience::alone();
        assert_eq!(std::iter::from_fn(|| patience.broken()).count(), FRUITLESS as usize - 1);
        patience.progress();
        assert!(patience.broken().is_some());
    }
}
