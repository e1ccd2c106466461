//! The clock, from the Enroll answer: a machine with a dead battery believes it is 1970, and no certificate is valid then. The
//! hardware clock is set with it, so that the installed system starts with the right time before it has asked any server.

mod rtc;

use jiff::{SignedDuration, Timestamp};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

/// A smaller difference is ignored: the answer itself took some time.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// Sets both clocks to `now` if the system's is off: it was taken from the hardware clock when the kernel started.
pub(super) fn set(now: Timestamp) {
    adjust(now, Timestamp::now(), set_system, rtc::set);
}

fn set_system(now: Timestamp) -> nix::Result<()> {
    clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::new(now.as_second(), now.subsec_nanosecond().into()))
}

fn adjust<S: std::fmt::Display, H: std::error::Error>(
    now: Timestamp, shown: Timestamp, system: impl FnOnce(Timestamp) -> Result<(), S>,
    hardware: impl FnOnce(Timestamp) -> Result<(), H>,
) {
    let off = now.duration_since(shown);
    if off.abs() <= TOLERANCE {
        return;
    }
    match system(now) {
        Ok(()) => tracing::info!("clock set to {now}: it was off by {} s", off.as_secs()),
        Err(e) => tracing::warn!("the clock is off by {} s and cannot be set: {e}", off.as_secs()),
    }
    match hardware(now) {
        Ok(()) => tracing::info!("hardware clock set to {now}"),
        Err(e) => {
            let cause = e.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            tracing::warn!("{e}{cause}; the installed system starts with a clock that is off by {} s", off.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, io};

    use super::*;

    #[test]
    fn both_clocks_are_set_where_they_are_off() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let set = RefCell::new(Vec::new());
        let note = |which: &'static str, works: bool| {
            let set = &set;
            move |at: Timestamp| {
                set.borrow_mut().push((which, at));
                if works { Ok(()) } else { Err(io::Error::other("no")) }
            }
        };
        for off in [-2, 0, 2] {
            adjust(now, now + SignedDuration::from_secs(off), note("system", true), note("hardware", true));
        }
        assert_eq!(set.take(), []);
        for (off, works) in [(-3, true), (1 << 30, false)] {
            adjust(now, now + SignedDuration::from_secs(off), note("system", works), note("hardware", works));
            assert_eq!(set.take(), [("system", now), ("hardware", now)]);
        }
    }
}
