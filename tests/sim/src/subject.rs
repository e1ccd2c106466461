//! What is measured: coordinators of its own, or the echo, and the requests that prepare a fleet.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use landfall_api::{Pin, SecretText};
use landfall_postgres::Server;
use landfall_session::Target;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::machine::Machine;
pub use crate::member::{Kind, Store};
use crate::member::{Member, REQUEST_LIMIT, START_LIMIT};

const API: &str = "http://localhost/apis/landfall.dev/v1alpha1";
/// Requests under way at once while a site is prepared.
pub(crate) const AT_ONCE: usize = 32;
/// Between two looks which coordinator is ready.
const LOOK: Duration = Duration::from_millis(20);

/// Running servers. Killed when dropped.
#[derive(Debug)]
pub struct Subject {
    kind: Kind,
    members: Vec<Member>,
    /// Which of them is asked, measured and killed.
    chosen: usize,
    pin: Pin,
    /// For the boot scripts: plain HTTP, one connection a machine.
    scripts: reqwest::Client,
    /// Ends after the coordinators.
    database: Option<Server>,
}

impl Subject {
    /// Starts them and waits until they answer.
    ///
    /// # Errors
    /// One does not start; the end of its log says why.
    pub async fn start(kind: Kind) -> Result<Self> {
        let database = match kind {
            Kind::Coordinator(_, Store::Postgresql, _) => {
                Some(tokio::task::spawn_blocking(|| Server::start(&[])).await.context("PostgreSQL does not start")?)
            }
            _ => None,
        };
        let count = if let Kind::Coordinator(_, store, count) = &kind {
            ensure!(*count == 1 || *store == Store::Postgresql, "several coordinators need PostgreSQL");
            *count
        } else {
            1
        };
        let mut members = (0..count).map(|_| Member::new()).collect::<Result<Vec<_>>>()?;
        if matches!(kind, Kind::Coordinator(..)) {
            let store = database.as_ref().map(|server| format!("[store]\nurl = \"{}\"\n", server.create()));
            for member in &members {
                let others: Vec<_> = members.iter().map(Member::url).filter(|url| *url != member.url()).collect();
                site(member, &others, store.as_deref().unwrap_or_default())?;
            }
        }
        let mut first: Option<PathBuf> = None;
        for member in &mut members {
            // The others have the key of the secrets alone.
            if let Some(first) = &first {
                member.take_key(first)?;
            }
            member.launch(&kind).await?;
            first.get_or_insert_with(|| member.path().to_owned());
        }
        let pin = members.first().context("there are none")?.pin(&kind)?.parse()?;
        // Made once: it reads every certificate of the system.
        let scripts = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(REQUEST_LIMIT).build()?;
        Ok(Self { kind, members, chosen: 0, pin, scripts, database })
    }

    fn chosen(&self) -> &Member {
        &self.members[self.chosen]
    }

    /// The process of the chosen one.
    pub fn pid(&self) -> u32 {
        self.chosen().pid()
    }

    /// Every process that runs.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().filter(|member| member.runs()).map(Member::pid).collect()
    }

    /// How many there are, with those that were killed.
    pub const fn servers(&self) -> usize {
        self.members.len()
    }

    /// The URL of the chosen one.
    pub fn url(&self) -> String {
        self.chosen().url()
    }

    /// The pin of their CA.
    pub fn pins(&self) -> Vec<Pin> {
        vec![self.pin]
    }

    /// Where the agent with this number finds them: with each of them the same number of agents begin.
    ///
    /// # Errors
    /// None: each URL is one.
    pub fn target(&self, number: usize) -> Result<Target> {
        let mut urls: Vec<_> = self.members.iter().map(Member::url).collect();
        let first = number % urls.len();
        urls.rotate_left(first);
        Ok(Target::of(&urls, self.pins())?)
    }

    /// Whether the agent with this number began with the chosen one.
    pub const fn begins_with_chosen(&self, number: usize) -> bool {
        number % self.members.len() == self.chosen
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

    /// Kills the chosen one with SIGKILL, as a crash does. The only one is started again on the same data; of several another one takes
    /// its place.
    ///
    /// # Errors
    /// None comes up.
    pub async fn crash(&mut self) -> Result<()> {
        let killed = self.chosen;
        self.members[killed].kill()?;
        if self.members.len() == 1 {
            return self.members[killed].launch(&self.kind).await;
        }
        let until = Instant::now() + START_LIMIT;
        while Instant::now() < until {
            for (n, member) in self.members.iter().enumerate().filter(|(n, _)| *n != killed) {
                if member.is_ready().await {
                    self.chosen = n;
                    return Ok(());
                }
            }
            sleep(LOOK).await;
        }
        bail!("none takes the place of the one that was killed: {}", self.members[killed].log_end())
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
        let image = format!("http://127.0.0.1:{}/images/os.raw.zst", self.chosen().http);
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
        // The plain HTTP port, over TCP, as iPXE asks.
        let url = format!("http://127.0.0.1:{}/boot/ipxe?mac={}", self.chosen().http, machine.mac);
        let script = self.scripts.get(url).send().await?.error_for_status()?.text().await?;
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
            let page = self
                .chosen()
                .api
                .get(format!("{API}/workflows{query}"))
                .send()
                .await?
                .error_for_status()?
                .text()
                .await?;
            let page: Value = serde_json::from_str(&page)?;
            let runs = page["items"].as_array().context("no list of workflows")?;
            succeeded += runs.iter().filter(|run| run["status"]["phase"] == "Succeeded").count();
            let Some(next) = page["metadata"]["continue"].as_str() else { return Ok(succeeded) };
            query = format!("?continue={next}");
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<()> {
        let request = self.chosen().api.post(format!("{API}{path}")).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.with_context(|| format!("POST {path}"))?;
        let status = answer.status();
        if !status.is_success() {
            bail!("POST {path}: {status}: {}", answer.text().await.unwrap_or_default());
        }
        Ok(())
    }
}

/// Files and configuration of a coordinator that serves only loopback, and lets the whole fleet install at once.
fn site(member: &Member, others: &[String], store: &str) -> Result<()> {
    let directory: &Path = member.path();
    for file in ["vmlinuz", "initramfs", "images/os.raw.zst"] {
        let path = directory.join(file);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, b"never written to a disk")?;
    }
    let (at, http, tls) = (directory.display(), member.http, member.tls);
    let config = format!(
        "data_dir = \"{at}/data\"\nadvertise = \"127.0.0.1\"\nothers = {others:?}\n[http]\nlisten = \"127.0.0.1:{http}\"\n\
         [tls]\nlisten = \"127.0.0.1:{tls}\"\n[tftp]\nenabled = false\n[limits]\nparallel_installs = 1000000\n\
         power_on_interval = \"1ms\"\n\
         [boot]\nkernel = \"{at}/vmlinuz\"\ninitramfs = \"{at}/initramfs\"\nimages = \"{at}/images\"\n{store}"
    );
    fs::write(directory.join("coordinator.toml"), config).context("cannot write the configuration")
}
