//! How fast one machine's telemetry may be. Its items are taken in whatever comes, and thinned behind it: leaving them
//! unread would fill the connection's window and hold up the agent's own heartbeats. But reading costs time that others
//! need, so a stream that never lets up is closed; the agent opens another one, after a while.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use landfall_api::{ErrorCode, Problem};
use uuid::Uuid;

use landfall_edge::metrics::metrics;

/// Items a second in the long run: ten times what is shown of them.
const RATE: f64 = 2000.0;
/// Items at once.
const BURST: f64 = 10_000.0;

/// Accounts kept before those that owe nothing are forgotten.
const KEPT: usize = 1024;

/// Every machine's account, over all its streams: one machine gets no more by opening several. Bounded by the machines that
/// are described, since only their certificates are taken.
#[derive(Default)]
pub(super) struct Paces(Mutex<HashMap<Uuid, Pace>>);

/// One machine's account.
#[derive(Default)]
struct Pace {
    owed: f64,
    at: Option<Instant>,
}

impl Pace {
    fn owed(&self, now: Instant) -> f64 {
        let passed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        (self.owed - passed * RATE).max(0.0)
    }
}

impl Paces {
    /// One more item of a machine has come.
    ///
    /// # Errors
    /// `LimitReached`: the stream is to be closed.
    pub(super) fn item(&self, machine: Uuid, now: Instant) -> Result<(), Problem> {
        // A panic elsewhere leaves nothing half done.
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paces.len() >= KEPT && !paces.contains_key(&machine) {
            paces.retain(|_, pace| pace.owed(now) > 0.0);
        }
        let pace = paces.entry(machine).or_default();
        (pace.owed, pace.at) = (pace.owed(now) + 1.0, Some(now));
        if pace.owed <= BURST {
            return Ok(());
        }
        metrics().telemetry_streams_closed.add(1);
        Err(Problem::new(ErrorCode::LimitReached, format!("more than {RATE} progress and log items a second"))
            .hint("an agent may log in a loop: reduce the agent's RUST_LOG"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FAST: Uuid = Uuid::from_u128(1);

    #[test]
    fn bursts_and_steady_streams_pass_but_floods_do_not() {
        let (begin, paces) = (Instant::now(), Paces::default());
        assert!((0..9_000).all(|_| paces.item(FAST, begin).is_ok()));
        let problem = (0..9_000).find_map(|_| paces.item(FAST, begin).err()).unwrap();
        assert_eq!(problem.code, ErrorCode::LimitReached);
        let steady = Uuid::from_u128(2);
        assert!((0..100_000u32).all(|n| paces.item(steady, begin + Duration::from_millis(1) * n).is_ok()));
    }

    #[test]
    fn accounts_that_owe_nothing_are_forgotten() {
        let (begin, paces) = (Instant::now(), Paces::default());
        let long = begin + Duration::from_secs(3600);
        while paces.item(FAST, long).is_ok() {}
        for n in 2..10 * KEPT as u32 {
            paces.item(Uuid::from_u128(n.into()), begin + Duration::from_millis(1) * n).unwrap();
        }
        assert!(paces.0.lock().unwrap().len() <= KEPT + 1);
        assert!(paces.item(FAST, long).is_err(), "it still owes");
    }
}
