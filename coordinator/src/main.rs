//! `landfall-coordinator`: flags and subcommands. What they do stands elsewhere.

mod lead;
mod logging;
mod opening;
mod run;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use landfall_api::{DurationSpec, Role};
use landfall_boot::arch::Arch;
use landfall_boot::http::script::AgentBoot;
use landfall_coordinator::pki::{ca_pin, issue_operator};
use landfall_coordinator::{backup, config::Config, doctor, migrate, tools_layer};
use landfall_store::MIGRATED;

use logging::LogFormat;

/// In a profile with ten thousand sessions, the C library's allocator took more than a quarter of the workers' own time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Brings bare metal ashore: documents, workflows, sessions and boot services in one process.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Checks the configuration and the files it names, and ends: the same as the command `check`.
    #[arg(long)]
    check: bool,
    /// What to do. Default: run.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args)]
struct Common {
    /// The configuration file, TOML.
    #[arg(long, global = true, env = "LANDFALL_CONFIG", default_value = "/etc/landfall/coordinator.toml")]
    config: PathBuf,
    /// How log lines are written to standard error. RUST_LOG, else log.filter, chooses which.
    #[arg(long, global = true, value_enum, default_value_t)]
    log_format: LogFormat,
}

#[derive(Subcommand)]
enum Command {
    /// Serves until SIGTERM; SIGHUP reads the configuration again.
    Run,
    /// Creates a key and a certificate for an operator, with or without a running coordinator.
    IssueOperator {
        /// The operator's name: letters, digits, dots, hyphens, underscores and @. The audit log calls them so.
        name: String,
        /// What they may do: viewer, operator or admin.
        #[arg(long)]
        role: Role,
        /// The directory to make, with NAME.pem, NAME.key and ca.pem in it.
        #[arg(long)]
        out: PathBuf,
        /// How long the certificate is good for, such as 12h or 90d: an hour to 825 days.
        #[arg(long, default_value = "365d")]
        ttl: DurationSpec,
    },
    /// Prints the kernel command line for a boot medium of this coordinator: landfall-image iso and uki take it as --command-line.
    #[command(name = "command-line")]
    MediumLine {
        /// For arm64 machines.
        #[arg(long)]
        arm64: bool,
    },
    /// Checks the configuration and the files it names.
    Check,
    /// Looks at everything this coordinator needs of its host, and says what to do about what is amiss. Ends with 1 if
    /// something does not work.
    Doctor {
        /// How it is shown.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Writes all data of the coordinator into one file, also of a running one. The file contains the certificate
    /// authority's key and the key of the secrets: protect it like them.
    Backup {
        /// The file to make, mode 0600. It must not be there.
        #[arg(long)]
        output: PathBuf,
    },
    /// Copies the whole store of a coordinator that does not run from SQLite into PostgreSQL, or back, and compares every row.
    MigrateStore {
        /// Where to.
        #[arg(long)]
        to: Engine,
    },
    /// Puts a backup into the data directory of a coordinator that does not run; or marks a PostgreSQL database as put back.
    Restore {
        /// The backup.
        #[arg(long, required_unless_present = "database")]
        from: Option<PathBuf>,
        /// The database of [store] url was put back by PostgreSQL's own tools, and no coordinator runs: withdraws its tokens, and holds
        /// what was requested before.
        #[arg(long, conflicts_with_all = ["from", "replace"])]
        database: bool,
        /// If the data directory is not empty: renames it, keeps it, and puts the backup in its place.
        #[arg(long)]
        replace: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Engine {
    /// The database of [store] url, which must be empty. The SQLite file is renamed then.
    Postgresql,
    /// The data directory, which must have none. What is in PostgreSQL stays there.
    Sqlite,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

fn main() -> Result<ExitCode> {
    let Arguments { common, check, command } = Arguments::parse();
    let command = if check { Command::Check } else { command.unwrap_or(Command::Run) };
    landfall_edge::gate::open_files::raise();
    // `Err` means that it is installed already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    match command {
        Command::Run => {
            let config = checked(&common)?;
            let logs = logging::start(common.log_format, &config.log.filter);
            runtime()?.block_on(run::run(&common.config, config, logs))?;
        }
        Command::Check => {
            tools_layer::read(&checked(&common)?)?;
            println!("{} is fine", common.config.display());
        }
        Command::MediumLine { arm64 } => {
            let config = logged(&common)?;
            let pin = ca_pin(&config.data_dir)?;
            let arch = if arm64 { Arch::Arm64 } else { Arch::X86_64 };
            println!("{}", AgentBoot::of(&config.boot_services(vec![pin.to_string()])).medium_line(arch));
        }
        Command::Doctor { output } => {
            let findings = runtime()?.block_on(doctor::examine(&common.config));
            match output {
                Output::Text => print!("{}", doctor::text(&findings)),
                Output::Json => println!("{}", doctor::json(&findings)),
            }
            return Ok(if doctor::well(&findings) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::IssueOperator { name, role, out, ttl } => {
            let config = logged(&common)?;
            let ends = issue_operator(&config.data_dir, &name, role, ttl.get(), &out)?;
            println!("{name} is {role} until {ends}; certificate, key and CA are in {}", out.display());
            println!("revoke it with: POST /apis/landfall.dev/v1alpha1/operators/{name}/revoke");
        }
        Command::Backup { output } => {
            let config = logged(&common)?;
            let taken = runtime()?.block_on(backup::take(&config, &output))?;
            let whose = if taken.online { "the running coordinator" } else { "a coordinator that does not run" };
            println!("{}: {} files of {whose}, {}", output.display(), taken.manifest.files.len(), taken.manifest.time);
        }
        Command::MigrateStore { to } => {
            let config = logged(&common)?;
            let copied = runtime()?.block_on(async {
                match to {
                    Engine::Postgresql => migrate::into_postgres(&config).await,
                    Engine::Sqlite => migrate::into_sqlite(&config).await,
                }
            })?;
            for (table, rows) in copied {
                println!("{table}: {rows} rows, the same in both");
            }
            let next = match to {
                Engine::Postgresql => format!("{MIGRATED} is the store as it was; remove it when you need it no more"),
                Engine::Sqlite => {
                    "remove [store] and others from the configuration of every host before you start it".to_owned()
                }
            };
            println!("{next}");
        }
        Command::Restore { from: None, .. } => {
            let config = logged(&common)?;
            let access = runtime()?.block_on(backup::mark_database(&config))?;
            println!("the database counts as put back: what was requested before waits for landfall confirm");
            for line in access.to_do(None) {
                tracing::warn!("{}", line.trim_start());
                println!("{line}");
            }
        }
        Command::Restore { from: Some(from), replace, .. } => {
            let config = logged(&common)?;
            let restored = backup::restore(&config, &from, replace)?;
            println!("{} is restored to its state of {}", config.data_dir.display(), restored.manifest.time);
            if let Some(old) = restored.kept_aside {
                println!("its previous content is in {}", old.display());
            }
            for line in restored.access.to_do(Some(restored.manifest.time)) {
                tracing::warn!(restored = %config.data_dir.display(), "{}", line.trim_start());
                println!("{line}");
            }
            println!("start it with: landfall-coordinator --config {}", common.config.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration, and log lines from here on.
fn logged(common: &Common) -> Result<Config> {
    let config = Config::load(&common.config)?;
    logging::start(common.log_format, &config.log.filter);
    Ok(config)
}

fn checked(common: &Common) -> Result<Config> {
    let config = Config::load(&common.config)?;
    config.check_files()?;
    Ok(config)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("cannot start the runtime")
}
