//! A child process that does not outlive its owner.
//!
//! Dropping the value kills the process by its pid. If this program itself is killed, the kernel does it: every child
//! runs under `setpriv --pdeathsig KILL`, which needs no unsafe code here. (The signal comes when the thread that
//! spawned it ends; [`Process::spawn`] must therefore be called on a thread of the async runtime, as all code here is.)

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::{LabError, Log, Mark};

/// How long the end of a killed process may take: it waits for the host's disk, where QEMU flushes a guest's disk of
/// hundreds of MiB. Until then it holds the disks and ports of the machine.
const KILL_LIMIT: Duration = Duration::from_secs(120);
/// How long the last output of an ended process may take. A pipe that a process of its own still holds open does not end.
const OUTPUT_LIMIT: Duration = Duration::from_secs(10);

/// Which of the child's outputs goes into which log.
#[derive(Debug, Clone)]
pub struct Outputs {
    /// Standard output.
    pub stdout: Log,
    /// Standard error.
    pub stderr: Log,
}

impl From<Log> for Outputs {
    fn from(log: Log) -> Self {
        Self { stdout: log.clone(), stderr: log }
    }
}

/// A running (or ended) child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: Pid,
    outputs: Outputs,
    /// The tasks that read its outputs.
    readers: Vec<JoinHandle<()>>,
    stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts `command`, its outputs into logs.
    ///
    /// # Errors
    /// [`LabError::Spawn`].
    pub fn spawn(name: &str, mut command: Command, outputs: impl Into<Outputs>) -> Result<Self, LabError> {
        let outputs = outputs.into();
        let failed = |source| LabError::Spawn { program: name.to_owned(), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = Pid::from_raw(id.ok_or_else(|| failed(std::io::Error::other("it ended at once")))?);
        let stdout = child.stdout.take().map(|stdout| outputs.stdout.attach(stdout));
        let stderr = child.stderr.take().map(|stderr| outputs.stderr.attach(stderr));
        let readers = stdout.into_iter().chain(stderr).collect();
        let stdin = child.stdin.take();
        Ok(Self { name: name.to_owned(), child, pid, outputs, readers, stdin })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Its standard input, for those that talk to it.
    pub fn stdin(&mut self) -> Option<&mut ChildStdin> {
        self.stdin.as_mut()
    }

    /// The log of its standard output.
    pub fn stdout(&self) -> &Log {
        &self.outputs.stdout
    }

    /// The log of its standard error.
    pub fn stderr(&self) -> &Log {
        &self.outputs.stderr
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // An error would mean that other code reaped it: then it has ended, but its status is lost.
        self.child.try_wait().ok().flatten()
    }

    /// Its end, with all that it wrote in its logs: a mark in them that is set from now on has none of it after it.
    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        // One that ended may have been waited for before, and must not be again.
        self.readers.retain(|reader| !reader.is_finished());
        let read = futures::future::join_all(&mut self.readers);
        // What does not come is left out.
        let _ = tokio::time::timeout(OUTPUT_LIMIT, read).await;
        Ok(status)
    }

    /// SIGKILL, and wait until it is gone. An ended process is no error.
    pub async fn kill(&mut self) {
        if self.child.start_kill().is_ok() {
            // A process stuck in the kernel must not hang the lab; it keeps its pending SIGKILL.
            let _ = tokio::time::timeout(KILL_LIMIT, self.end()).await;
        }
    }

    /// Asks it to end, and kills it after `limit`. Returns whether it ended by itself.
    pub async fn terminate(&mut self, limit: Duration) -> bool {
        if self.ended().is_some() {
            return true;
        }
        // It may end between the check and the signal; then there is nothing to signal.
        let _ = kill(self.pid, Signal::SIGTERM);
        if tokio::time::timeout(limit, self.end()).await.is_ok() {
            return true;
        }
        self.kill().await;
        false
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`LabError::Timeout`] after `limit`; it goes on running.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus, LabError> {
        match tokio::time::timeout(limit, self.end()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(source)) => Err(LabError::Spawn { program: self.name.clone(), source }),
            Err(_) => Err(LabError::Timeout {
                what: format!("the end of {}", self.name),
                limit,
                tail: self.outputs.stderr.tail(12),
            }),
        }
    }

    /// Waits for a line of its standard error, and fails at once if the process ends instead.
    ///
    /// # Errors
    /// [`LabError::Timeout`], [`LabError::Ended`].
    pub async fn wait_stderr(&mut self, mark: Mark, pattern: &str, limit: Duration) -> Result<(), LabError> {
        let log = self.outputs.stderr.clone();
        tokio::select! {
            found = log.wait_for(mark, pattern, limit) => found,
            status = self.end() => {
                // It may have ended right after the line.
                if log.contains_since(mark, pattern) {
                    return Ok(());
                }
                Err(LabError::Ended {
                    name: self.name.clone(),
                    status: status.map_or_else(|e| e.to_string(), |s| s.to_string()),
                    what: format!("\"{pattern}\""),
                    tail: log.tail(12),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_output_of_an_ended_process_is_in_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(&dir.path().join("a.log")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "seq 1 20000"]);
        let mut process = Process::spawn("seq", command, log.clone()).unwrap();
        assert!(process.wait(Duration::from_secs(60)).await.unwrap().success());
        assert_eq!(log.lines_since(Mark::default()).len(), 20_000);
        process.kill().await;
        assert!(process.wait(Duration::from_secs(60)).await.unwrap().success(), "the end is the same each time");
    }
}
