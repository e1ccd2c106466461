//! Running Debian's programs.

use std::{
    io::Write as _,
    process::{self, Stdio},
};

use landfall_api::{ErrorCode, Problem};

use super::commands::Command;
use crate::{Failure, Reporter};

/// Where the tools layer has them.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Lines of a program's output that go into the log, and into a failure.
const MOST_LINES: usize = 40;

/// Runs programs.
pub(super) trait Tools {
    /// Runs it and waits for its end.
    ///
    /// # Errors
    /// It is not there, or its exit code is not 0.
    fn run(&self, command: &Command) -> Result<(), Failure>;
}

impl<T: Tools + ?Sized> Tools for &T {
    fn run(&self, command: &Command) -> Result<(), Failure> {
        (**self).run(command)
    }
}

/// Those of the tools layer.
pub(super) struct Installed<'a> {
    pub(super) report: &'a Reporter,
}

impl Tools for Installed<'_> {
    fn run(&self, command: &Command) -> Result<(), Failure> {
        let program = command.program;
        let named = |said: String| Problem::new(ErrorCode::ProgramFailed, said).at(program);
        let cannot = |error: std::io::Error| {
            let problem = named(format!("cannot run {program}: {error}"));
            Failure::last(problem.hint("make a new tools layer with landfall-image tools, and configure it"))
        };
        self.report.info(format!("{program} {}", command.arguments.join(" ")));
        let mut child = process::Command::new(program)
            .args(&command.arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("LC_ALL", "C")
            .stdin(if command.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        if let (Some(input), Some(mut pipe)) = (&command.input, child.stdin.take()) {
            // A program that ends without reading it says why itself. The pipe closes here: the input has an end.
            let _ = pipe.write_all(input.expose().as_bytes());
        }
        let output = child.wait_with_output().map_err(cannot)?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(MOST_LINES)..).unwrap_or_default();
        for line in last {
            self.report.info(format!("{program}: {line}"));
        }
        if output.status.success() {
            return Ok(());
        }
        let mut problem =
            named(format!("{program} failed with {}: {}", output.status, last.last().unwrap_or(&"no output")));
        problem.last_log_lines = last.iter().map(|line| (*line).to_owned()).collect();
        Err(Failure::last(problem.hint("the log has what it said before")))
    }
}
