//! The worker's side of a container: its first process, from its start to its end.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::panic::resume_unwind;
use std::process::{Command, ExitStatus};
use std::{io, thread};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

use super::plan::{ARGUMENT, Plan};

/// The longest reason why there is no container, bytes.
const LONGEST: u64 = 4096;

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its program, with this exit code.
    Code(i32),
    /// A signal ended it from outside.
    Signal(i32),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => {
                write!(f, "ended with exit code {code}")?;
                // As shells have it.
                Signal::try_from(code - 128).map_or(Ok(()), |signal| write!(f, " ({signal})"))
            }
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was ended by signal {signal}"),
                Err(_) => write!(f, "was ended by signal {number}"),
            },
        }
    }
}

/// There was no container.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// Its first process did not come so far.
    #[error("{0}")]
    Refused(String),
    /// That process could not be started or followed.
    #[error("cannot start the container: {0}")]
    Start(#[from] io::Error),
}

/// Runs it to its end. What it prints goes where this process' errors go. Nothing that it started runs when this returns.
pub(super) fn run(plan: &Plan) -> Result<Ended, StartError> {
    // A thread of its own: what it starts next is the first process of a new namespace.
    thread::scope(|scope| scope.spawn(|| followed(plan)).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

fn followed(plan: &Plan) -> Result<Ended, StartError> {
    let plan = serde_json::to_vec(plan).map_err(io::Error::other)?;
    let (mut ours, theirs) = UnixStream::pair()?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(io::Error::from)?;
    // The link leads to this program from within any root.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("landfall-worker").arg(ARGUMENT).env_clear().stdin(OwnedFd::from(theirs));
    // What it and its programs print is the log's, as what this process prints on its own errors.
    let mut child = command.stdout(io::stderr()).spawn()?;
    drop(command);
    // One that ends without reading it says why.
    let _ = ours.write_all(&plan).and_then(|()| ours.shutdown(Shutdown::Write));
    let mut answer = String::new();
    let heard = (&mut ours).take(LONGEST).read_to_string(&mut answer);
    let status = child.wait()?;
    if !answer.is_empty() {
        return Err(StartError::Refused(answer));
    }
    heard?;
    Ok(ended(status))
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or_default()),
    }
}
