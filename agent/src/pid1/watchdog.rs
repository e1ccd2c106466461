//! The hardware watchdog: it restarts a machine whose kernel or agent hangs. A task of the runtime feeds it, so that a runtime that
//! stands still does not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use landfall_api::WatchdogFacts;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::facts::hardware_watchdog;

/// Between looks for a watchdog: its driver may come late.
const LOOK: Duration = Duration::from_secs(1);
/// A shorter time would restart a slow machine that works. Drivers begin with 30 or 60 s.
const SHORTEST: Duration = Duration::from_secs(10);
/// The watchdog is fed so often within its time.
const MEALS: u32 = 4;
/// A driver that hangs must not keep the machine from its restart.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Closing the device after this byte stops the watchdog (Documentation/watchdog/watchdog-api.rst, "magic close").
const MAGIC_CLOSE: &[u8] = b"V";

/// Feeds the machine's watchdog, if it has one.
pub(super) struct Watchdog {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Watchdog {
    /// Looks for a watchdog until there is one, then feeds it.
    pub(super) fn start() -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(feed(stopped)) }
    }

    /// Stops it: the machine goes down by itself, and what starts next brings its own driver, perhaps late.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        match tokio::time::timeout(STOP_LIMIT, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::error!("feeding the watchdog failed: {e}"),
            Err(_elapsed) => tracing::error!("the watchdog's driver does not answer; going on without it"),
        }
    }
}

async fn feed(mut stopped: watch::Receiver<bool>) {
    let mut said = None;
    let (mut device, every) = loop {
        match open(Path::new("/sys/class/watchdog"), Path::new("/dev")) {
            Ok(Some((device, seen))) => {
                tracing::info!(
                    "watchdog {}: it restarts this machine if the agent hangs for {} s",
                    seen.identity,
                    seen.timeout_seconds
                );
                break (device, Duration::from_secs(seen.timeout_seconds.into()) / MEALS);
            }
            Ok(None) => {}
            Err(why) if said.as_ref() == Some(&why) => {}
            Err(why) => {
                tracing::warn!("the watchdog is not used: {why}");
                said = Some(why);
            }
        }
        if ended(&mut stopped, LOOK).await {
            return;
        }
    };
    loop {
        // Any byte but the magic one.
        if let Err(e) = device.write_all(b"\0") {
            tracing::error!("cannot feed the watchdog: {e}; it will restart this machine");
        }
        if ended(&mut stopped, every).await {
            break;
        }
    }
    if let Err(e) = device.write_all(MAGIC_CLOSE) {
        tracing::warn!("cannot stop the watchdog: {e}; it restarts this machine if the next system does not feed it");
    }
}

/// Waits so long, or less if it is to stop; whether it is.
async fn ended(stopped: &mut watch::Receiver<bool>, wait: Duration) -> bool {
    // Without the one who could stop it, it goes on.
    match tokio::time::timeout(wait, stopped.wait_for(|stopped| *stopped)).await.map(|waited| waited.map(drop)) {
        Ok(Ok(())) => true,
        Ok(Err(_)) => std::future::pending().await,
        Err(_elapsed) => false,
    }
}

/// Opens the machine's watchdog, which starts it.
fn open(class: &Path, devices: &Path) -> Result<Option<(File, WatchdogFacts)>, String> {
    let Some((name, seen)) = hardware_watchdog(class) else { return Ok(None) };
    if Duration::from_secs(seen.timeout_seconds.into()) < SHORTEST {
        let (time, shortest) = (seen.timeout_seconds, SHORTEST.as_secs());
        return Err(format!("{} has a time of {time} s, and the agent needs {shortest}", seen.identity));
    }
    if fs::read_to_string(class.join(&name).join("nowayout")).is_ok_and(|text| text.trim() == "1") {
        return Err(format!("{} cannot be stopped (nowayout), and the next system may not feed it", seen.identity));
    }
    let path = devices.join(name);
    match OpenOptions::new().write(true).open(&path) {
        Ok(device) => Ok(Some((device, seen))),
        // Its node is about to come.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hardware_watchdog_with_enough_time_is_opened() {
        let root = tempfile::tempdir().unwrap();
        let (class, devices) = (root.path().join("class"), root.path().join("dev"));
        fs::create_dir_all(&devices).unwrap();
        let opened = || open(&class, &devices).map(|found| found.map(|(_, seen)| seen.timeout_seconds));
        assert_eq!(opened(), Ok(None));
        for (name, identity, timeout) in
            [("watchdog0", "Software Watchdog", "60"), ("watchdog1", "i6300ESB timer", "30")]
        {
            fs::create_dir_all(class.join(name)).unwrap();
            fs::write(class.join(name).join("identity"), identity).unwrap();
            fs::write(class.join(name).join("timeout"), timeout).unwrap();
        }
        assert_eq!(opened(), Ok(None), "without its node");
        fs::write(devices.join("watchdog1"), "").unwrap();
        assert_eq!(opened(), Ok(Some(30)));
        fs::write(class.join("watchdog1/nowayout"), "1\n").unwrap();
        assert!(opened().unwrap_err().contains("cannot be stopped"));
        fs::write(class.join("watchdog1/timeout"), "2").unwrap();
        assert!(opened().unwrap_err().contains("has a time of 2 s"));
    }
}
