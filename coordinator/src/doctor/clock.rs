//! The clock: not before the newest stored time, and synchronised.

use std::{fs, path::Path, process::Stdio, time::Duration};

use jiff::Timestamp;
use tokio::{process::Command, time::timeout};

use crate::finding::Finding;

/// A file's time may be this far ahead: file systems and clocks round.
const ROUNDING: Duration = Duration::from_secs(60);
/// `timedatectl` uses a D-Bus service, which may be missing.
const ASK_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn check(data_dir: &Path) -> Vec<Finding> {
    vec![not_back(Timestamp::now(), newest(data_dir)), kept().await]
}

/// When something in the data directory was last written.
fn newest(data_dir: &Path) -> Option<Timestamp> {
    let times = fs::read_dir(data_dir).ok()?.flatten().filter_map(|entry| entry.metadata().ok()?.modified().ok());
    times.max().and_then(|time| Timestamp::try_from(time).ok())
}

/// Pure.
fn not_back(now: Timestamp, newest: Option<Timestamp>) -> Finding {
    match newest {
        Some(newest) if newest.duration_since(now) > ROUNDING.try_into().unwrap_or_default() => Finding::fail(
            "clock",
            format!("the clock shows {now}, but the store was written {newest}: the clock was set back"),
            "set it (timedatectl, chronyc makestep): deadlines and certificates depend on it",
        ),
        _ => Finding::ok("clock", format!("the clock shows {now}")),
    }
}

/// Whether the kernel reports a synchronised clock. `timedatectl` asks systemd, which asks the kernel (adjtimex).
async fn kept() -> Finding {
    const CHECK: &str = "time synchronisation";
    const HINT: &str = "run chrony or systemd-timesyncd";
    let asked = Command::new("timedatectl")
        .args(["show", "--property=NTPSynchronized", "--value"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    match timeout(ASK_LIMIT, asked).await {
        Ok(Ok(output)) if output.stdout.starts_with(b"yes") => Finding::ok(CHECK, "the clock is synchronised"),
        Ok(Ok(output)) if output.stdout.starts_with(b"no") => {
            Finding::warn(CHECK, "the clock is not synchronised: no NTP client runs, or it is not ready yet", HINT)
        }
        _ => Finding::warn(CHECK, "cannot tell whether the clock is synchronised (timedatectl does not answer)", HINT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_clock_behind_what_was_written_is_found() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(not_back(at(1000), Some(at(1000 + 86_400))).level, Level::Fail);
        assert_eq!(not_back(at(1000), Some(at(1010))).level, Level::Ok);
        assert_eq!(not_back(at(1000), None).level, Level::Ok);
    }
}
