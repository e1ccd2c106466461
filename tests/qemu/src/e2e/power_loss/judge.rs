//! Asks a rebuilt disk what it holds, by the real coordinator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_lab::api::Api;
use landfall_lab::artefacts::Artefacts;
use landfall_lab::{Log, Network, Process};

use super::acks::{Acked, Due, has_events};
use super::guest;

/// From the mount to a coordinator that serves, on any host.
const READY: Duration = Duration::from_secs(120);

/// Where a disk is mounted. `ip netns exec` gives every command a table of mounts of its own: no other process sees it
/// there, and it ends with the process. A short path, because a socket's may have 108 bytes.
const MOUNT: &str = "/mnt";

/// Where disks are mounted and coordinators started.
pub(super) struct Judge<'a> {
    network: &'a Network,
    program: PathBuf,
    config: PathBuf,
    log: Log,
}

impl<'a> Judge<'a> {
    /// With its files below `dir`.
    ///
    /// # Errors
    /// They cannot be made.
    pub(super) fn new(network: &'a Network, artefacts: &Artefacts, dir: &Path) -> anyhow::Result<Self> {
        let (config, boot) = (dir.join("judge.toml"), dir.join("boot"));
        std::fs::create_dir_all(&boot).with_context(|| boot.display().to_string())?;
        for served in ["vmlinuz", "initramfs"] {
            std::fs::write(boot.join(served), b"never booted")?;
        }
        let text = guest::configuration(MOUNT, &Network::ADDRESS.to_string(), &boot.to_string_lossy());
        std::fs::write(&config, text).with_context(|| config.display().to_string())?;
        let log = Log::open(&dir.join("judge.log"))?;
        Ok(Self { network, program: artefacts.coordinator.clone(), config, log })
    }

    /// Requires that the disk mounts, that a coordinator starts on it (it checks the whole database first), and that it
    /// has everything that is due. Returns how many events and documents those were.
    ///
    /// # Errors
    /// What does not hold, and which event or document is not there.
    pub(super) async fn holds(&self, disk: &Path, acks: &[&Acked]) -> anyhow::Result<u64> {
        let mark = self.log.mark();
        let mut command = self.network.command("sh");
        let script = r#"mount -t ext4 -o loop "$1" "$2" && exec "$3" --config "$4" --log-format text"#;
        command.args(["-c", script, "judge"]).args([disk, Path::new(MOUNT), &self.program, &self.config]);
        command.env("NO_COLOR", "1");
        let mut process = Process::spawn("landfall-coordinator on a rebuilt disk", command, self.log.clone())?;
        process.wait_stderr(mark, guest::READY, READY).await?;
        let socket = format!("/proc/{}/root{MOUNT}/{}/api.sock", process.pid(), guest::DATA);
        let checked = self.has(&Api::new(Path::new(&socket))?, &Due::of(acks.iter().copied())).await;
        process.kill().await;
        checked
    }

    async fn has(&self, api: &Api, due: &Due<'_>) -> anyhow::Result<u64> {
        for (run, attempts) in &due.events {
            let events = api.events(run).await.with_context(|| format!("run {run}"))?;
            has_events(run, &events, attempts)?;
        }
        let machines = api.machines().await?;
        for (name, least) in &due.documents {
            let found = machines.iter().find(|machine| machine.metadata.name == *name);
            let found = found.with_context(|| format!("machine {name} was acknowledged and is missing"))?;
            let serial = found.spec.identity.serial.as_deref().unwrap_or_default();
            // A later write whose answer never came may be there, an older one must not.
            let recent = serial.parse().is_ok_and(|serial: u64| serial >= *least);
            ensure!(recent, "machine {name} is at write \"{serial}\", and {least} was answered");
        }
        Ok(due.count())
    }
}
