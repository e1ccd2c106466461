//! What can go wrong in a lab.

use std::path::PathBuf;
use std::time::Duration;

/// A failure of the lab itself, or of something it waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A program could not be started.
    #[error("cannot start {program}; scripts/setup installs what the lab needs")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// `LANDFALL_ACCEL` names no accelerator.
    #[error("LANDFALL_ACCEL is {value}; set it to kvm or tcg, or unset it")]
    Accelerator {
        /// What it is.
        value: String,
    },
    /// A helper program failed.
    #[error("`{command}` failed with {status}: {stderr}")]
    Command {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// Its standard error.
        stderr: String,
    },
    /// A file could not be read or written.
    #[error("{what} {}", path.display())]
    File {
        /// What was tried, such as `cannot read`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something did not happen in time.
    #[error("timed out after {limit:?} while waiting for {what}{}", tail_of(tail))]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The last lines of the log it should have appeared in.
        tail: Vec<String>,
    },
    /// A process ended too early.
    #[error("{name} ended ({status}) while waiting for {what}{}", tail_of(tail))]
    Ended {
        /// The process.
        name: String,
        /// How it ended.
        status: String,
        /// What was waited for.
        what: String,
        /// The last lines of its log.
        tail: Vec<String>,
    },
    /// QEMU refused a command, or its socket broke.
    #[error("QMP {command}: {message}")]
    Qmp {
        /// The command.
        command: String,
        /// QEMU's answer.
        message: String,
    },
    /// The coordinator's API answered with an error, or not at all.
    #[error("the coordinator's API: {0}")]
    Api(#[from] landfall_client::ClientError),
    /// A recording or a disk does not have the format it should have.
    #[error("{}: {message}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
}

impl LabError {
    /// An error about a file.
    pub fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}

fn tail_of(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("; the log ends:\n    {}", lines.join("\n    "))
}
