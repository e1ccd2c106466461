//! The machine's hardware clock, which keeps the time while the power is off.
//!
//! Sound because the one call passes a descriptor that it borrows and a structure of the size and layout that the request's
//! number stands for in `linux/rtc.h`; the kernel reads it and writes nothing into this process.
#![allow(unsafe_code)] // The ioctl has no safe binding; the block below says why it holds.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use jiff::{Timestamp, tz::TimeZone};

/// The first one: where the kernel takes the time from when it starts.
const DEVICE: &str = "/dev/rtc0";

/// `struct rtc_time`: as C's `struct tm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RtcTime {
    second: i32,
    minute: i32,
    hour: i32,
    day_of_month: i32,
    /// From 0.
    month: i32,
    /// Since 1900.
    year: i32,
    /// The kernel computes these three itself.
    unused: [i32; 3],
}

mod raw {
    // RTC_SET_TIME
    nix::ioctl_write_ptr!(set_time, b'p', 0x0a, super::RtcTime);
}

/// The hardware clock cannot be set.
#[derive(Debug, thiserror::Error)]
#[error("cannot set the hardware clock {}", path.display())]
pub(super) struct RtcError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Sets it, to UTC as Linux systems keep it.
///
/// # Errors
/// [`RtcError`]: there is none, or it refuses.
pub(super) fn set(now: Timestamp) -> Result<(), RtcError> {
    set_at(Path::new(DEVICE), now)
}

fn set_at(path: &Path, now: Timestamp) -> Result<(), RtcError> {
    let failed = |source| RtcError { path: path.to_owned(), source };
    let device = File::open(path).map_err(failed)?;
    let time = fields(now);
    // SAFETY: `device` is open for the call, and `time` is valid for reads of its whole size, which the request's number
    // states.
    unsafe { raw::set_time(device.as_raw_fd(), &raw const time) }.map_err(|e| failed(e.into()))?;
    Ok(())
}

fn fields(now: Timestamp) -> RtcTime {
    let utc = now.to_zoned(TimeZone::UTC);
    RtcTime {
        second: utc.second().into(),
        minute: utc.minute().into(),
        hour: utc.hour().into(),
        day_of_month: utc.day().into(),
        month: i32::from(utc.month()) - 1,
        year: i32::from(utc.year()) - 1900,
        unused: [0; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hardware_clock_gets_utc_as_c_counts_it() {
        let now: Timestamp = "2026-02-28T23:59:58.7Z".parse().unwrap();
        let expected =
            RtcTime { second: 58, minute: 59, hour: 23, day_of_month: 28, month: 1, year: 126, unused: [0; 3] };
        assert_eq!(fields(now), expected);
        // As in linux/rtc.h: the number of the request holds this size.
        assert_eq!(size_of::<RtcTime>(), 36);
    }

    #[test]
    fn a_missing_or_other_device_is_named() {
        for path in ["/dev/no-such-clock", "/dev/null"] {
            let error = set_at(Path::new(path), Timestamp::UNIX_EPOCH).unwrap_err();
            assert!(error.to_string().contains(path), "{error}");
        }
    }
}
