//! `scripts/bench boot`: how soon a machine is enrolled, on each way to the boot image, beside the same kernel with an init that does
//! nothing; and what the boot image costs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use landfall_lab::artefacts::Artefacts;
use landfall_lab::{
    Accel, CPUINFO, CoordinatorOptions, CoordinatorProcess, DhcpMode, Firmware, KERNEL_ARGS, Machine, Network,
    baseline, choose_accel,
};
use serde_json::{Value, json};

/// Memory of each machine, MiB.
const MEMORY_MIB: u32 = 512;
/// From power-on to enrolled and idle under KVM; multiplied by the accelerator's patience.
const LIMIT: Duration = Duration::from_secs(120);
/// What the agent logs.
const ENROLLED: &str = "landfall:  INFO enrolled as";

/// What is measured.
pub(crate) struct Options {
    /// How often each way is gone; medians are shown.
    pub(crate) rounds: u32,
    /// Where the figures go as JSON.
    pub(crate) report: Option<PathBuf>,
    /// Where logs go.
    pub(crate) logs: PathBuf,
}

/// One way to the boot image.
struct Way {
    name: &'static str,
    firmware: Firmware,
    http: bool,
    server: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "BIOS, PXE, vm", firmware: Firmware::Bios, http: false, server: false },
    Way { name: "BIOS, PXE, server", firmware: Firmware::Bios, http: false, server: true },
    Way { name: "UEFI, PXE, vm", firmware: Firmware::Uefi, http: false, server: false },
    Way { name: "UEFI, HTTP, vm", firmware: Firmware::Uefi, http: true, server: false },
];

/// One machine from power-on to enrolled.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Seconds from power-on.
    power_on: f64,
    /// Seconds from the kernel's start, by the agent's own clock.
    kernel: f64,
    /// The agent's peak resident memory while it waits, bytes.
    rss: u64,
}

/// Measures, and prints a table. Success if it could measure, whether or not a target was met.
pub(crate) async fn run(artefacts: Artefacts, options: Options) -> anyhow::Result<ExitCode> {
    let (accel, why) = choose_accel(&artefacts.kernel, Path::new(CPUINFO), &options.logs).await?;
    println!("{}: {why}; {} rounds; logs in {}", accel.as_str(), options.rounds, options.logs.display());
    let mut floors = Vec::new();
    let mut runs: Vec<Vec<Run>> = WAYS.iter().map(|_| Vec::new()).collect();
    // Round by round, so that a machine that becomes slower does so for every way.
    for round in 0..options.rounds {
        let network = Network::create()?;
        let dir = options.logs.join(format!("floor-{round}"));
        std::fs::create_dir_all(&dir)?;
        let kernel = &artefacts.kernel;
        let floor = baseline::busybox_boottime(kernel, Firmware::Bios, MEMORY_MIB, &network, &dir, accel).await?;
        floors.push(floor.as_secs_f64());
        drop(network);
        for (way, runs) in WAYS.iter().zip(&mut runs) {
            let dir = options.logs.join(format!("{}-{round}", way.name.replace([' ', ','], "")));
            std::fs::create_dir_all(&dir)?;
            let run = one(&artefacts, way, &dir, accel).await.with_context(|| way.name.to_owned())?;
            println!(
                "{:<20} {:>6.1} s from power-on, {:.2} s from the kernel's start",
                way.name, run.power_on, run.kernel
            );
            runs.push(run);
        }
    }
    let table = Table::of(&artefacts, &mut floors, &runs)?;
    table.print();
    if let Some(path) = &options.report {
        let text = serde_json::to_string_pretty(&table.json())? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(artefacts: &Artefacts, way: &Way, dir: &Path, accel: Accel) -> anyhow::Result<Run> {
    let network = Network::create()?;
    let (kernel, initramfs) = artefacts.boot_image(way.server)?;
    let options = CoordinatorOptions {
        program: artefacts.coordinator.clone(),
        uki: way.http.then(|| kernel.with_file_name("landfall.efi")),
        kernel,
        initramfs,
        tools: None,
        bootloaders: artefacts.bootloaders.clone(),
        images: artefacts.image.path.parent().context("the image is in no directory")?.to_owned(),
        dhcp: DhcpMode::Full,
        kernel_args: KERNEL_ARGS.to_owned(),
        others: Vec::new(),
        more: String::new(),
    };
    let coordinator = CoordinatorProcess::start(&options, &network, dir).await?;
    let builder = Machine::builder("m1").firmware(way.firmware).memory_mib(MEMORY_MIB);
    let builder = if way.http { builder.http_boot() } else { builder };
    let mut machine = builder.build(&network, dir, accel)?;
    let spec = machine.spec();
    let identity = json!({ "macs": [machine.mac()], "smbiosUuid": spec.uuid, "serial": spec.serial });
    let actions = json!([{ "name": "wait", "hold": { "message": "measured" } }]);
    for (kind, name, spec) in
        [("Machine", "m1", json!({ "identity": identity })), ("Template", "idle", json!({ "actions": actions }))]
    {
        let document =
            json!({ "apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        coordinator.api().apply(&document).await?;
    }
    coordinator.api().provision("m1", "idle", false).await?;
    let limit = LIMIT * accel.patience();
    let begun = Instant::now();
    let mark = machine.power_on().await?;
    let enrolled = machine.wait_serial_line(mark, ENROLLED, limit).await?;
    let beaten = |machine: &landfall_api::Machine| {
        machine.status.as_ref().is_some_and(|status| status.agent_peak_rss_bytes.is_some())
    };
    let seen = coordinator.api().wait_machine("m1", "a heartbeat", limit, beaten).await?;
    machine.power_cut().await;
    let status = seen.status.context("a machine without a status")?;
    Ok(Run {
        power_on: enrolled.at.saturating_duration_since(begun).as_secs_f64(),
        kernel: status.enrolled_boottime_ms.context("no time of the enrolment")? as f64 / 1000.0,
        rss: status.agent_peak_rss_bytes.unwrap_or_default(),
    })
}

/// One line of the table.
struct Figure {
    name: &'static str,
    measured: f64,
    target: f64,
    unit: &'static str,
}

struct Table {
    floor: f64,
    ways: Vec<(&'static str, f64, f64)>,
    figures: Vec<Figure>,
}

impl Table {
    fn of(artefacts: &Artefacts, floors: &mut [f64], runs: &[Vec<Run>]) -> anyhow::Result<Self> {
        let floor = median(floors);
        let of = |runs: &[Run], what: fn(&Run) -> f64| median(&mut runs.iter().map(what).collect::<Vec<_>>());
        let ways: Vec<_> = WAYS
            .iter()
            .zip(runs)
            .map(|(way, runs)| (way.name, of(runs, |run| run.power_on), of(runs, |run| run.kernel)))
            .collect();
        let size = |path: &Path| {
            let bytes = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
            anyhow::Ok(bytes as f64 / 1e6)
        };
        let boot = |server| {
            let (kernel, initramfs) = artefacts.boot_image(server)?;
            anyhow::Ok(size(&kernel)? + size(&initramfs)?)
        };
        let rss = runs.iter().flatten().map(|run| run.rss).max().unwrap_or_default();
        let figure = |name, measured, target, unit| Figure { name, measured, target, unit };
        let figures = vec![
            figure("kernel to enrolled, beyond the floor (BIOS)", ways[0].2 - floor, 1.0, "s"),
            figure("`server` beside `vm`, power-on to enrolled", ways[1].1 / ways[0].1, 1.3, "×"),
            figure("UEFI HTTP beside PXE, power-on to enrolled", ways[3].1 / ways[2].1, 1.0, "×"),
            figure("kernel and initramfs, `vm`", boot(false)?, 16.0, "MB"),
            figure("kernel and initramfs, `server`, no firmware", boot(true)?, 60.0, "MB"),
            figure("agent", size(&artefacts.agent)?, 12.0, "MB"),
            figure("agent's peak RSS, enrolled and idle", rss as f64 / f64::from(1 << 20), 16.0, "MiB"),
        ];
        Ok(Self { floor, ways, figures })
    }

    fn print(&self) {
        println!("\n{:<46}{:>10}{:>10}", "median, seconds", "power-on", "kernel");
        println!("{:<46}{:>10}{:>10.2}", "busybox that does nothing (floor)", "", self.floor);
        for (name, power_on, kernel) in &self.ways {
            println!("{:<46}{power_on:>10.1}{kernel:>10.2}", format!("{name}, to enrolled"));
        }
        println!("\n{:<46}{:>12}{:>14}  met", "figure", "measured", "target");
        for Figure { name, measured, target, unit } in &self.figures {
            let met = if measured <= target { "yes" } else { "NO" };
            println!("{name:<46}{:>12}{:>14}  {met}", format!("{measured:.2} {unit}"), format!("<= {target} {unit}"));
        }
        println!(
            "\nNot measured here, what their projects say: HookOS 180 MB and 2 to 8 GB of RAM, tinyIPA 97 MB and 3 to 4 GB,"
        );
        println!("BOOTy 15 to 80 MB.");
    }

    fn json(&self) -> Value {
        let ways = self.ways.iter().map(|(name, power_on, kernel)| {
            json!({ "name": name, "power_on_to_enrolled_seconds": power_on, "kernel_to_enrolled_seconds": kernel })
        });
        let figures = self.figures.iter().map(|Figure { name, measured, target, unit }| {
            json!({ "name": name, "measured": measured, "target": target, "unit": unit, "met": measured <= target })
        });
        json!({
            "floor_seconds": self.floor,
            "ways": ways.collect::<Vec<_>>(),
            "figures": figures.collect::<Vec<_>>(),
        })
    }
}

/// The one in the middle; of an even number the lower. Zero without any.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!([median(&mut [3.0, 1.0, 2.0]), median(&mut [2.0, 1.0]), median(&mut [])], [2.0, 1.0, 0.0]);
    }
}
