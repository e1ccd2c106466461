//! A clock that is set forward, or stood still with the whole host: nothing is overdue that had no time to happen.
//!
//! Deadlines and leases are kept by the wall's clock, for they outlive the process. When it leaps, they leap with it; else
//! every run would fail at once, and every machine be given away under an agent that goes by its own clock.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::Problem;
use tokio::time::Instant;

use super::Engine;
use landfall_machine::run::Event;

/// A leap smaller than this is no leap: a clock that is kept in step, or a tick that was slow.
const LEAP: Duration = Duration::from_secs(60);

/// Watches the wall's clock by one that nobody sets.
pub(super) struct ClockWatch {
    wall: Timestamp,
    steady: Instant,
}

impl ClockWatch {
    pub(super) const fn new(wall: Timestamp, steady: Instant) -> Self {
        Self { wall, steady }
    }

    /// How far the wall's clock has leapt forward since the last look, if it has.
    pub(super) fn leap(&mut self, wall: Timestamp, steady: Instant) -> Option<Duration> {
        let went = Duration::try_from(wall.duration_since(self.wall)).unwrap_or_default();
        let passed = steady.duration_since(self.steady);
        (self.wall, self.steady) = (wall, steady);
        went.checked_sub(passed).filter(|leap| *leap >= LEAP)
    }
}

impl Engine {
    /// Gives everything that is waited for as much time as it had before the clock was set forward.
    ///
    /// # Errors
    /// The first [`Problem`] of the store.
    pub(super) async fn clock_set(&self, by: Duration) -> Result<(), Problem> {
        tracing::warn!(seconds = by.as_secs(), "the clock was set forward; deadlines and leases move with it");
        let mut outcome = Ok(());
        let later = |at: &mut Timestamp| *at = at.checked_add(by).unwrap_or(Timestamp::MAX);
        for uid in self.inner.machines.uids() {
            let mut live = self.inner.machines.lock(uid).await;
            if let Some(session) = &mut live.session {
                later(&mut session.last_heard);
                later(&mut session.lease_until);
                later(&mut session.noted);
                // Heard since: it is not heard from the future.
                let now = self.now();
                session.last_heard = session.last_heard.min(now);
                session.noted = session.noted.min(now);
            }
        }
        let active = self.index().active();
        for (name, machine) in active {
            outcome = outcome.and(self.give_time(&name, &machine, by).await);
        }
        outcome
    }

    async fn give_time(&self, name: &str, machine: &str, by: Duration) -> Result<(), Problem> {
        let Some(run) = self.inner.store.workflow(name).await? else { return Ok(()) };
        let uid = self.inner.store.machine(machine).await?.and_then(|machine| machine.metadata.uid);
        let mut live = self.inner.machines.lock(uid.or(run.metadata.uid).unwrap_or_default()).await;
        self.advance(&mut live, name, Event::ClockSet(by)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_forward_is_told_from_time_that_passed() {
        let (wall, steady) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
        let mut watch = ClockWatch::new(wall, steady);
        let seconds = Duration::from_secs;
        let at = |wall_s, steady_s| (wall + seconds(wall_s), steady + seconds(steady_s));
        let mut look = |(wall, steady)| watch.leap(wall, steady);
        assert_eq!(look(at(3600, 3600)), None, "an hour that passed");
        assert_eq!(look(at(3630, 3601)), None, "half a minute is no leap");
        assert_eq!(look(at(7231, 3602)), Some(seconds(3600)));
        assert_eq!(look(at(7232, 3603)), None, "once");
        assert_eq!(look(at(100, 3604)), None, "back is not forward");
    }
}
