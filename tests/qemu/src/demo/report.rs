//! The demo's figures: a table for people, JSON for programs.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use landfall_lab::Accel;
use landfall_lab::artefacts::Artefacts;
use serde_json::{Value, json};

use super::{MEMORY_MIB, Options};

/// A static agent, bytes.
const AGENT_TARGET: u64 = 12_000_000;
/// The VM profile's initramfs, bytes.
const INITRAMFS_TARGET: u64 = 15_000_000;
/// The agent's peak resident memory, bytes.
const RSS_TARGET: u64 = 96 << 20;
/// From kernel start to enrolled, beyond a busybox init that does nothing.
const ENROL_TARGET: Duration = Duration::from_millis(1200);

/// How one machine went.
pub(super) struct MachineReport {
    name: String,
    pub(super) stages: Vec<(String, f64)>,
    pub(super) agent_peak_rss_bytes: Option<u64>,
    pub(super) enrolled_boottime_ms: Option<u64>,
    pub(super) raw_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) error: Option<String>,
}

impl MachineReport {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            stages: Vec::new(),
            agent_peak_rss_bytes: None,
            enrolled_boottime_ms: None,
            raw_bytes: 0,
            written_bytes: 0,
            error: None,
        }
    }
}

/// How the demo went.
pub(super) struct Report {
    firmware: &'static str,
    accel: Accel,
    baseline: Duration,
    agent_bytes: u64,
    initramfs_bytes: u64,
    stored_bytes: u64,
    raw_bytes: u64,
    machines: Vec<MachineReport>,
}

impl Report {
    pub(super) fn new(
        artefacts: &Artefacts, options: &Options, accel: Accel, baseline: Duration, machines: Vec<MachineReport>,
    ) -> anyhow::Result<Self> {
        let size = |path: &Path| {
            std::fs::metadata(path).map(|m| m.len()).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Self {
            firmware: options.firmware.as_str(),
            accel,
            baseline,
            agent_bytes: size(&artefacts.agent)?,
            initramfs_bytes: size(&artefacts.initramfs)?,
            stored_bytes: artefacts.image.stored_bytes,
            raw_bytes: artefacts.image.raw_bytes.max(machines.iter().map(|m| m.raw_bytes).max().unwrap_or(0)),
            machines,
        })
    }

    pub(super) fn is_ok(&self, name: &str) -> bool {
        self.machines.iter().any(|machine| machine.name == name && machine.error.is_none())
    }

    pub(super) fn all_ok(&self) -> bool {
        !self.machines.is_empty() && self.machines.iter().all(|machine| machine.error.is_none())
    }

    fn peak_rss(&self) -> Option<u64> {
        self.machines.iter().filter_map(|machine| machine.agent_peak_rss_bytes).max()
    }

    /// The slowest enrolment beyond the baseline.
    fn enrolled_over_baseline(&self) -> Option<f64> {
        let slowest = self.machines.iter().filter_map(|machine| machine.enrolled_boottime_ms).max()?;
        Some(Duration::from_millis(slowest).as_secs_f64() - self.baseline.as_secs_f64())
    }

    /// The machine that took longest; its stages stand for the run.
    fn slowest(&self) -> Option<&MachineReport> {
        let whole = |machine: &&MachineReport| machine.stages.last().map_or(0.0, |(_, seconds)| *seconds);
        self.machines.iter().max_by(|a, b| whole(a).total_cmp(&whole(b)))
    }

    pub(super) fn print(&self) {
        println!(
            "\n{:<26}{}",
            "stage (seconds)",
            self.machines.iter().map(|m| format!("{:>10}", m.name)).collect::<String>()
        );
        for (name, _) in self.slowest().map(|machine| machine.stages.as_slice()).unwrap_or_default() {
            let seconds = |m: &MachineReport| m.stages.iter().find(|(stage, _)| stage == name).map(|(_, s)| *s);
            let cells = self
                .machines
                .iter()
                .map(|m| seconds(m).map_or_else(|| format!("{:>10}", "-"), |s| format!("{s:>10.1}")));
            println!("{name:<26}{}", cells.collect::<String>());
        }
        println!("\n{:<44}{:>14}{:>16}  met", "figure", "measured", "target");
        let mega = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
        let row = |name: &str, measured: String, target: String, met: &str| {
            println!("{name:<44}{measured:>14}{target:>16}  {met}")
        };
        let met = |ok: bool| if ok { "yes" } else { "NO" };
        row(
            "static agent",
            mega(self.agent_bytes),
            format!("<= {}", mega(AGENT_TARGET)),
            met(self.agent_bytes <= AGENT_TARGET),
        );
        row(
            "initramfs, VM profile",
            mega(self.initramfs_bytes),
            format!("<= {}", mega(INITRAMFS_TARGET)),
            met(self.initramfs_bytes <= INITRAMFS_TARGET),
        );
        row("memory of each machine", format!("{MEMORY_MIB} MB"), "<= 512 MB".into(), met(self.all_ok()));
        if let Some(rss) = self.peak_rss() {
            let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
            row("agent's peak RSS", mib(rss), format!("<= {}", mib(RSS_TARGET)), met(rss <= RSS_TARGET));
        }
        if let Some(over) = self.enrolled_over_baseline() {
            row(
                &format!("kernel to enrolled, over busybox ({:.2} s)", self.baseline.as_secs_f64()),
                format!("{over:+.2} s"),
                format!("<= {:.1} s", ENROL_TARGET.as_secs_f64()),
                met(over <= ENROL_TARGET.as_secs_f64()),
            );
        }
        row("image stored", mega(self.stored_bytes), String::new(), "");
        row("image raw", mega(self.raw_bytes), String::new(), "");
        if let Some(machine) = self.slowest() {
            row("written to disk", mega(machine.written_bytes), String::new(), "");
        }
        for machine in &self.machines {
            match &machine.error {
                None => println!("{}: phoned home", machine.name),
                Some(error) => println!("{}: FAILED: {error}", machine.name),
            }
        }
    }

    fn json(&self) -> Value {
        let stages = |machine: &MachineReport| -> Value {
            machine.stages.iter().map(|(name, seconds)| json!({ "name": name, "seconds": seconds })).collect()
        };
        let image = |written: u64| json!({ "stored_bytes": self.stored_bytes, "raw_bytes": self.raw_bytes, "written_bytes": written });
        let machines: Vec<Value> = self
            .machines
            .iter()
            .map(|machine| {
                json!({
                    "name": machine.name,
                    "result": if machine.error.is_none() { "ok" } else { "failed" },
                    "error": machine.error,
                    "stages": stages(machine),
                    "agent_peak_rss_bytes": machine.agent_peak_rss_bytes,
                    "enrolled_boottime_ms": machine.enrolled_boottime_ms,
                    "image": image(machine.written_bytes),
                })
            })
            .collect();
        let slowest = self.slowest();
        json!({
            "result": if self.all_ok() { "ok" } else { "failed" },
            "firmware": self.firmware,
            "accel": self.accel.as_str(),
            "stages": slowest.map(stages),
            "agent_bytes": self.agent_bytes,
            "initramfs_bytes": self.initramfs_bytes,
            "agent_peak_rss_bytes": self.peak_rss(),
            "busybox_boottime_ms": u64::try_from(self.baseline.as_millis()).unwrap_or(u64::MAX),
            "image": image(slowest.map_or(0, |machine| machine.written_bytes)),
            "machines": machines,
        })
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.json())? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
