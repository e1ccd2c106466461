//! The coordinator's one configuration file: TOML, unknown keys refused, every default stated here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Uri;
use ipnet::IpNet;
use landfall_api::{DurationSpec, nearest};
use landfall_boot::arch::Arch;
use landfall_boot::http::script::{KernelArgsError, check_kernel_args};
use landfall_boot::http::uki;
use landfall_store::PostgresOptions;
use serde::{Deserialize, Serialize};

mod store;

pub use landfall_boot::config::{AddressRange, BootConfig, DhcpConfig, DhcpMode, HttpConfig, OtherImage, TftpConfig};
use store::Fault;
pub use store::StoreConfig;

/// Why a configuration cannot be used.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is not the TOML expected.
    #[error("{path}:{line}: {what}{hint}")]
    Parse {
        path: PathBuf,
        /// Which line of it, from 1.
        line: usize,
        what: String,
        /// The name that was meant, or those there are; empty, or begins with `; `.
        hint: String,
    },
    /// It parses but is contradictory.
    #[error("{key}: {what}; {hint}")]
    Invalid { key: &'static str, what: String, hint: &'static str },
}

/// Everything that can be configured.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the SQLite store, the CA, the secrets' key and the admin certificate live. Made with mode 0700 if missing.
    pub data_dir: PathBuf,
    /// The address at which machines reach this coordinator, written into boot scripts and seeds. Of IPv6: the boot services are given over
    /// IPv6, and services that listen on every IPv4 address listen on every address.
    pub advertise: IpAddr,
    /// The coordinators that take this one's place, `https://host:port` of the TLS port of each: machines get them too. At most 7.
    #[serde(default)]
    pub others: Vec<String>,
    /// Where documents, events and secrets are kept.
    #[serde(default)]
    pub store: StoreConfig,
    /// The plain HTTP port.
    #[serde(default)]
    pub http: HttpConfig,
    /// The TLS port.
    #[serde(default)]
    pub tls: TlsConfig,
    /// What machines boot.
    pub boot: BootConfig,
    /// The DHCP service.
    #[serde(default)]
    pub dhcp: DhcpConfig,
    /// Unknown machines.
    #[serde(default)]
    pub discovery: DiscoveryConfig,
    /// The TFTP service.
    #[serde(default)]
    pub tftp: TftpConfig,
    /// How long things last.
    #[serde(default)]
    pub limits: Limits,
    /// The directory of manifests.
    #[serde(default)]
    pub manifests: ManifestsConfig,
    /// Where metrics are served without credentials.
    #[serde(default)]
    pub metrics: MetricsConfig,
    /// What is logged.
    #[serde(default)]
    pub log: LogConfig,
}

/// The TLS port: agents, operators, phone-home.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Default `0.0.0.0:7443`.
    pub listen: SocketAddr,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7443)) }
    }
}

/// Unknown machines: whether they are recorded. An unknown machine that netboots starts the agent and waits until a
/// person or a rule approves it; so this is off unless subnets are named.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiscoveryConfig {
    /// The subnets whose unknown machines are recorded, such as `10.77.0.0/24`. Default none.
    pub subnets: Vec<IpNet>,
    /// The largest number of unapproved discovered machines; more are refused. Default 256, at most 4096.
    pub max_machines: usize,
    /// An unapproved one without a request for this time is forgotten. Default 7 days.
    pub keep: DurationSpec,
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self { subnets: Vec::new(), max_machines: 256, keep: DurationSpec::from_secs(7 * 24 * 3600) }
    }
}

impl DiscoveryConfig {
    /// Whether an unknown machine at that address is taken note of.
    pub fn covers(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.subnets.iter().any(|subnet| subnet.contains(&address))
    }
}

/// How long things last.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// A boot token, from the boot script to the enrolment. Default 10 min.
    pub boot_token_ttl: DurationSpec,
    /// How long an agent may act without hearing from the coordinator. Default 10 min.
    pub lease: DurationSpec,
    /// Between an agent's heartbeats; three missing ones mark the machine silent. Default 5 s.
    pub heartbeat: DurationSpec,
    /// A machine's certificate. Default 12 h.
    pub certificate_ttl: DurationSpec,
    /// From the reboot to the installed system's phone-home, where the template names none. Default 15 min.
    pub phone_home_deadline: DurationSpec,
    /// From the request of a workflow until its machine, which has not netbooted, counts as not seen. Default 15 min.
    pub netboot_deadline: DurationSpec,
    /// How many installs run at once; the others wait in the order of their requests. Default 16.
    pub parallel_installs: u32,
    /// Between two machines that are switched on through their BMCs: all at once may be more than a rack's fuse bears. Default 1 s.
    pub power_on_interval: DurationSpec,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            boot_token_ttl: DurationSpec::from_secs(600),
            lease: DurationSpec::from_secs(600),
            heartbeat: DurationSpec::from_secs(5),
            certificate_ttl: DurationSpec::from_secs(12 * 3600),
            phone_home_deadline: DurationSpec::from_secs(900),
            netboot_deadline: DurationSpec::from_secs(900),
            parallel_installs: 16,
            power_on_interval: DurationSpec::from_secs(1),
        }
    }
}

/// A directory of YAML files whose documents are applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ManifestsConfig {
    /// Default none: only the API makes documents.
    pub directory: Option<PathBuf>,
    /// Whether a document is deleted when it has gone from the files. Default false.
    pub prune: bool,
    /// How often everything is looked at again, besides whenever a file changes. Default 1 min.
    pub rescan: DurationSpec,
}

impl Default for ManifestsConfig {
    fn default() -> Self {
        Self { directory: None, prune: false, rescan: DurationSpec::from_secs(60) }
    }
}

/// Metrics and health on a port of their own, without credentials.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Default none: only operators see them, on the TLS port.
    pub listen: Option<SocketAddr>,
}

/// What is logged.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Which lines, as RUST_LOG says it; that variable overrides this. Default `info`.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: "info".to_owned() }
    }
}

/// What the TOML reader says, in our words: the line, the key, and the name that was meant.
fn unreadable(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let message = error.message();
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let (what, hint) = match unknown {
        Some((key, rest)) => {
            let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
            let hint = match nearest(key, &known) {
                Some(near) => format!("; did you mean \"{near}\"?"),
                None => format!("; the keys here are {}", known.join(", ")),
            };
            (format!("there is no key \"{key}\" here"), hint)
        }
        None => {
            let message = message.trim().replace('\n', " ");
            let key = text.lines().nth(line - 1).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
            (key.map_or_else(|| message.clone(), |key| format!("{key}: {message}")), String::new())
        }
    };
    ConfigError::Parse { path: path.to_owned(), line, what, hint }
}

fn of_store(Fault { key, what, hint }: Fault) -> ConfigError {
    ConfigError::Invalid { key, what, hint }
}

impl Config {
    /// Reads and validates the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file, and the key where there is one.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// [`Self::load`] of a text; `path` is the name shown in errors.
    ///
    /// # Errors
    /// [`ConfigError`] naming the line, or the key.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| unreadable(path, text, &error))?;
        if config.advertise.is_ipv6() {
            for listen in [&mut config.http.listen, &mut config.tls.listen, &mut config.tftp.listen] {
                if listen.ip() == Ipv4Addr::UNSPECIFIED {
                    listen.set_ip(Ipv6Addr::UNSPECIFIED.into());
                }
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// Refuses what parses but cannot work. Reads no file.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] naming the key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let invalid = |key, what: &str, hint| Err(ConfigError::Invalid { key, what: what.to_owned(), hint });
        if !self.data_dir.is_absolute() {
            return invalid("data_dir", "is a relative path", "write an absolute one, such as /var/lib/landfall");
        }
        if self.advertise.is_unspecified() {
            return invalid(
                "advertise", "0.0.0.0 and :: are not addresses that machines can reach",
                "use the address at which machines reach this host",
            );
        }
        self.validate_version()?;
        self.store.validate().map_err(of_store)?;
        self.store.validate_others(&self.others).map_err(of_store)?;
        if let Err(KernelArgsError(key, found)) = check_kernel_args(&self.boot) {
            return invalid(key, &format!("contains {found:?}, which iPXE would interpret"), "remove it");
        }
        let OtherImage { kernel, initramfs, .. } = &self.boot.arm64;
        if kernel.is_some() != initramfs.is_some() {
            return invalid("boot.arm64", "has only one of kernel and initramfs", "write both, or neither");
        }
        if self.dhcp.mode != DhcpMode::Off && self.dhcp.interface.is_none() {
            return invalid("dhcp.interface", "is missing", "name the interface with the machines to serve");
        }
        if self.dhcp.mode == DhcpMode::Full && self.advertise.is_ipv4() && self.dhcp.range.is_none() {
            return invalid("dhcp.range", "is missing", "write one such as 10.77.0.100-10.77.0.199");
        }
        if !(1..=4096).contains(&self.discovery.max_machines) {
            return invalid("discovery.max_machines", "is not between 1 and 4096", "leave it out for 256");
        }
        if self.limits.lease.get() < 4 * self.limits.heartbeat.get() {
            return invalid(
                "limits.lease",
                "is shorter than four heartbeats, so a lost packet would stop an install",
                "make it longer, or limits.heartbeat shorter",
            );
        }
        if self.limits.parallel_installs == 0 {
            return invalid("limits.parallel_installs", "is zero, so no install could begin", "write 1 or more");
        }
        if self.limits.power_on_interval.get() > Duration::from_secs(600) {
            return invalid("limits.power_on_interval", "is over ten minutes", "write 10m or less");
        }
        if self.limits.certificate_ttl.get() < Duration::from_secs(600) {
            return invalid("limits.certificate_ttl", "is under ten minutes", "give certificates an hour or more");
        }
        if self.manifests.directory.as_ref().is_some_and(|directory| !directory.is_absolute()) {
            return invalid("manifests.directory", "is a relative path", "write an absolute one");
        }
        if self.metrics.listen.is_some_and(|listen| [self.http.listen, self.tls.listen].contains(&listen)) {
            return invalid(
                "metrics.listen", "is the address of another service", "give it a port of its own, such as 7481",
            );
        }
        if let Err(error) = tracing_subscriber::EnvFilter::builder().parse(&self.log.filter) {
            return invalid("log.filter", &error.to_string(), "use the syntax of RUST_LOG, such as info");
        }
        Ok(())
    }

    /// Refuses what does not go with the version of IP of `advertise`.
    fn validate_version(&self) -> Result<(), ConfigError> {
        let invalid = |key, what: &str, hint| Err(ConfigError::Invalid { key, what: what.to_owned(), hint });
        if self.dhcp.dns.iter().any(|address| address.is_ipv4() != self.advertise.is_ipv4()) {
            return invalid(
                "dhcp.dns", "has an address of another version of IP than advertise",
                "write addresses of its version, or leave it out",
            );
        }
        let IpAddr::V6(own) = self.advertise else { return Ok(()) };
        let serves = self.dhcp.mode != DhcpMode::Off;
        if own.is_loopback() && serves
            || own.is_unicast_link_local()
            || own.is_multicast()
            || own.to_ipv4_mapped().is_some()
        {
            return invalid(
                "advertise",
                "is no address at which machines reach this host: it is this host's own, link-local, a group's, or one of IPv4",
                "use a global or a unique local one, such as fd77::1",
            );
        }
        if self.dhcp.range.is_some() || self.dhcp.router.is_some() || !self.dhcp.subnets.is_empty() {
            return invalid(
                "dhcp",
                "has range, router or subnets, which are for IPv4, and advertise is of IPv6",
                "leave them out: addresses are made of the prefix of advertise, and routers announce themselves",
            );
        }
        if !(48..=64).contains(&self.dhcp.prefix_length) {
            return invalid("dhcp.prefix_length", "is not between 48 and 64", "leave it out for 64");
        }
        Ok(())
    }

    /// Checks that the files the configuration names are there: what `--check` and the start do after [`Self::load`].
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] naming the key and the path.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        let mut files = vec![("boot.kernel", &self.boot.kernel), ("boot.initramfs", &self.boot.initramfs)];
        files.extend(self.boot.uki.iter().map(|uki| ("boot.uki", uki)));
        files.extend(self.boot.iso.iter().map(|iso| ("boot.iso", iso)));
        files.extend(self.boot.tools.iter().map(|tools| ("boot.tools", tools)));
        files.extend(self.boot.arm64.kernel.iter().map(|kernel| ("boot.arm64.kernel", kernel)));
        files.extend(self.boot.arm64.initramfs.iter().map(|initramfs| ("boot.arm64.initramfs", initramfs)));
        files.extend(self.boot.arm64.uki.iter().map(|uki| ("boot.arm64.uki", uki)));
        files.extend(self.boot.arm64.iso.iter().map(|iso| ("boot.arm64.iso", iso)));
        files.extend(self.boot.arm64.tools.iter().map(|tools| ("boot.arm64.tools", tools)));
        let mut directories = vec![];
        if self.tftp.enabled {
            directories.push(("boot.bootloaders", &self.boot.bootloaders));
        }
        directories.extend(self.boot.images.iter().map(|images| ("boot.images", images)));
        directories.extend(self.manifests.directory.iter().map(|directory| ("manifests.directory", directory)));
        for (key, path) in files {
            if !path.is_file() {
                return Err(ConfigError::Invalid {
                    key,
                    what: format!("{} is not a file", path.display()),
                    hint: if key.ends_with(".tools") {
                        "create it with landfall-image tools, or correct the path"
                    } else if key.ends_with(".iso") {
                        "create it with landfall-image iso, or correct the path"
                    } else if key.ends_with(".uki") {
                        "create it with landfall-image uki, or correct the path"
                    } else {
                        "create kernel and initramfs with landfall-image initramfs, or correct the path"
                    },
                });
            }
        }
        for (key, path, arch) in
            [("boot.uki", &self.boot.uki, Arch::X86_64), ("boot.arm64.uki", &self.boot.arm64.uki, Arch::Arm64)]
        {
            let Some(path) = path else { continue };
            let what = match uki::arch_of(path) {
                Ok(Some(found)) if found == arch => continue,
                Ok(Some(found)) => format!("{} is for {}, not for {}", path.display(), found.as_str(), arch.as_str()),
                Ok(None) => format!("{} is no program of UEFI for {}", path.display(), arch.as_str()),
                Err(error) => format!("{} cannot be read: {error}", path.display()),
            };
            return Err(ConfigError::Invalid {
                key,
                what,
                hint: "create it with landfall-image uki, or correct the path",
            });
        }
        for (key, path) in directories {
            if !path.is_dir() {
                return Err(ConfigError::Invalid {
                    key,
                    what: format!("{} is not a directory", path.display()),
                    hint: "create it, or correct the path",
                });
            }
        }
        Ok(())
    }

    /// How the PostgreSQL database is opened, by one coordinator at a time, which is named by the address of its TLS port; `None` for
    /// SQLite.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`]: a file is not usable, or `data_dir` has a SQLite database, which would be left behind.
    pub fn postgres(&self) -> Result<Option<PostgresOptions>, ConfigError> {
        let options = self.store.postgres(&self.data_dir).map_err(of_store)?;
        Ok(options.map(|options| options.named(&self.tls_url())))
    }

    /// How the PostgreSQL database is opened to copy a store into it or from it.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`]: none is stated, or a file is not usable.
    pub fn store_to_migrate(&self) -> Result<PostgresOptions, ConfigError> {
        let options = self.store.options(&self.data_dir).map_err(of_store)?;
        let missing = || ConfigError::Invalid {
            key: "store.url",
            what: "is missing".to_owned(),
            hint: "write the PostgreSQL database that the store is copied into, or from",
        };
        options.ok_or_else(missing)
    }

    /// `https://<advertise>:<port>`: where agents and installed systems reach the TLS port.
    pub fn tls_url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.advertise, self.tls.listen.port()))
    }

    /// `http://<advertise>:<port>`: what is not secret.
    pub fn http_url(&self) -> String {
        format!("http://{}", SocketAddr::new(self.advertise, self.http.listen.port()))
    }

    /// The same at the coordinators that take this one's place: their configurations have this one's ports.
    pub fn other_http_urls(&self) -> Vec<String> {
        let port = self.http.listen.port();
        let hosts = self.others.iter().filter_map(|url| Uri::try_from(url).ok()?.host().map(str::to_owned));
        hosts.map(|host| format!("http://{host}:{port}")).collect()
    }

    /// What the boot services need of it, where this coordinator took no other one's place. `ca_pins` (`sha256:…`) go onto the agents'
    /// command line.
    pub fn boot_services(&self, ca_pins: Vec<String>) -> landfall_boot::config::Config {
        landfall_boot::config::Config {
            advertise: self.advertise,
            coordinator_url: self.tls_url(),
            other_coordinator_urls: self.others.clone(),
            takes_over: false,
            ca_pins,
            data_dir: self.data_dir.clone(),
            http: self.http.clone(),
            boot: self.boot.clone(),
            dhcp: self.dhcp.clone(),
            tftp: self.tftp.clone(),
        }
    }

    /// The Unix socket of the operators' API.
    pub fn api_socket(&self) -> PathBuf {
        self.data_dir.join("api.sock")
    }
}

#[cfg(test)]
mod tests;
