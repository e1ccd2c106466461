//! What is measured: a coordinator of its own, or the echo, as a process with everything it needs in a directory that
//! goes with it.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use landfall_api::SecretText;
use landfall_postgres::Server;
use landfall_session::Target;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::machine::Machine;

const API: &str = "http://localhost/apis/landfall.dev/v1alpha1";
/// Requests under way at once while a site is prepared.
pub(crate) const AT_ONCE: usize = 32;
/// From the start of a process until it answers.
const START_LIMIT: Duration = Duration::from_secs(300);
/// One request.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);

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
    /// The coordinator, by its program.
    Coordinator(PathBuf, Store),
    /// This program as `echo-server`.
    Echo,
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Subject {
    kind: Kind,
    directory: tempfile::TempDir,
    http: u16,
    tls: u16,
    child: Child,
    target: Target,
    api: reqwest::Client,
    /// Ends with the coordinator.
    database: Option<Server>,
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It has already ended: there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Subject {
    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// It does not start; the end of its log says why.
    pub async fn start(kind: Kind) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("landfall-sim-").tempdir().context("no temporary directory")?;
        let [http, tls] = landfall_edge::testing::ports();
        let database = match kind {
            Kind::Coordinator(_, Store::Postgresql) => {
                Some(tokio::task::spawn_blocking(|| Server::start(&[])).await.context("PostgreSQL does not start")?)
            }
            _ => None,
        };
        if matches!(kind, Kind::Coordinator(..)) {
            site(directory.path(), http, tls, database.as_ref())?;
        }
        let api = reqwest::Client::builder()
            .unix_socket(directory.path().join("data/api.sock"))
            .no_proxy()
            .timeout(REQUEST_LIMIT)
            .build()
            .context("no HTTP client")?;
        let child = launch(&kind, directory.path(), tls)?;
        let pin = landfall_session::pin_of_spki(b"not yet known");
        let target = Target::new(&format!("https://127.0.0.1:{tls}"), vec![pin])?;
        let mut subject = Self { kind, directory, http, tls, child, target, api, database };
        subject.ready().await?;
        subject.target = Target::new(&subject.target.to_string(), vec![subject.pin()?.parse()?])?;
        Ok(subject)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where agents find it.
    pub fn target(&self) -> Target {
        self.target.clone()
    }

    /// What its PostgreSQL commits for others, a row in each transaction that is as large as a stored event: rows a second.
    ///
    /// # Errors
    /// No event is stored.
    pub fn rows_per_second(&self) -> Result<Option<f64>> {
        let Some(server) = &self.database else { return Ok(None) };
        let bytes = server.sql("test0", "SELECT avg(octet_length(json))::bigint FROM events");
        Ok(Some(server.rows_per_second("test0", bytes.parse().context("no event is stored")?)))
    }

    /// Kills it with SIGKILL, as a crash does, and starts it again on the same data.
    ///
    /// # Errors
    /// It does not come up again.
    pub async fn restart(&mut self) -> Result<()> {
        self.child.kill().context("it was gone already")?;
        self.child.wait()?;
        self.child = launch(&self.kind, self.directory.path(), self.tls)?;
        self.ready().await
    }

    /// Describes every machine and requests a workflow on each.
    ///
    /// # Errors
    /// The first request that is refused.
    pub async fn describe(&self, machines: &[std::sync::Arc<Machine>]) -> Result<()> {
        if matches!(self.kind, Kind::Echo) {
            return Ok(());
        }
        self.template().await?;
        let described = futures::stream::iter(machines.iter().map(|machine| async move {
            self.describe_one(machine, None).await?;
            self.provision(machine).await
        }));
        described.buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    /// Applies the template of all workflows.
    ///
    /// # Errors
    /// It is refused.
    pub async fn template(&self) -> Result<()> {
        let image = format!("http://127.0.0.1:{}/images/os.raw.zst", self.http);
        let template = json!({"actions": [
            {"name": "write", "writeImage": {"image": {"url": image, "digest": format!("sha256:{}", "0a".repeat(32))}}},
            {"name": "seed", "cloudInit": {"hostname": "{{ machine.name }}"}},
            {"name": "restart", "reboot": {}},
        ]});
        self.apply("Template", "os", template).await
    }

    /// Describes a machine, behind this BMC if there is one.
    ///
    /// # Errors
    /// It is refused.
    pub async fn describe_one(&self, machine: &Machine, bmc: Option<Value>) -> Result<()> {
        let macs: Vec<_> = machine.identity().macs.iter().map(ToString::to_string).collect();
        let mut spec = json!({"identity": {"macs": macs}});
        if let Some(bmc) = bmc {
            spec["bmc"] = bmc;
        }
        self.apply("Machine", &machine.name, spec).await
    }

    /// Requests a workflow on a machine.
    ///
    /// # Errors
    /// It is refused.
    pub async fn provision(&self, machine: &Machine) -> Result<()> {
        self.post(&format!("/machines/{}/provision", machine.name), &json!({"template": "os"})).await
    }

    /// Applies a document.
    ///
    /// # Errors
    /// It is refused.
    pub async fn apply(&self, kind: &str, name: &str, spec: Value) -> Result<()> {
        let head = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": {"name": name}});
        let mut document = head;
        document["spec"] = spec;
        self.post("/apply", &document).await
    }

    /// The token that the machine's boot script carries.
    ///
    /// # Errors
    /// It has none.
    pub async fn token(&self, machine: &Machine) -> Result<SecretText> {
        if matches!(self.kind, Kind::Echo) {
            return Ok(SecretText::new("x".repeat(64)));
        }
        // The plain HTTP port, over TCP, as iPXE asks; one connection a machine.
        let client = reqwest::Client::builder().no_proxy().timeout(REQUEST_LIMIT).build()?;
        let url = format!("http://127.0.0.1:{}/boot/ipxe?mac={}", self.http, machine.mac);
        let script = client.get(url).send().await?.error_for_status()?.text().await?;
        let at = script.split("landfall.token=").nth(1).and_then(|rest| rest.split_whitespace().next());
        Ok(SecretText::new(
            at.with_context(|| format!("the boot script of {} does not start the agent: {script}", machine.name))?,
        ))
    }

    /// How many workflows have succeeded.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn succeeded(&self) -> Result<usize> {
        let (mut succeeded, mut query) = (0, String::new());
        loop {
            let page = self.api.get(format!("{API}/workflows{query}")).send().await?.error_for_status()?.text().await?;
            let page: Value = serde_json::from_str(&page)?;
            let runs = page["items"].as_array().context("no list of workflows")?;
            succeeded += runs.iter().filter(|run| run["status"]["phase"] == "Succeeded").count();
            let Some(next) = page["metadata"]["continue"].as_str() else { return Ok(succeeded) };
            query = format!("?continue={next}");
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<()> {
        let request = self.api.post(format!("{API}{path}")).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.with_context(|| format!("POST {path}"))?;
        let status = answer.status();
        if !status.is_success() {
            bail!("POST {path}: {status}: {}", answer.text().await.unwrap_or_default());
        }
        Ok(())
    }

    fn pin(&self) -> Result<String> {
        let path = self.directory.path();
        match self.kind {
            Kind::Echo => Ok(fs::read_to_string(path.join("pin"))?),
            Kind::Coordinator(..) => {
                // The line it says when it is ready has it, and so has every boot script.
                let log = fs::read_to_string(path.join("log"))?;
                let pin = log.split(" ca=").nth(1).and_then(|rest| rest.split_whitespace().next());
                Ok(pin.context("its log does not name its CA")?.to_owned())
            }
        }
    }

    async fn ready(&mut self) -> Result<()> {
        let until = Instant::now() + START_LIMIT;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}): {}", self.log_end());
            }
            let up = match self.kind {
                Kind::Echo => self.directory.path().join("pin").exists() && self.listens().await,
                Kind::Coordinator(..) => self.healthy().await && self.listens().await,
            };
            if up {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("it is not up after {} s: {}", START_LIMIT.as_secs(), self.log_end())
    }

    async fn listens(&self) -> bool {
        let connect = tokio::net::TcpStream::connect(("127.0.0.1", self.tls));
        matches!(timeout(Duration::from_secs(5), connect).await, Ok(Ok(_)))
    }

    async fn healthy(&self) -> bool {
        let answer = self.api.get("http://localhost/healthz").send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

fn launch(kind: &Kind, directory: &Path, tls: u16) -> Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join("log")).context("no log file")?;
    let mut command = match kind {
        Kind::Coordinator(program, _) => {
            let mut command = Command::new(program);
            command.arg("--config").arg(directory.join("coordinator.toml"));
            command
        }
        Kind::Echo => {
            let mut command = Command::new(std::env::current_exe().context("this program has no path")?);
            command.args(["echo-server", "--listen", &format!("127.0.0.1:{tls}"), "--directory"]).arg(directory);
            command
        }
    };
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))
}

/// Files and configuration of a coordinator that serves only loopback, and lets the whole fleet install at once.
fn site(directory: &Path, http: u16, tls: u16, database: Option<&Server>) -> Result<()> {
    for file in ["vmlinuz", "initramfs", "images/os.raw.zst"] {
        let path = directory.join(file);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, b"never written to a disk")?;
    }
    let at = directory.display();
    let store = database.map(|server| format!("[store]\nurl = \"{}\"\n", server.create())).unwrap_or_default();
    let config = format!(
        "data_dir = \"{at}/data\"\nadvertise = \"127.0.0.1\"\n[http]\nlisten = \"127.0.0.1:{http}\"\n\
         [tls]\nlisten = \"127.0.0.1:{tls}\"\n[tftp]\nenabled = false\n[limits]\nparallel_installs = 1000000\n\
         power_on_interval = \"1ms\"\n\
         [boot]\nkernel = \"{at}/vmlinuz\"\ninitramfs = \"{at}/initramfs\"\nimages = \"{at}/images\"\n{store}"
    );
    fs::write(directory.join("coordinator.toml"), config).context("cannot write the configuration")
}
