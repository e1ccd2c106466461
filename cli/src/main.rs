//! `landfall`: the operator's command. Thin: it reads flags and files, calls the coordinator's HTTP API, and shows the
//! response. The coordinator makes all decisions.

mod args;
mod changes;
mod commands;
mod complete;
mod contents;
mod contexts;
mod endpoint;
mod failure;
mod files;
mod human;
mod jsonpath;
mod live;
mod output;
mod settings;
mod show;
mod table;
mod text;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, TemplateCommand};
use commands::{machines, runs};
use endpoint::Endpoint;
use failure::Failure;
use output::Out;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // An installed provider can only be the same one.
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the event loop: {error}");
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
    let out = &mut out;
    let flags = &cli.connection;
    let connect = || async { Endpoint::find(flags)?.client().await };
    match cli.command {
        Command::Apply(args) => commands::apply::run(&args, connect, out).await,
        Command::Get(args) => commands::get::run(&args, &connect().await?, out).await,
        Command::Describe(args) => commands::describe::run(&args, &connect().await?, out).await,
        Command::Edit(args) => commands::edit::run(&args, &connect().await?, out).await,
        Command::Delete(args) => commands::delete::run(&args, &connect().await?, out).await,
        Command::Wait(args) => commands::wait::run(&args, &connect().await?, out).await,
        Command::Provision(args) => commands::provision::run(&args, &connect().await?, out).await,
        Command::Template(args) => match &args.what {
            TemplateCommand::Validate(args) => commands::template::validate(args, out),
            TemplateCommand::Render(args) => commands::template::render(args, &connect().await?, out).await,
            TemplateCommand::Schema => commands::template::print_schema(out),
        },
        Command::Import(args) => commands::import::run(&args, out),
        Command::Deprovision(args) => commands::provision::deprovision(&args, &connect().await?, out).await,
        Command::Release(args) => commands::provision::release(&args, &connect().await?, out).await,
        Command::Confirm(args) => commands::confirm::run(&args, &connect().await?, out).await,
        Command::Retry(args) => commands::provision::retry(&args, &connect().await?, out).await,
        Command::Cancel(args) => runs::run(runs::Verb::Cancel, &args.run, &connect().await?, out).await,
        Command::Pause(args) => runs::run(runs::Verb::Pause, &args.run, &connect().await?, out).await,
        Command::Resume(args) => runs::run(runs::Verb::Resume, &args.run, &connect().await?, out).await,
        Command::Approve(args) => machines::approve(&args, &connect().await?, out).await,
        Command::Adopt(args) => machines::run(machines::Verb::Adopt, &args, &connect().await?, out).await,
        Command::Detach(args) => machines::run(machines::Verb::Detach, &args, &connect().await?, out).await,
        Command::Revoke(args) => machines::run(machines::Verb::Revoke, &args, &connect().await?, out).await,
        Command::Watch(args) => commands::watch::run(&args, &connect().await?, out).await,
        Command::Events(args) => commands::events::run(&args, &connect().await?, out).await,
        Command::Logs(args) => commands::logs::run(&args, &connect().await?, out).await,
        Command::History(args) => commands::history::run(&args, &connect().await?, out).await,
        Command::Power(args) => commands::power::run(&args, &connect().await?, out).await,
        Command::Console(args) => commands::console::run(&args, &connect().await?, out).await,
        Command::Inspect(args) => commands::facts::inspect(&args, &connect().await?, out).await,
        Command::Facts(args) => commands::facts::run(&args, &connect().await?, out).await,
        Command::Audit(args) => commands::audit::run(&args, &connect().await?, out).await,
        Command::Token(args) => commands::token::run(&args.what, &connect().await?, out).await,
        Command::Backup(args) => commands::backup::run(&args, &connect().await?, out).await,
        Command::Explain(args) => commands::explain::run(&args, out),
        Command::Context(args) => commands::context::run(&args.what, flags, out),
        Command::Completion(args) => commands::completion::run(&args, out),
        Command::Man(args) => commands::man::run(&args, out),
        Command::Version(args) => commands::version::run(&args, flags, out).await,
        Command::ExitCodes(_) => Ok(out.line(args::topics::EXIT_CODES)?),
        Command::Output(_) => Ok(out.line(args::topics::OUTPUT)?),
        Command::Selectors(_) => Ok(out.line(args::topics::SELECTORS)?),
        Command::Complete(args) => commands::complete::run(&args, out).await,
    }
}
