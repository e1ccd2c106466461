//! `landfall`: the operator's command. Thin: it reads flags and files, calls the coordinator's HTTP API, and shows what
//! comes back. Decides nothing that the coordinator decides.

mod args;
mod client;
mod commands;
mod failure;
mod files;
mod human;
mod live;
mod output;
mod server;
mod table;
mod tls;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use client::Client;
use failure::Failure;
use output::Out;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Already installed is fine: it can only be the same one.
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the system gives no event loop: {error}");
            return ExitCode::from(1);
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let mut out = Out::stdout();
    let connect = || Client::new(&cli.connection);
    match cli.command {
        Command::Apply(args) => commands::apply::run(&args, connect, &mut out).await,
        Command::Get(args) => commands::get::run(&args, &connect().await?, &mut out).await,
        Command::Describe(args) => commands::describe::run(&args, &connect().await?, &mut out).await,
        Command::Delete(args) => commands::delete::run(&args, &connect().await?, &mut out).await,
        Command::Provision(args) => commands::provision::run(&args, &connect().await?, &mut out).await,
        Command::Cancel(args) => commands::provision::cancel(&args, &connect().await?, &mut out).await,
        Command::Watch(args) => commands::watch::run(&args, &connect().await?, &mut out).await,
        Command::Events(args) => commands::events::run(&args, &connect().await?, &mut out).await,
        Command::Logs(args) => commands::logs::run(&args, &connect().await?, &mut out).await,
        Command::Explain(args) => commands::explain::run(&args, &mut out),
        Command::Completion(args) => commands::completion::run(&args, &mut out),
    }
}
