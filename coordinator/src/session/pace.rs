//! How fast one telemetry stream may be. Its items are taken in whatever comes, and thinned behind it: leaving them
//! unread would fill the connection's window and hold up the agent's own heartbeats. But reading costs time that others
//! need, so a stream that never lets up is closed; the agent opens another one, after a while.

use std::time::Instant;

use landfall_api::{ErrorCode, Problem};

use landfall_edge::metrics::metrics;

/// Items a second in the long run: ten times what is shown of them.
const RATE: f64 = 2000.0;
/// Items at once.
const BURST: f64 = 10_000.0;

/// One stream's account.
#[derive(Default)]
pub(super) struct Pace {
    owed: f64,
    at: Option<Instant>,
}

impl Pace {
    /// One more item has come.
    ///
    /// # Errors
    /// `LimitReached`: the stream is to be closed.
    pub(super) fn item(&mut self, now: Instant) -> Result<(), Problem> {
        let passed = self.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        self.owed = (self.owed - passed * RATE).max(0.0) + 1.0;
        self.at = Some(now);
        if self.owed <= BURST {
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

    #[test]
    fn bursts_and_steady_streams_pass_but_floods_do_not() {
        let begin = Instant::now();
        let mut pace = Pace::default();
        assert!((0..9_000).all(|_| pace.item(begin).is_ok()));
        let problem = (0..9_000).find_map(|_| pace.item(begin).err()).unwrap();
        assert_eq!(problem.code, ErrorCode::LimitReached);
        let mut steady = Pace::default();
        assert!((0..100_000u32).all(|n| steady.item(begin + Duration::from_millis(1) * n).is_ok()));
    }
}
