//! What can go wrong in a lab.

use std::path::PathBuf;
use std::time::Duration;

/// A failure of the lab itself, or of something it waited for.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A program could not be started.
    #[error("cannot start {program}; scripts/setup installs what the lab needs")]
    Spawn {
        program: String,
        #[source]
        source: std::io::Error,
    },
    /// `LANDFALL_ACCEL` names no accelerator.
    #[error("LANDFALL_ACCEL is {value}; set it to kvm or tcg, or unset it")]
    Accelerator { value: String },
    /// A helper program failed.
    #[error("`{command}` failed with {status}: {stderr}")]
    Command { command: String, status: String, stderr: String },
    /// A file could not be read or written.
    #[error("{what} {}", path.display())]
    File {
        /// What was tried, such as `cannot read`.
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Something did not happen in time.
    #[error("timed out after {limit:?} while waiting for {what}{}", tail_of(tail))]
    Timeout { what: String, limit: Duration, tail: Vec<String> },
    /// A process ended too early.
    #[error("{name} ended ({status}) while waiting for {what}{}", tail_of(tail))]
    Ended { name: String, status: String, what: String, tail: Vec<String> },
    /// QEMU refused a command, or its socket broke.
    #[error("QMP {command}: {message}")]
    Qmp { command: String, message: String },
    /// The lab cannot do what was asked of a machine behind a BMC.
    #[error("the lab refuses a request for system {system}: {what}")]
    Refused { system: String, what: String },
    /// The coordinator's API answered with an error, or not at all.
    #[error("the coordinator's API: {0}")]
    Api(#[from] landfall_client::ClientError),
    /// A recording or a disk does not have the format it should have.
    #[error("{}: {message}", path.display())]
    Format { path: PathBuf, message: String },
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
