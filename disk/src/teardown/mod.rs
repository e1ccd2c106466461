//! Freeing disks: what an old system, an earlier action or an attempt that was interrupted left active on them.

mod active;
mod arrays;
mod parse;
mod stops;
#[cfg(test)]
mod tests;

use std::{fs, fs::File, io, path::Path, thread, time::Duration};

use landfall_api::{DiskFacts, ErrorCode, Problem};
use nix::mount::{MntFlags, umount2};

pub use self::active::read as active_devices;
pub use self::arrays::lacking_arrays;
use self::parse::{mounts, swaps};
pub use self::stops::{Active, ActiveDevice, ActiveMount, ActivePool, Stop};
use self::stops::{idle, stops};
use crate::{LogLevel, Observer, sys};

/// How long a device may be open that nothing uses: 5 s. A program that looks at all devices, such as blkid, may have it open.
const BUSY_LOOKS: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Why disks cannot be freed.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Something stands on another disk too, whose data would be lost.
    #[error("{device} stands on {taken} and on {other}, which this action does not take")]
    Spans { device: String, taken: String, other: String },
    /// It holds the running system.
    #[error("{device} holds the running system")]
    RunningSystem {
        /// What is mounted at `/`.
        device: String,
    },
    /// Something that only its own program can stop.
    #[error("{device} stands on {taken}, and stopping {what} is not supported")]
    Unsupported { device: String, taken: String, what: &'static str },
    /// Devices stand on each other in a circle: what the kernel showed changed meanwhile.
    #[error("what stands on {taken} changed while it was looked at")]
    Changed { taken: String },
    /// The kernel refuses it.
    #[error("cannot {stop}")]
    Refused { stop: Stop, source: io::Error },
    /// What is active cannot be read: then nothing may be stopped.
    #[error("cannot read what stands on the disks")]
    Unread(#[source] io::Error),
}

impl StopError {
    /// The problem that the operator sees.
    pub fn problem(&self) -> Problem {
        let (code, hint) = match self {
            Self::Spans { .. } => {
                (ErrorCode::DiskInUse, "add the other disk to the layout, or clear it first with wipe")
            }
            Self::RunningSystem { .. } => (ErrorCode::DiskInUse, "select other disks"),
            Self::Unsupported { .. } => (ErrorCode::DiskInUse, "stop it with its own program, or restart the machine"),
            Self::Changed { .. } => (ErrorCode::DiskInUse, "try again"),
            Self::Refused { .. } => (ErrorCode::DiskInUse, "stop what uses it, or restart the machine"),
            Self::Unread(_) => (ErrorCode::DeviceIo, "check that /sys and /proc are mounted"),
        };
        Problem::new(code, self.to_string()).hint(hint).caused_by(self)
    }
}

/// Stops everything that stands on these disks, mounts too, from the top down.
///
/// # Errors
/// Something must not or cannot be stopped; what was stopped before it stays so.
pub fn stop_all_on(disks: &[DiskFacts], observer: &dyn Observer) -> Result<(), StopError> {
    let names: Vec<&str> = disks.iter().map(|disk| disk.id.name.as_str()).collect();
    let active = active_devices().map_err(StopError::Unread)?;
    stops(&active, &names)?.into_iter().try_for_each(|stop| perform(stop, observer))
}

/// Closes arrays and mapped devices that an earlier action opened on this disk and that nothing uses. What is in use stays: who
/// takes the disk then hears of it.
pub(crate) fn close_idle_on(disk: &DiskFacts, observer: &dyn Observer) {
    let Ok(active) = active_devices() else { return };
    for stop in idle(&active, &disk.id.name) {
        if let Err(error) = perform(stop, observer) {
            observer.log(LogLevel::Warn, &format!("{}", error.problem()));
            return;
        }
    }
}

fn perform(stop: Stop, observer: &dyn Observer) -> Result<(), StopError> {
    observer.log(LogLevel::Info, &format!("what stands on the disks is stopped: {stop}"));
    let stopped = match &stop {
        Stop::Unmount(at) => umount2(at.as_str(), MntFlags::empty()).map_err(io::Error::from),
        Stop::Mapper(name) => {
            patiently(|| sys::remove_mapped(&File::open("/dev/mapper/control")?, name)).and_then(|()| {
                // No udev runs that would remove it.
                match fs::remove_file(Path::new("/dev/mapper").join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                }
            })
        }
        Stop::Array(name) => patiently(|| sys::stop_array(&File::open(Path::new("/dev").join(name))?)),
    };
    stopped.map_err(|source| StopError::Refused { stop, source })
}

fn patiently(act: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..BUSY_LOOKS {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    act()
}
