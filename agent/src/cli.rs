//! The agent as an ordinary command.

mod initramfs;
mod write;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use landfall_api::{Pin, SecretText};
use landfall_session::{Proxy, Target};

use crate::disks::Disks;
use crate::life::{Coordinator, End, Life, Once, Verdict};
use crate::status::Board;
use crate::{facts, installed, logging, phone_home};

/// Landfall's agent. As PID 1 of the boot image it needs no arguments; otherwise it is an ordinary command.
#[derive(Debug, Parser)]
#[command(name = "landfall-agent", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the agent sees of this machine.
    Facts {
        /// How to print it.
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Write a disk image to a disk, without a coordinator.
    Write(Box<write::Arguments>),
    /// Enrol with a coordinator and execute its workflows, on a running system.
    Run {
        /// The coordinator's address, such as https://10.77.0.1:7443; may be repeated for those that take its place.
        #[arg(long, required = true)]
        coordinator: Vec<String>,
        /// Digest of the coordinator's CA key, sha256:…; may be repeated.
        #[arg(long = "ca", required = true)]
        ca: Vec<Pin>,
        /// One-time boot token. Without a token a person must approve this machine's key.
        #[arg(long, env = "LANDFALL_TOKEN", hide_env_values = true)]
        token: Option<String>,
        /// The proxy between this machine and the coordinator, http://HOST:PORT. Proxy variables of the environment are ignored.
        #[arg(long)]
        proxy: Option<Proxy>,
        /// Restart this machine when the workflow requires it. Without this flag the agent exits instead.
        #[arg(long)]
        reboot: bool,
        /// End after one workflow: status 0 if the coordinator says that it succeeded, 1 if it failed or was cancelled. Where the last
        /// action restarts the machine: 1 if an action of this agent failed. Without a workflow the agent waits for one.
        #[arg(long)]
        once: bool,
    },
    /// Serve as the only task of an initramfs, as the boot image does. The kernel's command line names the coordinator. Ends with the
    /// machine's restart.
    Initramfs,
    /// Tell the coordinator that this installed system is up, then remove the agent from it.
    PhoneHome {
        /// The file that the install left.
        #[arg(long, default_value = installed::CONFIG)]
        config: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Runs the command; the exit status.
///
/// # Errors
/// What went wrong, to be printed with its causes.
pub(crate) fn main() -> anyhow::Result<u8> {
    let command = Arguments::parse().command;
    let tail = logging::init(std::io::stderr, true);
    let runtime = crate::runtime().context("cannot start the runtime")?;
    match command {
        Command::Facts { output } => {
            let facts = facts::collect_all();
            match output {
                Output::Json => println!("{}", serde_json::to_string_pretty(&facts)?),
                Output::Text => print_facts(&facts),
            }
            Ok(0)
        }
        Command::Write(arguments) => Ok(write::run(&arguments, runtime.handle())),
        Command::Run { coordinator, ca, token, proxy, reboot, once } => {
            let target = Target::of(&coordinator, ca)?.with_proxy(proxy);
            crate::proxy::follow(target.proxy());
            let token = token.map(SecretText::new);
            let once = if once { Once::watched() } else { Once::default() };
            runtime.block_on(async {
                let life = Life {
                    coordinator: Coordinator::Named(target),
                    token,
                    boot_port: None,
                    network: None,
                    drivers_settled: None,
                    disks: Disks::watch(None),
                    board: Board::default(),
                    tail,
                    once: once.clone(),
                };
                tokio::select! {
                    end = life.live() => finish(end, reboot).map(|()| status_of(once.verdict())),
                    () = once.over() => Ok(status_of(once.verdict())),
                    signal = ended_by() => Ok(128_u8.saturating_add(signal)),
                }
            })
        }
        Command::Initramfs => runtime.block_on(initramfs::serve(tail)),
        Command::PhoneHome { config } => match runtime.block_on(phone_home::run(&config)) {
            Ok(()) => Ok(0),
            Err(e @ phone_home::Error::Refused(_)) => {
                tracing::error!("{e}");
                Ok(installed::EXIT_REFUSED)
            }
            Err(e) => Err(e.into()),
        },
    }
}

/// The number of the signal that ends the agent as the first process of a container: no signal does so by default. Elsewhere signals
/// have their default effect.
async fn ended_by() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};
    if std::process::id() != 1 {
        return std::future::pending().await;
    }
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! { _ = interrupt.recv() => 2, _ = terminate.recv() => 15 }
}

/// The exit status after one workflow; 0 where workflows are not judged, or there was none.
fn status_of(verdict: Option<Verdict>) -> u8 {
    match verdict {
        None => 0,
        Some(Verdict::Succeeded) => {
            tracing::info!("every action of the workflow succeeded");
            0
        }
        Some(Verdict::Failed(why)) => {
            tracing::error!("the workflow failed: {why}");
            1
        }
    }
}

fn finish(end: End, reboot: bool) -> anyhow::Result<()> {
    let why = match end {
        End::Reboot => "the workflow is done; its last action restarts this machine",
        End::PowerOff => "the workflow is done; its last action turns this machine off",
        End::Kexec => "the workflow is done; its last action starts the installed system's kernel",
        End::BootDisk => "there is no workflow, and the coordinator tells this machine to boot its own disk",
    };
    if !reboot {
        tracing::info!("{why}; this is not done without --reboot");
        return Ok(());
    }
    tracing::info!("{why}");
    // The running system's init makes an orderly restart; it knows what must stop first.
    match end {
        End::PowerOff => init(&["poweroff"])?,
        End::Reboot | End::BootDisk => init(&["reboot"])?,
        End::Kexec => init(&["systemctl", "kexec"]).or_else(|e| {
            tracing::error!("{e:#}; restarting through the firmware");
            init(&["reboot"])
        })?,
    }
    Ok(())
}

fn init(command: &[&str]) -> anyhow::Result<()> {
    let (program, words) = command.split_first().context("no command")?;
    let status =
        std::process::Command::new(program).args(words).status().with_context(|| format!("cannot run {program}"))?;
    anyhow::ensure!(status.success(), "{}: {status}", command.join(" "));
    Ok(())
}

fn print_facts(facts: &landfall_api::MachineFacts) {
    let or_none = |text: &str| if text.is_empty() { "(none)".to_owned() } else { text.to_owned() };
    println!("uuid      {}", or_none(&facts.smbios.uuid));
    println!("serial    {}", or_none(&facts.smbios.serial));
    println!("product   {}", or_none(format!("{} {}", facts.smbios.manufacturer, facts.smbios.product).trim()));
    println!("firmware  {:?} {}", facts.firmware.mode, facts.firmware.version);
    println!("cpu       {} x {} ({})", facts.cpu.logical, or_none(&facts.cpu.model), facts.cpu.architecture);
    println!("memory    {} MiB", facts.memory_bytes >> 20);
    for disk in &facts.disks {
        let id = &disk.id;
        let names = [&id.model, &id.serial, &id.wwn, &id.path].map(String::as_str);
        let names: Vec<&str> = names.into_iter().filter(|n| !n.is_empty()).collect();
        println!("disk      {} {} MiB {} {}", id.name, id.size_bytes >> 20, disk.transport, names.join(" "));
    }
    for nic in &facts.nics {
        let link = if nic.carrier { "carrier" } else { "no carrier" };
        println!("nic       {} {} {} {link}", nic.name, nic.mac, or_none(&nic.driver));
    }
}
