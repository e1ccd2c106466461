//! One process of what is measured, with everything it needs in a directory that goes with it.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, sleep, timeout};

/// From the start of a process until it answers.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(300);
/// One request.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks whether it answers.
const LOOK: Duration = Duration::from_millis(20);

/// Where a coordinator keeps its documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Store {
    /// In its data directory.
    Sqlite,
    /// In a server of its own on this host, which flushes every commit.
    Postgresql,
}

/// Which server.
#[derive(Debug, Clone)]
pub enum Kind {
    /// So many coordinators of one store, by their program, all at work.
    Coordinator(PathBuf, Store, usize),
    /// This program as `echo-server`.
    Echo,
}

/// The process. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Member {
    directory: tempfile::TempDir,
    pub(crate) http: u16,
    pub(crate) tls: u16,
    pub(crate) api: reqwest::Client,
    child: Option<Child>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to kill.
        drop(self.kill());
    }
}

impl Member {
    /// Its directory and its ports.
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("landfall-sim-").tempdir().context("no temporary directory")?;
        let [http, tls] = landfall_edge::testing::ports();
        let api = reqwest::Client::builder()
            .unix_socket(directory.path().join("data/api.sock"))
            .no_proxy()
            .timeout(REQUEST_LIMIT)
            .build()
            .context("no HTTP client")?;
        Ok(Self { directory, http, tls, api, child: None })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Of its TLS port.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.tls)
    }

    /// The process; 0 while there is none.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub(crate) const fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// The key of the secrets of the one in that directory.
    pub(crate) fn take_key(&self, from: &Path) -> Result<()> {
        let data = self.path().join("data");
        DirBuilder::new().mode(0o700).create(&data).context("cannot make the data directory")?;
        fs::copy(from.join("data/secrets.key"), data.join("secrets.key")).context("the first one has no key")?;
        Ok(())
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn launch(&mut self, kind: &Kind) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.path().join("log")).context("no log file")?;
        let mut command = match kind {
            Kind::Coordinator(program, ..) => {
                let mut command = Command::new(program);
                command.arg("--config").arg(self.path().join("coordinator.toml"));
                command
            }
            Kind::Echo => {
                let mut command = Command::new(env::current_exe().context("this program has no path")?);
                let listen = format!("127.0.0.1:{}", self.tls);
                command.args(["echo-server", "--listen", &listen, "--directory"]).arg(self.path());
                command
            }
        };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        self.child = Some(child);
        let until = Instant::now() + START_LIMIT;
        while Instant::now() < until {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().transpose()).transpose()? {
                bail!("it ended ({status}): {}", self.log_end());
            }
            let up = match kind {
                Kind::Echo => self.path().join("pin").exists() && self.listens().await,
                Kind::Coordinator(..) => self.answers("/healthz").await && self.listens().await,
            };
            if up {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        bail!("it is not up after {} s: {}", START_LIMIT.as_secs(), self.log_end())
    }

    /// Kills it with SIGKILL, as a crash does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().context("it was gone already")?;
        child.wait()?;
        Ok(())
    }

    /// Whether it can work.
    pub(crate) async fn is_ready(&self) -> bool {
        self.answers("/readyz").await
    }

    pub(crate) fn pin(&self, kind: &Kind) -> Result<String> {
        match kind {
            Kind::Echo => Ok(fs::read_to_string(self.path().join("pin"))?),
            Kind::Coordinator(..) => {
                // The line it says when it is ready has it, and so has every boot script.
                let log = fs::read_to_string(self.path().join("log"))?;
                let pin = log.split(" ca=").nth(1).and_then(|rest| rest.split_whitespace().next());
                Ok(pin.context("its log does not name its CA")?.to_owned())
            }
        }
    }

    async fn listens(&self) -> bool {
        let connect = TcpStream::connect(("127.0.0.1", self.tls));
        matches!(timeout(Duration::from_secs(5), connect).await, Ok(Ok(_)))
    }

    async fn answers(&self, path: &str) -> bool {
        let answer = self.api.get(format!("http://localhost{path}")).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    pub(crate) fn log_end(&self) -> String {
        let log = fs::read_to_string(self.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}
