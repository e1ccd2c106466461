//! The demo: power-on to phone-home on machines with empty disks, watched live and measured.

mod live;
mod report;
mod stages;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{MultiProgress, ProgressDrawTarget};
use landfall_api::{Workflow, WorkflowPhase};
use landfall_lab::artefacts::Artefacts;
use landfall_lab::{
    Accel, CPUINFO, CoordinatorOptions, CoordinatorProcess, DhcpMode, DiskBus, Firmware, Machine, Mark, Network,
    baseline, choose_accel,
};
use serde_json::json;

use live::Live;
use report::{MachineReport, Report};
use stages::Stages;

/// Memory of each machine: the install has to work in it.
const MEMORY_MIB: u32 = 512;
/// Room on each disk besides the image.
const DISK_BYTES: u64 = 8 << 30;
/// From power-on to phone-home under KVM; multiplied by the accelerator's patience.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Lines of each log shown when a machine fails.
const TAIL: usize = 25;

/// What the demo is asked for.
pub(crate) struct Options {
    pub(crate) firmware: Firmware,
    pub(crate) machines: u32,
    pub(crate) keep: bool,
    pub(crate) report: Option<PathBuf>,
    pub(crate) logs: PathBuf,
}

/// Runs it. Success only if every machine phoned home.
pub(crate) async fn run(artefacts: Artefacts, options: Options) -> anyhow::Result<ExitCode> {
    let (accel, why) = choose_accel(&artefacts.kernel, Path::new(CPUINFO), &options.logs).await?;
    let network = Network::create()?;
    let (count, accelerator) = (options.machines, accel.as_str());
    println!(
        "{count} machine(s), {} firmware, {accelerator}: {why}; logs in {}",
        options.firmware,
        options.logs.display()
    );
    println!("measuring: the same kernel with a minimal busybox init");
    let baseline =
        baseline::busybox_boottime(&artefacts.kernel, options.firmware, MEMORY_MIB, &network, &options.logs, accel)
            .await?;

    let coordinator = coordinator(&artefacts, &network, &options.logs).await?;
    apply_template(&coordinator, &artefacts).await?;
    let mut machines = Vec::new();
    for i in 1..=options.machines {
        let builder = Machine::builder(&format!("m{i}")).firmware(options.firmware).memory_mib(MEMORY_MIB);
        let builder = builder.disk(DISK_BYTES.max(artefacts.image.raw_bytes + (1 << 30)), DiskBus::Virtio);
        machines.push(builder.build(&network, &options.logs, accel)?);
    }
    let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
    let installs = machines.iter_mut().map(|machine| {
        let line = Live::new(machine.name(), &bars);
        install(machine, &coordinator, accel, line)
    });
    let results = futures::future::join_all(installs).await;

    let report = Report::new(&artefacts, &options, accel, baseline, results)?;
    for machine in &machines {
        if !report.is_ok(machine.name()) {
            show_tail(&format!("{}'s console", machine.name()), &machine.serial().tail(TAIL));
        }
    }
    if !report.all_ok() {
        show_tail("the coordinator's log", &coordinator.log().tail(TAIL));
    }
    report.print();
    if let Some(path) = &options.report {
        report.write(path)?;
        println!("report in {}", path.display());
    }
    println!("logs in {}", options.logs.display());
    if options.keep {
        let socket = options.logs.join("coordinator").join("api.sock");
        println!(
            "everything keeps running until Ctrl-C; LANDFALL_SERVER=unix://{} landfall get machines",
            socket.display()
        );
        std::future::pending::<()>().await;
    }
    drop(machines);
    remove_disks(&options.logs, options.machines);
    Ok(if report.all_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn coordinator(artefacts: &Artefacts, network: &Network, dir: &Path) -> anyhow::Result<CoordinatorProcess> {
    let images = artefacts.image.path.parent().context("the image is in no directory")?.to_owned();
    let options = CoordinatorOptions {
        program: artefacts.coordinator.clone(),
        kernel: artefacts.kernel.clone(),
        initramfs: artefacts.initramfs.clone(),
        uki: None,
        tools: None,
        bootloaders: artefacts.bootloaders.clone(),
        images,
        dhcp: DhcpMode::Full,
        kernel_args: landfall_lab::KERNEL_ARGS.to_owned(),
        // Under emulation a whole Debian takes minutes to come up, the more the more machines share the processors.
        others: Vec::new(),
        more: "[limits]\nphone_home_deadline = \"60m\"".to_owned(),
    };
    Ok(CoordinatorProcess::start(&options, network, dir).await?)
}

async fn apply_template(coordinator: &CoordinatorProcess, artefacts: &Artefacts) -> anyhow::Result<()> {
    let url =
        format!("http://{}:{}/images/{}", Network::ADDRESS, CoordinatorProcess::HTTP_PORT, artefacts.image.file_name());
    let template = json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "Template", "metadata": { "name": "debian-12" },
        "spec": { "actions": [
            { "name": "write", "writeImage": { "image": { "url": url, "digest": artefacts.image.digest } } },
            { "name": "seed", "cloudInit": { "users": [{ "name": "admin", "sudo": true }] } },
            { "name": "reboot", "reboot": {} },
        ] },
    });
    coordinator.api().apply(&template).await?;
    Ok(())
}

/// Installs one machine and always returns a report.
async fn install(machine: &mut Machine, coordinator: &CoordinatorProcess, accel: Accel, line: Live) -> MachineReport {
    let mut report = MachineReport::new(machine.name());
    let result = installed(machine, coordinator, accel, &line, &mut report).await;
    match &result {
        Ok(()) => line.finish("phoned home"),
        Err(error) => line.finish(&format!("failed: {error:#}")),
    }
    report.error = result.err().map(|error| format!("{error:#}"));
    report
}

async fn installed(
    machine: &mut Machine, coordinator: &CoordinatorProcess, accel: Accel, line: &Live, report: &mut MachineReport,
) -> anyhow::Result<()> {
    let api = coordinator.api();
    let spec = machine.spec();
    let document = json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": { "name": spec.name },
        "spec": { "identity": { "macs": [machine.mac()], "smbiosUuid": spec.uuid, "serial": spec.serial } },
    });
    api.apply(&document).await?;
    let workflow = api.provision(machine.name(), "debian-12", false).await?;
    let log_mark: Mark = coordinator.log().mark();
    let power_on = Instant::now();
    let serial_mark = machine.power_on().await?;
    line.stage("powered on");

    let stages = Mutex::new(Stages::new(power_on));
    let wanted = |w: &Workflow| {
        let status = w.status.as_ref();
        line.workflow(w);
        // No code panics while it holds the lock.
        stages.lock().unwrap_or_else(std::sync::PoisonError::into_inner).observe(w, Instant::now());
        status.is_some_and(|s| s.phase.is_terminal() || s.phoned_home_at.is_some())
    };
    let limit = LIMIT * accel.patience();
    let ended = tokio::select! {
        ended = api.wait_workflow(&workflow, "phone-home", limit, wanted) => ended,
        () = before_agent(line, machine, coordinator, log_mark, serial_mark) => unreachable!("it never ends"),
    };
    let mut stages = stages.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seen = api.machine(machine.name()).await?;
    let status = seen.status.as_ref();
    report.agent_peak_rss_bytes = status.and_then(|s| s.agent_peak_rss_bytes);
    report.enrolled_boottime_ms = status.and_then(|s| s.enrolled_boottime_ms);
    let lines = coordinator.log().lines_since(log_mark);
    stages.complete(&lines, &machine.serial().lines_since(serial_mark), machine.mac(), report.enrolled_boottime_ms);
    report.stages = stages.table();
    let ended = ended?;
    let status = ended.status.context("a workflow without a status")?;
    let progress = status.actions.first().and_then(|action| action.progress.clone()).unwrap_or_default();
    report.raw_bytes = progress.raw_bytes;
    report.written_bytes = progress.written_bytes;
    if status.phase != WorkflowPhase::Succeeded {
        let problem = status.problem.map_or_else(String::new, |problem| format!(": {problem}"));
        anyhow::bail!("the workflow ended {:?}{problem}", status.phase);
    }
    anyhow::ensure!(status.phoned_home_at.is_some(), "the workflow succeeded without a phone-home");
    Ok(())
}

/// Shows the coordinator's log until the agent reports. Never ends by itself.
async fn before_agent(line: &Live, machine: &Machine, coordinator: &CoordinatorProcess, log: Mark, serial: Mark) {
    let forever = Duration::from_secs(24 * 3600);
    for (stage, word) in
        [("dhcp", "service=dhcp"), ("tftp", "service=tftp"), ("ipxe", "/boot/ipxe"), ("kernel", "/boot/kernel")]
    {
        let mac = machine.mac();
        let seen = |text: &str| stages::names(text, &[word, mac]);
        if coordinator.log().wait_line(log, stage, forever, seen).await.is_err() {
            break;
        }
        line.stage(stage);
    }
    // An error is the limit of a day.
    let _ = machine.serial().wait_for(serial, "Linux version", forever).await;
    line.stage("kernel started");
    std::future::pending().await
}

fn show_tail(what: &str, lines: &[String]) {
    println!("---- the end of {what}");
    for line in lines {
        println!("| {line}");
    }
}

/// The disks are large and useless without their machines.
fn remove_disks(logs: &Path, machines: u32) {
    for i in 1..=machines {
        let disk = logs.join(format!("m{i}")).join("disk0.raw");
        if let Err(error) = std::fs::remove_file(&disk) {
            tracing::warn!(path = %disk.display(), %error, "cannot remove");
        }
    }
}
