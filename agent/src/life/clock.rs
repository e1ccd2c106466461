//! The clock, from the Enroll answer: a machine with a dead battery believes it is 1970, and no certificate is valid then. The
//! hardware clock is set with it, so that the installed system starts with the right time before it has asked any server. Neither is
//! ever set to a time before this program was built.

mod rtc;

use jiff::{SignedDuration, Timestamp};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

/// A smaller difference is ignored: the answer itself took some time.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// No clock that is right shows less: the time of this version's source, or a later one that the builder of the program names
/// (reproducible-builds.org, `SOURCE_DATE_EPOCH`). Seconds since 1970.
const FLOOR: i64 = {
    // 2026-11-01; a release raises it.
    let source = 1_793_491_200;
    let named = match option_env!("SOURCE_DATE_EPOCH") {
        None => 0,
        Some(text) if text.is_empty() => 0,
        Some(text) => match i64::from_str_radix(text, 10) {
            // Before 2100: a larger number is of milliseconds.
            Ok(seconds) if seconds < 4_102_444_800 => seconds,
            _ => panic!("SOURCE_DATE_EPOCH is not a number of seconds before the year 2100"),
        },
    };
    if named > source { named } else { source }
};

fn floor() -> Timestamp {
    Timestamp::from_second(FLOOR).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Sets the system's clock forward to when this program was built if it shows an earlier time, until the coordinator names the
/// right one.
pub(crate) fn set_to_floor() {
    let shown = Timestamp::now();
    if shown >= floor() {
        return;
    }
    match set_system(floor()) {
        Ok(()) => tracing::warn!("the clock shows {shown}, before this agent was built; it starts at {}", floor()),
        Err(e) => tracing::warn!("the clock shows {shown}, before this agent was built, and cannot be set: {e}"),
    }
}

/// Sets both clocks to `now` if the system's is off: it was taken from the hardware clock when the kernel started. A time before
/// this program was built is not taken.
pub(super) fn set(now: Timestamp) {
    if now < floor() {
        tracing::warn!(
            "the coordinator's clock shows {now}, before this agent was built ({}); this machine's clocks are not set by it; \
                set the coordinator's clock",
            floor()
        );
        return;
    }
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
    fn the_floor_is_before_now_and_after_a_dead_battery() {
        assert!(floor() < Timestamp::now() && floor() > "2026-01-01T00:00:00Z".parse().unwrap(), "{}", floor());
    }

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
