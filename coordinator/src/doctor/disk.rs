//! The data directory's disk: room, and how long a flush takes. Every event an agent reports waits for one.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::sys::statvfs::statvfs;

use crate::finding::Finding;

/// Less room than this, bytes, and the write-ahead log may not fit after a burst.
const LEAST: u64 = 64 << 20;
/// Below this the doctor warns.
const FEW: u64 = 1 << 30;
/// A slower flush delays agents.
const SLOW: Duration = Duration::from_millis(30);
/// A flush slower than this indicates a failing disk.
const BROKEN: Duration = Duration::from_secs(2);
/// Flushes that are tried; the middle one counts.
const TRIES: usize = 7;

pub(super) fn check(data_dir: &Path) -> Vec<Finding> {
    // Before the first start it does not exist: check the place where it will be.
    let Some(place) = data_dir.ancestors().find(|path| path.is_dir()) else { return Vec::new() };
    let mut findings = vec![room(place)];
    findings.push(match flush(place) {
        Ok(took) => judged(took),
        Err(error) if place != data_dir => {
            let hint = "the coordinator's user must be able to create it; the systemd unit does that";
            Finding::warn("data directory", format!("cannot create {} yet: {error}", data_dir.display()), hint)
        }
        Err(error) => {
            let hint = "check that it is not full, not read-only, and owned by the coordinator's user";
            Finding::fail("data directory", format!("cannot write {}: {error}", data_dir.display()), hint)
        }
    });
    findings
}

fn room(place: &Path) -> Finding {
    const CHECK: &str = "disk space";
    let Ok(disk) = statvfs(place) else {
        return Finding::warn(CHECK, format!("cannot get the free space of {}", place.display()), "check it with df");
    };
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    let message = format!("{} MiB are free in {}", free >> 20, place.display());
    let hint = "free some space: the store refuses writes when the disk is full";
    match free {
        0..LEAST => Finding::fail(CHECK, message, hint),
        LEAST..FEW => Finding::warn(CHECK, message, hint),
        _ => Finding::ok(CHECK, message),
    }
}

fn judged(took: Duration) -> Finding {
    const CHECK: &str = "flush to disk";
    let message = format!("{:.1} ms", took.as_secs_f64() * 1e3);
    let hint = "every event waits for one: use a local SSD or NVMe disk for data_dir, not a network file system";
    match took {
        _ if took > BROKEN => Finding::fail(CHECK, message, hint),
        _ if took > SLOW => Finding::warn(CHECK, message, hint),
        _ => Finding::ok(CHECK, message),
    }
}

/// How long it takes to make a small write durable, the middle one of a few.
fn flush(place: &Path) -> io::Result<Duration> {
    let path = place.join(format!(".landfall-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let _gone = Gone(path);
    let mut took = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        let begun = Instant::now();
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    Ok(took.get(TRIES / 2).copied().unwrap_or_default())
}

/// Takes the trial file away, however the trial ended.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        // Nothing better can be done about it, and the name says whose it is.
        let _left = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_flush_is_timed_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        flush(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let not_yet = dir.path().join("not/yet");
        assert!(check(&not_yet).iter().all(|finding| finding.level < Level::Fail));
    }

    #[test]
    fn slow_and_broken_disks_are_distinguished() {
        let level = |ms| judged(Duration::from_millis(ms)).level;
        assert_eq!([level(1), level(100), level(5000)], [Level::Ok, Level::Warn, Level::Fail]);
    }
}
