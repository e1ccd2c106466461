//! The coordinator as a process of the lab: started, killed and started again.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::Api;
use crate::network::Namespace;
use crate::{LabError, Log, Mark, Network, Process};

/// How long it may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to drain.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// The words for the agent's kernel that a coordinator has by itself.
pub const KERNEL_ARGS: &str = "console=tty0 console=ttyS0,115200";

/// Which DHCP service the coordinator gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DhcpMode {
    /// The network's only server.
    #[default]
    Full,
    /// Beside another one.
    Proxy,
    /// The network's only server, over IPv6; nothing is served over IPv4.
    FullV6,
    /// None: the network has another, or no machine needs one.
    Off,
}

/// How a coordinator is set up.
#[derive(Debug, Clone)]
pub struct CoordinatorOptions {
    /// The binary.
    pub program: PathBuf,
    /// Kernel it serves.
    pub kernel: PathBuf,
    /// Initramfs it serves.
    pub initramfs: PathBuf,
    /// Unified kernel image it serves.
    pub uki: Option<PathBuf>,
    /// Tools layer it serves.
    pub tools: Option<PathBuf>,
    /// Directory of iPXE's binaries.
    pub bootloaders: PathBuf,
    /// Directory served under `/images/`.
    pub images: PathBuf,
    /// Its DHCP service.
    pub dhcp: DhcpMode,
    /// More words for the agent's kernel.
    pub kernel_args: String,
    /// The coordinators that take its place.
    pub others: Vec<String>,
    /// More lines for the configuration's end, such as a `[limits]` section.
    pub more: String,
}

/// A coordinator on a lab's network.
#[derive(Debug)]
pub struct CoordinatorProcess {
    program: PathBuf,
    config: PathBuf,
    namespace: String,
    log: Log,
    process: Option<Process>,
    socket: PathBuf,
    api: Api,
}

/// Where a coordinator is.
struct Site<'a> {
    namespace: &'a Namespace,
    address: IpAddr,
    interface: &'a str,
}

impl CoordinatorProcess {
    /// Where machines find its plain HTTP port.
    pub const HTTP_PORT: u16 = 7480;

    /// Writes its configuration below `dir`, starts it and waits until it is ready.
    ///
    /// # Errors
    /// [`LabError`] with the end of its log.
    pub async fn start(options: &CoordinatorOptions, network: &Network, dir: &Path) -> Result<Self, LabError> {
        let address = match options.dhcp {
            DhcpMode::Full | DhcpMode::Proxy | DhcpMode::Off => Network::ADDRESS.into(),
            DhcpMode::FullV6 => Network::ADDRESS_V6.into(),
        };
        let site = Site { namespace: network.namespace(), address, interface: Network::BRIDGE };
        let mut coordinator = Self::configured(options, &site, dir)?;
        coordinator.restart().await?;
        Ok(coordinator)
    }

    /// The same in [`Network::neighbour`], beside another one, which leads. What it needs of that one's data directory must be in its
    /// own already, `coordinator` below `dir`.
    ///
    /// # Errors
    /// [`LabError`] with the end of its log.
    pub async fn beside(options: &CoordinatorOptions, neighbour: &Namespace, dir: &Path) -> Result<Self, LabError> {
        let site =
            Site { namespace: neighbour, address: Network::NEIGHBOUR.into(), interface: Network::NEIGHBOUR_PORT };
        let mut coordinator = Self::configured(options, &site, dir)?;
        coordinator.start_until("another coordinator leads").await?;
        Ok(coordinator)
    }

    fn configured(options: &CoordinatorOptions, site: &Site<'_>, dir: &Path) -> Result<Self, LabError> {
        let data = dir.join("coordinator");
        std::fs::create_dir_all(&data).map_err(LabError::file("cannot make", &data))?;
        let config = dir.join("coordinator.toml");
        std::fs::write(&config, configuration(options, site, &data))
            .map_err(LabError::file("cannot write", &config))?;
        let socket = data.join("api.sock");
        Ok(Self {
            program: options.program.clone(),
            config,
            namespace: site.namespace.name().to_owned(),
            log: Log::open(&dir.join("coordinator.log"))?,
            process: None,
            api: Api::new(&socket)?,
            socket,
        })
    }

    /// Starts it (again) on the same data, and waits until it is ready.
    ///
    /// # Errors
    /// [`LabError`] with the end of its log.
    pub async fn restart(&mut self) -> Result<(), LabError> {
        self.sigkill().await;
        self.start_until("ready").await
    }

    async fn start_until(&mut self, says: &str) -> Result<(), LabError> {
        let mark = self.log.mark();
        let mut command = tokio::process::Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace, "setpriv", "--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .arg("--config")
            .arg(&self.config)
            .args(["--log-format", "text"])
            .env("NO_COLOR", "1");
        let mut process = Process::spawn("landfall-coordinator", command, self.log.clone())?;
        process.wait_stderr(mark, says, READY_LIMIT).await?;
        self.process = Some(process);
        Ok(())
    }

    /// SIGKILL, as a crash.
    pub async fn sigkill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Sends SIGTERM. Returns whether it drained and ended by itself.
    pub async fn stop(&mut self) -> bool {
        match self.process.take() {
            Some(mut process) => process.terminate(DRAIN_LIMIT).await,
            None => true,
        }
    }

    /// Its log, over all its lives.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its operators' API.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The socket of its operators' API, for `landfall --server`.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The file its configuration is in.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Waits for a log line since `mark` that names all of `words`, such as `service=tftp` and a MAC address.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the end of the log.
    pub async fn wait_log(&self, mark: Mark, words: &[&str], limit: Duration) -> Result<(), LabError> {
        let all = |line: &str| words.iter().all(|word| line.contains(word));
        self.log.wait_line(mark, &words.join(" … "), limit, all).await.map(drop)
    }
}

/// The configuration file.
fn configuration(options: &CoordinatorOptions, site: &Site<'_>, data: &Path) -> String {
    let Site { address, interface, .. } = site;
    let dhcp = match options.dhcp {
        DhcpMode::Full => "mode = \"full\"\nrange = \"10.77.0.100-10.77.0.199\"",
        DhcpMode::Proxy => "mode = \"proxy\"",
        DhcpMode::FullV6 => "mode = \"full\"",
        DhcpMode::Off => "mode = \"off\"",
    };
    let others = serde_json::json!(options.others);
    let text = |path: &Path| toml_string(&path.to_string_lossy());
    let line = |key: &str, path: &Option<PathBuf>| {
        path.as_deref().map_or_else(String::new, |path| format!("{key} = {}\n", text(path)))
    };
    let more_files = line("uki", &options.uki) + &line("tools", &options.tools);
    format!(
        "data_dir = {}\nadvertise = \"{address}\"\nothers = {others}\n\n[boot]\nkernel = {}\ninitramfs = {}\nbootloaders = {}\nimages = {}\n\
         kernel_args = {}\n{more_files}\n[dhcp]\ninterface = \"{interface}\"\n{dhcp}\n\n{}\n",
        text(data),
        text(&options.kernel),
        text(&options.initramfs),
        text(&options.bootloaders),
        text(&options.images),
        toml_string(&options.kernel_args),
        options.more,
    )
}

/// A TOML basic string; JSON's escapes are a subset of TOML's.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
