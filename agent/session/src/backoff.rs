//! How long to wait before the next attempt: doubling, bounded, and randomised so that a fleet does not return at the
//! same time.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Exponential backoff with jitter. Pure but for the randomness.
#[derive(Debug, Clone)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits about `initial` at first and never more than `max`.
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, max, next: initial }
    }
    /// The wait before the next attempt: between half of and the whole current step.
    pub fn step(&mut self) -> Duration {
        self.step_by(chance())
    }
    /// [`Self::step`] by a random number of one's own.
    pub fn step_by(&mut self, chance: u64) -> Duration {
        let whole = self.next.min(self.max);
        self.next = whole.saturating_mul(2).min(self.max);
        let share = (chance >> 11) as f64 / (1u64 << 53) as f64;
        whole.mul_f64(0.5 + share / 2.0)
    }
    /// The last attempt succeeded: the next wait is the first one again.
    pub const fn reset(&mut self) {
        self.next = self.initial;
    }
}

/// A random number. Each RandomState is keyed anew: randomness enough for jitter, without another dependency.
pub(crate) fn chance() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_stay_bounded_and_start_over_after_success() {
        let (initial, max) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(initial, max);
        let mut whole = initial;
        for _ in 0..10 {
            let wait = backoff.step();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
            whole = (whole * 2).min(max);
        }
        backoff.reset();
        assert!(backoff.step() <= initial);
    }

    #[test]
    fn two_agents_do_not_wait_in_step() {
        let waits: Vec<_> =
            (0..8).map(|_| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).step()).collect();
        assert!(waits.windows(2).any(|w| w[0] != w[1]));
    }
}
