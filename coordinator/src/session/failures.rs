//! How often one address may fail to prove anything. A caller with nothing to show can ask for ever, and each try costs a look
//! into the store, a line and an entry. Successes are not counted: a whole site may come at once through one address.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use landfall_api::{ErrorCode, Problem};

use landfall_edge::gate::{Limiter, Limiters, MAX_ADDRESSES, Rate};

/// Failures a second for one address, in the long run (this host itself: no limit).
pub(super) const FAILURES_A_SECOND: u32 = 5;
/// An address that was quiet may fail for the worth of so long at once.
const SAVED: Duration = Duration::from_secs(60);
/// Lines a second about failures, of whomever.
const LINES: u32 = 10;

/// The failures of one kind of call.
#[derive(Debug)]
pub(super) struct Failures {
    each: Limiters<IpAddr>,
    lines: Limiter,
}

impl Default for Failures {
    fn default() -> Self {
        let each = Limiters::new(Rate::a_second(FAILURES_A_SECOND, SAVED), MAX_ADDRESSES);
        Self { each, lines: Limiter::a_second(LINES) }
    }
}

impl Failures {
    /// Before anything is looked at.
    ///
    /// # Errors
    /// [`Problem`] with code `LimitReached` for an address that has failed too often.
    pub(super) fn may_try(&self, from: Option<&SocketAddr>) -> Result<(), Problem> {
        if from.is_none_or(|from| self.each.could(from.ip())) {
            return Ok(());
        }
        Err(Problem::new(ErrorCode::LimitReached, "too many attempts from this address have failed")
            .hint("try again later"))
    }

    /// Counts one. Answers whether a line may be written about it: with the number left out before it.
    pub(super) fn failed(&self, from: Option<&SocketAddr>) -> Option<u64> {
        if let Some(from) = from {
            let _within = self.each.step_of(from.ip());
        }
        self.lines.step()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_addresses_with_repeated_failures_are_delayed() {
        tokio::time::advance(Duration::from_secs(3600)).await;
        let failures = Failures::default();
        let at = |text: &str| Some(format!("{text}:1000").parse::<SocketAddr>().unwrap());
        let (bad, good, own) = (at("10.0.0.1"), at("10.0.0.2"), at("127.0.0.1"));
        let tries = |from: &Option<SocketAddr>| {
            (0..10_000)
                .filter(|_| failures.may_try(from.as_ref()).map(|()| failures.failed(from.as_ref())).is_ok())
                .count()
        };
        let burst = (FAILURES_A_SECOND * 60) as usize;
        assert_eq!(tries(&bad), burst);
        assert!((0..10_000).all(|_| failures.may_try(good.as_ref()).is_ok()), "it has not failed");
        assert_eq!((tries(&own), tries(&None)), (10_000, 10_000));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(tries(&bad), FAILURES_A_SECOND as usize * 10);
    }
}
