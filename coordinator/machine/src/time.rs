//! The time as a step is given it: the wall's, which documents carry, and one that nothing sets.

use std::time::Duration;

use jiff::Timestamp;

/// Time since the coordinator's process started, by a clock that is never set. It means nothing in another process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Steady(Duration);

impl Steady {
    /// The moment at which the process started.
    pub const START: Self = Self(Duration::ZERO);

    /// The moment so long after the process started.
    pub const fn after_start(passed: Duration) -> Self {
        Self(passed)
    }

    /// So much later; the end of time where that cannot be written down.
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// How long after `earlier` this is; zero if it is before.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// One moment, by both clocks.
///
/// Deadlines outlive the process and stand in documents, so they go by the wall's clock and move with it when it is set
/// (see [`crate::Input::ClockSet`]). Leases and silence are counted within one process, so they go by the steady clock:
/// a leap of the wall's clock gives no machine away under an agent that goes by its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// By the wall's clock.
    pub wall: Timestamp,
    /// By the clock that is never set.
    pub steady: Steady,
}

impl Now {
    /// What the wall's clock, as it is set now, would have shown at an earlier steady moment.
    pub fn wall_at(self, earlier: Steady) -> Timestamp {
        self.wall.checked_sub(self.steady.since(earlier)).unwrap_or(Timestamp::MIN)
    }
}
