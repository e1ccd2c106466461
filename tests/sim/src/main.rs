//! `landfall-sim`: a fleet of simulated machines against a coordinator, and the echo that is its limit.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use landfall_sim::echo;
use landfall_sim::measure::{Plan, measure};
use landfall_sim::power;
use landfall_sim::process::raise_open_files;
use landfall_sim::report::Report;
use landfall_sim::subject::{Kind, Store};

/// The coordinator's, so that the echo differs from it in nothing else.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Files beside one connection a machine: boot scripts under way, logs, the runtime's own.
const SPARE_FILES: u64 = 1000;
/// The fleet that flatness is judged against.
const SMALL: u32 = 1000;

/// Simulated machines by the thousand, over real TLS on loopback.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures a coordinator of its own, and the echo, with the same fleet.
    Coordinator {
        /// The coordinator's program.
        #[arg(long)]
        program: PathBuf,
        /// How many machines.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=16_000))]
        agents: u32,
        /// Where the coordinator keeps its documents.
        #[arg(long, value_enum, default_value_t = Store::Sqlite)]
        store: Store,
        /// How many coordinators of one PostgreSQL; agents begin with each of them.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
        coordinators: u8,
        /// Seed of the fleet; the same seed gives the same fleet.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Writes everything to this file, as JSON.
        #[arg(long)]
        report: Option<PathBuf>,
    },
    /// Measures how a coordinator of its own starts machines behind slow, dead and hanging BMCs.
    Power {
        /// The coordinator's program.
        #[arg(long)]
        program: PathBuf,
        /// How many machines.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
        machines: u32,
        /// Seed of the fleet; the same seed gives the same fleet.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Writes everything to this file, as JSON.
        #[arg(long)]
        report: Option<PathBuf>,
    },
    /// Answers agents' calls by bare tonic over mutual TLS, and keeps nothing.
    EchoServer {
        /// Where.
        #[arg(long)]
        listen: SocketAddr,
        /// Where its CA is kept, and its pin written.
        #[arg(long)]
        directory: PathBuf,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // `Err` means that it is installed already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let files = raise_open_files().context("cannot raise the limit of open files")?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    match arguments.command {
        Command::EchoServer { listen, directory } => runtime.block_on(echo::serve(listen, &directory)),
        Command::Power { program, machines, seed, report } => {
            let found = runtime.block_on(power::measure(program, machines, seed))?;
            print!("{}", found.table());
            write(report, &found)?;
            runtime.shutdown_background();
            Ok(())
        }
        Command::Coordinator { program, agents, store, coordinators, seed, report } => {
            ensure!(
                u64::from(agents) + SPARE_FILES <= files,
                "{agents} machines need {} open files, but the hard limit is {files}; use fewer with --agents",
                u64::from(agents) + SPARE_FILES
            );
            let found = runtime.block_on(compare(
                Kind::Coordinator(program, store, usize::from(coordinators)),
                agents,
                seed,
            ))?;
            println!("{}", found.table());
            write(report, &found)?;
            // The runtime would only wait for sessions that never end.
            runtime.shutdown_background();
            Ok(())
        }
    }
}

/// Writes a report, if it is asked for.
fn write(path: Option<PathBuf>, found: &impl serde::Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let json = serde_json::to_string_pretty(found)?;
    std::fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
}

async fn compare(coordinator: Kind, agents: u32, seed: u64) -> Result<Report> {
    let load = std::fs::read_to_string("/proc/loadavg").context("no /proc/loadavg")?;
    let load_before = load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0);
    let small = if agents > SMALL {
        eprintln!("{SMALL} machines against the coordinator");
        Some(measure(coordinator.clone(), Plan { agents: SMALL, seed, restart: false }).await?)
    } else {
        None
    };
    eprintln!("{agents} machines against the coordinator");
    let whole = measure(coordinator, Plan { agents, seed, restart: true }).await?;
    eprintln!("{agents} machines against the echo");
    let echo = measure(Kind::Echo, Plan { agents, seed, restart: true }).await?;
    Ok(Report::new(seed, load_before, small, whole, echo))
}
