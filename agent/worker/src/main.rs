//! landfall-worker: one action of one workflow, done in the root of the tools layer. The agent starts it; see
//! [`landfall_worker::serve`].

use std::{io, os::fd::AsFd as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use landfall_worker::{CONTAINER, container_init, serve};

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == CONTAINER) {
        return ExitCode::from(container_init());
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The agent logs it.
            eprintln!("landfall-worker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let reports = io::stdout().as_fd().try_clone_to_owned().context("cannot keep the standard output for reports")?;
    // What a program prints that an action starts is no report.
    nix::unistd::dup2_stdout(io::stderr()).context("cannot lead the standard output of programs into the log")?;
    serve(io::stdin().lock(), std::fs::File::from(reports), Path::new("/target"))?;
    Ok(())
}
