//! The clock, from the Enroll answer: a machine with a dead battery believes it is 1970, and no certificate is valid then.

use jiff::{SignedDuration, Timestamp};
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_settime},
};

/// A smaller difference is ignored: the answer itself took some time.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// Sets the clock to `now` if it is off.
pub(super) fn set(now: Timestamp) {
    let off = now.duration_since(Timestamp::now());
    if off.abs() <= TOLERANCE {
        return;
    }
    let time = TimeSpec::new(now.as_second(), now.subsec_nanosecond().into());
    match clock_settime(ClockId::CLOCK_REALTIME, time) {
        Ok(()) => tracing::info!("clock set to {now}: it was off by {} s", off.as_secs()),
        Err(e) => tracing::warn!("the clock is off by {} s and cannot be set: {e}", off.as_secs()),
    }
}
