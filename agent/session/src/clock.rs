//! The clock leases are measured by.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since boot, suspended time included (CLOCK_BOOTTIME): nobody can set it, and a lease goes on running out while
/// the machine sleeps, which CLOCK_MONOTONIC would not notice.
pub fn boot_time() -> Duration {
    match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(at) => Duration::from(at),
        // Every Linux since 2.6.39 has it; if it is missing all the same, a time that never ends makes every lease
        // count as expired, which is the safe side.
        Err(_) => Duration::MAX,
    }
}
