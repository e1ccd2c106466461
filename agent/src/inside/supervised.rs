//! A process inside another root, followed until it ends.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use std::{io, thread};

use nix::sys::signal::Signal;

use super::enter::{EnterError, Setting, inside};
use crate::children::Own;

/// Between looks whether the program ended or must be stopped.
const POLL: Duration = Duration::from_millis(50);

/// A program could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The installed system could not be entered.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// The directory in which it is to start does not exist.
    #[error("the installed system has no directory {0}")]
    NoDirectory(String),
    /// A pipe, a thread or a process of this machine's failed.
    #[error("cannot follow the program")]
    Follow(#[source] io::Error),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this exit code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The agent stopped it.
    Stopped,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => {
                write!(f, "ended with exit code {code}")?;
                // As shells have it, and the first process of the namespace.
                match Signal::try_from(code - 128) {
                    Ok(signal) => write!(f, " ({signal})"),
                    Err(_) => Ok(()),
                }
            }
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was ended by signal {signal}"),
                Err(_) => write!(f, "was ended by signal {number}"),
            },
            Self::Stopped => f.write_str("was stopped"),
        }
    }
}

/// Runs the command that `prepare` completes inside, on a thread that has no other use. `stop` is asked many times a second.
/// Nothing that the program started runs when this returns. Blocking.
///
/// # Errors
/// [`RunError`]
pub(crate) fn supervise(
    setting: &Setting<'_>, prepare: impl FnOnce(&mut Command) -> Result<(), RunError>, stop: &(dyn Fn() -> bool + Sync),
) -> Result<Ended, RunError> {
    inside(setting, || started(setting.init, prepare, stop))?
}

/// Inside: starts the program and waits for its end.
fn started(
    init: fn() -> Command, prepare: impl FnOnce(&mut Command) -> Result<(), RunError>, stop: &(dyn Fn() -> bool + Sync),
) -> Result<Ended, RunError> {
    let mut child = {
        let mut command = init();
        command.process_group(0);
        prepare(&mut command)?;
        Own::spawn(&mut command).map_err(RunError::Follow)?
        // The command's ends of pipes are closed here: the output ends with the program.
    };
    loop {
        if let Some(status) = child.ended().map_err(RunError::Follow)? {
            return Ok(ended(status));
        }
        if stop() {
            child.kill().map_err(RunError::Follow)?;
            while child.ended().map_err(RunError::Follow)?.is_none() {
                thread::sleep(POLL);
            }
            return Ok(Ended::Stopped);
        }
        thread::sleep(POLL);
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or_default()),
    }
}
