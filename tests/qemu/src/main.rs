//! `landfall-lab`: the demo, the end-to-end tests, and what they use.

mod boot_bench;
mod demo;
mod e2e;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use landfall_lab::artefacts::{Artefacts, OsImage};
use landfall_lab::{CPUINFO, Chassis, Firmware, choose_accel};
use tokio::signal::unix::{SignalKind, signal};

/// Power-on to installed system in virtual machines with real firmware.
#[derive(Parser)]
#[command(name = "landfall-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install machines from power-on to phone-home, and show how long each stage took
    Demo(DemoArgs),
    /// Run the end-to-end tests
    Test(TestArgs),
    /// Measure how soon a machine is enrolled, on each way to the boot image
    Boot(BootArgs),
    /// Say which accelerator machines would use here, and why
    Accel(AccelArgs),
    /// Serve files with cuts, pauses and flipped bits as commanded (used by the tests)
    #[command(hide = true)]
    FaultyHttp {
        /// Address to listen on
        #[arg(long)]
        listen: SocketAddr,
        /// Directory with the files
        #[arg(long)]
        dir: PathBuf,
    },
    /// Read or change the chassis of a machine behind an IPMI server (used by the tests)
    #[command(hide = true)]
    Chassis(Chassis),
}

#[derive(Args)]
struct What {
    /// The agent's program, as it is in the boot image
    #[arg(long, value_name = "FILE")]
    agent: PathBuf,
    /// The coordinator's program
    #[arg(long, value_name = "FILE")]
    coordinator: PathBuf,
    /// Directory with the boot image: vmlinuz and initramfs.zst
    #[arg(long, value_name = "DIR")]
    boot: PathBuf,
    /// Directory with the OS image: *.img.zst
    #[arg(long, value_name = "DIR")]
    image: PathBuf,
    /// Directory with the boot image for servers: vmlinuz and initramfs.zst
    #[arg(long, value_name = "DIR")]
    server_boot: Option<PathBuf>,
    /// The initramfs of the switch of tests/qemu/switch
    #[arg(long, value_name = "FILE")]
    switch: Option<PathBuf>,
    /// Directory with landfall.efi and landfall.iso for arm64, with tests/qemu/arm64 in them
    #[arg(long, value_name = "DIR")]
    arm64: Option<PathBuf>,
    /// Debian's package shim-signed, unpacked
    #[arg(long, value_name = "DIR")]
    shim: Option<PathBuf>,
    /// Directory with a Debian image: *.img.zst
    #[arg(long, value_name = "DIR")]
    debian: Option<PathBuf>,
    /// The tools layer
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// The root of a Debian: tar with zstd
    #[arg(long, value_name = "FILE")]
    root_tar: Option<PathBuf>,
    /// Directory with undionly.kpxe and snponly.efi
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/ipxe")]
    bootloaders: PathBuf,
    /// Directory for logs, created if missing. Default: a new directory below the temporary directory
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

#[derive(Args)]
struct DemoArgs {
    #[command(flatten)]
    what: What,
    /// uefi or bios
    #[arg(long, default_value = "uefi")]
    firmware: Firmware,
    /// How many machines, at most 50
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50))]
    machines: u32,
    /// Keep everything running at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Write a report in JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Args)]
struct BootArgs {
    #[command(flatten)]
    what: What,
    /// How often each way is gone
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Write a report in JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Args)]
struct AccelArgs {
    /// Directory with the boot image: its kernel proves KVM
    #[arg(long, value_name = "DIR")]
    boot: PathBuf,
    /// The processor's flags (used by the tests)
    #[arg(long, value_name = "FILE", default_value = CPUINFO, hide = true)]
    cpuinfo: PathBuf,
    /// Directory for logs, created if missing. Default: a new directory below the temporary directory
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

#[derive(Args)]
struct TestArgs {
    #[command(flatten)]
    what: What,
    /// The operator's program
    #[arg(long, value_name = "FILE")]
    cli: PathBuf,
    /// Run every test on every firmware instead of the small set
    #[arg(long)]
    full: bool,
    /// Add the name of each test that passes to this file; one file for one set of programs
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Leave out the tests that the record names
    #[arg(long, requires = "record")]
    resume: bool,
    /// How many tests run in parallel
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Run only these tests, by letter, or by letter and a part of the name (z.luks)
    letters: Vec<String>,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()))
        .with_writer(std::io::stderr)
        .init();
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("landfall-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The main thread runs the lab's own future: children die with the thread that spawned them, so that is where they
/// are spawned or on the runtime's workers, which live as long.
fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Dropping the work's future ends every machine and removes every namespace.
        tokio::select! {
            code = work(cli) => code,
            _ = interrupt.recv() => stopped(),
            _ = terminate.recv() => stopped(),
        }
    });
    // A QEMU on a broken /dev/kvm may never end; the lab does not wait for it.
    runtime.shutdown_background();
    code
}

fn stopped() -> anyhow::Result<ExitCode> {
    eprintln!("landfall-lab: stopped; all its processes have ended");
    Ok(ExitCode::from(130))
}

async fn work(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Demo(args) => {
            let logs = logs(args.what.logs.as_deref())?;
            let artefacts = artefacts(&args.what)?;
            let options = demo::Options {
                firmware: args.firmware,
                machines: args.machines,
                keep: args.keep,
                report: args.report,
                logs,
            };
            demo::run(artefacts, options).await
        }
        Command::Test(args) => {
            let logs = logs(args.what.logs.as_deref())?;
            let artefacts = artefacts(&args.what)?;
            let cli = std::path::absolute(&args.cli).context("no working directory")?;
            anyhow::ensure!(cli.exists(), "{} is missing; ./scripts/test builds it", cli.display());
            let choice = e2e::Choice {
                full: args.full,
                jobs: args.jobs as usize,
                letters: &args.letters,
                record: args.record.as_deref(),
                resume: args.resume,
            };
            e2e::run(artefacts, &cli, &logs, choice).await
        }
        Command::Boot(args) => {
            let logs = logs(args.what.logs.as_deref())?;
            let options = boot_bench::Options { rounds: args.rounds, report: args.report, logs };
            boot_bench::run(artefacts(&args.what)?, options).await
        }
        Command::Accel(args) => {
            let kernel = std::path::absolute(args.boot.join("vmlinuz")).context("no working directory")?;
            let (accel, why) = choose_accel(&kernel, &args.cpuinfo, &logs(args.logs.as_deref())?).await?;
            println!("{}: {why}", accel.as_str());
            Ok(ExitCode::SUCCESS)
        }
        Command::FaultyHttp { listen, dir } => {
            landfall_lab::faulty::serve(listen, dir).await.with_context(|| format!("cannot serve on {listen}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Chassis(chassis) => {
            print!("{}", chassis.carry_out()?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn logs(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            std::path::absolute(dir).context("no working directory")
        }
        None => Ok(tempfile::Builder::new().prefix("landfall-lab.").tempdir()?.keep()),
    }
}

fn artefacts(what: &What) -> anyhow::Result<Artefacts> {
    let absolute = |path: &Path| std::path::absolute(path).context("no working directory");
    let boot =
        |dir: &Path| Ok::<_, anyhow::Error>((absolute(&dir.join("vmlinuz"))?, absolute(&dir.join("initramfs.zst"))?));
    let (kernel, initramfs) = boot(&what.boot)?;
    let artefacts = Artefacts {
        agent: absolute(&what.agent)?,
        coordinator: absolute(&what.coordinator)?,
        kernel,
        initramfs,
        bootloaders: absolute(&what.bootloaders)?,
        image: OsImage::find(&absolute(&what.image)?)?,
        server: what.server_boot.as_deref().map(boot).transpose()?,
        debian: what
            .debian
            .as_deref()
            .map(|dir| Ok::<_, anyhow::Error>(OsImage::find(&absolute(dir)?)?))
            .transpose()?,
        switch: what.switch.as_deref().map(absolute).transpose()?,
        arm64: what.arm64.as_deref().map(absolute).transpose()?,
        shim: what.shim.as_deref().map(absolute).transpose()?,
        tools: what.tools.as_deref().map(absolute).transpose()?,
        root_tar: what
            .root_tar
            .as_deref()
            .map(|file| Ok::<_, anyhow::Error>(OsImage::measure(&absolute(file)?)?))
            .transpose()?,
    };
    let Artefacts { agent, coordinator, kernel, initramfs, bootloaders, .. } = &artefacts;
    for path in [agent, coordinator, kernel, initramfs, bootloaders] {
        anyhow::ensure!(path.exists(), "{} is missing; ./scripts/test and ./scripts/demo build it", path.display());
    }
    Ok(artefacts)
}
