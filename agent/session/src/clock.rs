//! The clock leases are measured by, and the one that stamps what people read.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

/// Time since boot, suspended time included (CLOCK_BOOTTIME): it cannot be set, and a lease continues to run out while
/// the machine sleeps, which CLOCK_MONOTONIC would not notice.
pub fn boot_time() -> Duration {
    match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(at) => Duration::from(at),
        // Every Linux since 2.6.39 has it; if it is missing all the same, a time that never ends makes every lease
        // count as expired, which is the safe side.
        Err(_) => Duration::MAX,
    }
}

/// The date and time of now, for stamps and for the dates of certificates. It leaps when the coordinator's answer sets the
/// clock, so no wait and no lease is measured by it.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub(crate) fn wall_time() -> Timestamp {
    Timestamp::now()
}
