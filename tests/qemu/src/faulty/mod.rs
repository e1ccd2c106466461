//! An HTTP server with commanded faults: the image's source in tests.
//!
//! It runs as a process of its own inside the network (`landfall-lab faulty-http`), takes one [`Command`] per line on
//! its standard input and writes one [`Notice`] per line on its standard output, so that a test can *wait* for the middle
//! of a download instead of guessing its time.

mod server;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

pub use server::serve;

use crate::process::Outputs;
use crate::{LabError, Log, Mark, Network, Process};

/// What is wrong with one file. Offsets are bytes from the file's beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileFault {
    /// The connection is closed before this byte is sent, with the full length promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<u64>,
    /// Sending stops before this byte until the fault is taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_at: Option<u64>,
    /// The lowest bit of this byte is flipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flip_at: Option<u64>,
    /// No more than this many bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// A command to the server: from now on these files have faults, all others do not.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Command {
    /// File name to fault.
    pub faults: BTreeMap<String, FileFault>,
}

/// A report of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
pub enum Notice {
    /// It listens.
    Listening,
    /// A command was taken.
    Taken,
    /// A request for a file from this offset on.
    Request {
        /// The file.
        file: String,
        /// First byte asked for.
        from: u64,
    },
    /// Sending has stopped before this byte.
    Paused {
        /// The file.
        file: String,
        /// The next byte.
        at: u64,
    },
    /// The connection was closed before this byte.
    Cut {
        /// The file.
        file: String,
        /// The next byte.
        at: u64,
    },
}

/// How long it may take to start, and to take a command. Usually it is a tenth of a second.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A handle on the server's process.
#[derive(Debug)]
pub struct FaultyHttp {
    process: Process,
    log: Log,
}

impl FaultyHttp {
    /// Where it listens on [`Network::ADDRESS`].
    pub const PORT: u16 = 8480;

    /// Serves the files in `files`; `program` is a binary with the subcommand `faulty-http` (this crate's own).
    ///
    /// # Errors
    /// [`LabError`] if it does not start.
    pub async fn start(program: &Path, network: &Network, files: &Path, dir: &Path) -> Result<Self, LabError> {
        let log = Log::open(&dir.join("faulty-http.log"))?;
        let mut command = network.command(program);
        command.arg("faulty-http").arg("--listen").arg(format!("{}:{}", Network::ADDRESS, Self::PORT));
        command.arg("--dir").arg(files);
        let outputs = Outputs { stdout: log.clone(), stderr: log.clone() };
        let process = Process::spawn("faulty-http", command, outputs)?;
        let mut server = Self { process, log };
        server.wait(Mark::default(), &Notice::Listening, ANSWER_LIMIT).await?;
        Ok(server)
    }

    /// The URL of a file.
    pub fn url(&self, file: &str) -> String {
        format!("http://{}:{}/{file}", Network::ADDRESS, Self::PORT)
    }

    /// Replaces all faults and returns when they hold. Paused downloads continue unless the new faults pause them
    /// again.
    ///
    /// # Errors
    /// [`LabError`] if the server is gone.
    pub async fn set(&mut self, faults: impl IntoIterator<Item = (String, FileFault)>) -> Result<(), LabError> {
        let command = Command { faults: faults.into_iter().collect() };
        let mark = self.log.mark();
        let failed = |message: String| LabError::Qmp { command: "faulty-http".into(), message };
        let mut line = serde_json::to_string(&command).map_err(|e| failed(e.to_string()))?;
        line.push('\n');
        let stdin = self.process.stdin().ok_or_else(|| failed("its standard input is closed".into()))?;
        stdin.write_all(line.as_bytes()).await.map_err(|e| failed(e.to_string()))?;
        self.wait(mark, &Notice::Taken, ANSWER_LIMIT).await
    }

    /// The present end of its reports.
    pub fn mark(&self) -> Mark {
        self.log.mark()
    }

    /// Waits until it has reported something since `mark`.
    ///
    /// # Errors
    /// [`LabError::Timeout`].
    pub async fn wait(&mut self, mark: Mark, notice: &Notice, limit: Duration) -> Result<(), LabError> {
        let wanted = |line: &str| serde_json::from_str::<Notice>(line).is_ok_and(|found| found == *notice);
        self.log.wait_line(mark, &format!("{notice:?}"), limit, wanted).await.map(drop)
    }

    /// All its reports since `mark`.
    pub fn notices(&self, mark: Mark) -> Vec<Notice> {
        self.log.lines_since(mark).iter().filter_map(|line| serde_json::from_str(&line.text).ok()).collect()
    }
}
