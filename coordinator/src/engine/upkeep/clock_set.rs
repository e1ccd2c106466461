//! A clock that is set, forward or back, or stood still with the whole host: nothing is overdue that had no time to happen,
//! and nothing lies years ahead.
//!
//! Deadlines are kept by the wall's clock, for they outlive the process. When it leaps, they leap with it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_api::Problem;
use landfall_machine::Input;
use tokio::time::Instant;

use super::Upkeep;

/// A leap smaller than this is no leap: a clock that is kept in step, or a tick that was slow.
const LEAP: Duration = Duration::from_secs(60);

/// Watches the wall clock by the steady clock.
pub(super) struct ClockWatch {
    wall: Timestamp,
    steady: Instant,
}

impl ClockWatch {
    pub(in crate::engine) const fn new(wall: Timestamp, steady: Instant) -> Self {
        Self { wall, steady }
    }

    /// How far the wall's clock has leapt since the last look, if it has: forward, or back.
    pub(super) fn leap(&mut self, wall: Timestamp, steady: Instant) -> Option<SignedDuration> {
        let went = wall.duration_since(self.wall);
        let passed = SignedDuration::try_from(steady.duration_since(self.steady)).unwrap_or(SignedDuration::MAX);
        (self.wall, self.steady) = (wall, steady);
        went.checked_sub(passed).filter(|leap| leap.unsigned_abs() >= LEAP)
    }
}

impl Upkeep {
    /// Gives every workflow as much time as it had before the clock was set. Leases and silence are counted by a clock that
    /// is never set.
    ///
    /// # Errors
    /// The first [`Problem`] of the store.
    pub(in crate::engine) async fn clock_set(&self, by: SignedDuration) -> Result<(), Problem> {
        tracing::warn!(seconds = by.as_secs(), "the clock was set; deadlines move with it");
        let mut outcome = Ok(());
        let active = self.fleet.index().active();
        for (_, machine) in active {
            if !self.fleet.has_named(&machine).await? {
                continue;
            }
            outcome = outcome.and(self.steps.hand_in(&machine, Input::ClockSet(by)).await);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_of_the_clock_differs_from_time_that_passed() {
        let (wall, steady) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
        let mut watch = ClockWatch::new(wall, steady);
        let seconds = SignedDuration::from_secs;
        let at = |wall_s, steady_s| (wall + seconds(wall_s), steady + Duration::from_secs(steady_s));
        let mut look = |(wall, steady)| watch.leap(wall, steady);
        assert_eq!(look(at(3600, 3600)), None, "an hour that passed");
        assert_eq!(look(at(3630, 3601)), None, "half a minute is no leap");
        assert_eq!(look(at(7231, 3602)), Some(seconds(3600)));
        assert_eq!(look(at(7232, 3603)), None, "once");
        assert_eq!(look(at(100, 3604)), Some(seconds(100 - 7232 - 1)), "back");
        assert_eq!(look(at(101, 3605)), None, "once");
    }
}
