//! The coordinator's one configuration file: TOML, unknown keys refused, every default stated here.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use landfall_api::DurationSpec;
use serde::Deserialize;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not the TOML expected; the source names line, column and key.
    #[error("the configuration {path} is not valid")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// It parses but says something impossible.
    #[error("{key}: {what}; {hint}")]
    Invalid {
        /// The key, dotted.
        key: &'static str,
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        hint: &'static str,
    },
}

/// Everything that can be configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the store, the CA and the admin certificate live. Made with mode 0700 if missing.
    pub data_dir: PathBuf,
    /// The address at which machines reach this coordinator, written into boot scripts and seeds.
    pub advertise: Ipv4Addr,
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
    /// The TFTP service.
    #[serde(default)]
    pub tftp: TftpConfig,
    /// How long things last.
    #[serde(default)]
    pub limits: Limits,
}

/// The plain HTTP port: boot scripts, boot image, OS images, metadata.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Default `0.0.0.0:7480`.
    pub listen: SocketAddr,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7480)) }
    }
}

/// The TLS port: agents, operators, phone-home.
#[derive(Debug, Clone, Deserialize)]
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

/// What machines boot.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootConfig {
    /// The kernel, served as `/boot/kernel`.
    pub kernel: PathBuf,
    /// The initramfs with the agent, served as `/boot/initramfs`.
    pub initramfs: PathBuf,
    /// Directory that holds `undionly.kpxe` and `snponly.efi`. Default `/usr/lib/ipxe`, Debian's.
    #[serde(default = "default_bootloaders")]
    pub bootloaders: PathBuf,
    /// Directory served under `/images/`. Absent: none is.
    #[serde(default)]
    pub images: Option<PathBuf>,
    /// More words for the kernel's command line. Default `console=tty0 console=ttyS0,115200`.
    #[serde(default = "default_kernel_args")]
    pub kernel_args: String,
}

fn default_bootloaders() -> PathBuf {
    PathBuf::from("/usr/lib/ipxe")
}

fn default_kernel_args() -> String {
    "console=tty0 console=ttyS0,115200".to_owned()
}

/// Which DHCP service is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DhcpMode {
    /// None: bring your own, and point it here.
    #[default]
    Off,
    /// ProxyDHCP on 67 and 4011 beside a DHCP server that is already there.
    Proxy,
    /// The only DHCP server of a lab network.
    Full,
}

/// The DHCP service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DhcpConfig {
    /// Default `off`.
    pub mode: DhcpMode,
    /// The interface served; required unless `off`.
    pub interface: Option<String>,
    /// First and last address given out, `10.77.0.100-10.77.0.199`; `full` only.
    pub range: Option<AddressRange>,
    /// `full` only. Default `255.255.255.0`.
    pub netmask: Ipv4Addr,
    /// Default route given out; `full` only.
    pub router: Option<Ipv4Addr>,
    /// Resolvers given out; `full` only.
    pub dns: Vec<Ipv4Addr>,
    /// How long an address is given for; `full` only. Default 1 h.
    pub lease: DurationSpec,
    /// Whether machines that no document describes are answered.
    pub discovery: bool,
}

impl Default for DhcpConfig {
    fn default() -> Self {
        Self {
            mode: DhcpMode::Off,
            interface: None,
            range: None,
            netmask: Ipv4Addr::new(255, 255, 255, 0),
            router: None,
            dns: Vec::new(),
            lease: DurationSpec::from_secs(3600),
            discovery: false,
        }
    }
}

/// Addresses from `first` to `last`, both included, `first` ≤ `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct AddressRange {
    /// The lowest.
    pub first: Ipv4Addr,
    /// The highest.
    pub last: Ipv4Addr,
}

impl TryFrom<String> for AddressRange {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is not an address range; write one such as 10.77.0.100-10.77.0.199");
        let (first, last) = text.split_once('-').ok_or_else(bad)?;
        let first: Ipv4Addr = first.trim().parse().map_err(|_| bad())?;
        let last: Ipv4Addr = last.trim().parse().map_err(|_| bad())?;
        if first > last {
            return Err(format!("\"{text}\" ends before it begins; write the lower address first"));
        }
        Ok(Self { first, last })
    }
}

/// The TFTP service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TftpConfig {
    /// Default `0.0.0.0:69`.
    pub listen: SocketAddr,
    /// Default true.
    pub enabled: bool,
}

impl Default for TftpConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 69)), enabled: true }
    }
}

/// How long things last.
#[derive(Debug, Clone, Deserialize)]
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            boot_token_ttl: DurationSpec::from_secs(600),
            lease: DurationSpec::from_secs(600),
            heartbeat: DurationSpec::from_secs(5),
            certificate_ttl: DurationSpec::from_secs(12 * 3600),
            phone_home_deadline: DurationSpec::from_secs(900),
        }
    }
}

impl Config {
    /// Reads and validates the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file, and the key where there is one.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let config: Self = toml::from_str(&text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })?;
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
                "advertise",
                "0.0.0.0 is no address to reach",
                "write the address machines reach this host at",
            );
        }
        if self.dhcp.mode != DhcpMode::Off && self.dhcp.interface.is_none() {
            return invalid("dhcp.interface", "is missing", "name the interface whose machines are to be answered");
        }
        if self.dhcp.mode == DhcpMode::Full && self.dhcp.range.is_none() {
            return invalid("dhcp.range", "is missing", "write one such as 10.77.0.100-10.77.0.199");
        }
        if self.limits.lease.get() < 4 * self.limits.heartbeat.get() {
            return invalid(
                "limits.lease",
                "is shorter than four heartbeats, so a lost packet would stop an install",
                "make it longer, or limits.heartbeat shorter",
            );
        }
        if self.limits.certificate_ttl.get() < Duration::from_secs(600) {
            return invalid("limits.certificate_ttl", "is under ten minutes", "give certificates an hour or more");
        }
        Ok(())
    }

    /// Checks that the files the configuration names are there: what `--check` and the start do after [`Self::load`].
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] naming the key and the path.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        let files = [("boot.kernel", &self.boot.kernel), ("boot.initramfs", &self.boot.initramfs)];
        let mut directories = vec![];
        if self.tftp.enabled {
            directories.push(("boot.bootloaders", &self.boot.bootloaders));
        }
        directories.extend(self.boot.images.iter().map(|images| ("boot.images", images)));
        for (key, path) in files {
            if !path.is_file() {
                return Err(ConfigError::Invalid {
                    key,
                    what: format!("{} is not a file", path.display()),
                    hint: "landfall-image initramfs makes kernel and initramfs; or correct the path",
                });
            }
        }
        for (key, path) in directories {
            if !path.is_dir() {
                return Err(ConfigError::Invalid {
                    key,
                    what: format!("{} is not a directory", path.display()),
                    hint: "make it, or correct the path",
                });
            }
        }
        Ok(())
    }

    /// `https://<advertise>:<port>`: where agents and installed systems reach the TLS port.
    pub fn tls_url(&self) -> String {
        format!("https://{}:{}", self.advertise, self.tls.listen.port())
    }

    /// `http://<advertise>:<port>`: where machines reach the plain HTTP port.
    pub fn http_url(&self) -> String {
        format!("http://{}:{}", self.advertise, self.http.listen.port())
    }

    /// The Unix socket of the operators' API.
    pub fn api_socket(&self) -> PathBuf {
        self.data_dir.join("api.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
        data_dir = "/var/lib/landfall"
        advertise = "10.77.0.1"
        [boot]
        kernel = "/boot/vmlinuz"
        initramfs = "/boot/initramfs"
    "#;

    fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        config.validate().map_err(|e| e.to_string())?;
        Ok(config)
    }

    #[test]
    fn the_minimal_file_has_every_default() {
        let config = parse(MINIMAL).unwrap();
        assert_eq!(config.tls_url(), "https://10.77.0.1:7443");
        assert_eq!(config.http_url(), "http://10.77.0.1:7480");
        assert_eq!(config.dhcp.mode, DhcpMode::Off);
        assert_eq!(config.limits.lease.get(), Duration::from_secs(600));
    }

    #[test]
    fn what_cannot_work_is_refused_by_key() {
        for (more, named) in [
            ("[dhcp]\nmode = \"full\"", "dhcp.interface"),
            ("[dhcp]\nmode = \"full\"\ninterface = \"br0\"", "dhcp.range"),
            ("[dhcp]\nrange = \"10.0.0.9-10.0.0.1\"", "lower address first"),
            ("[limits]\nlease = \"5s\"", "limits.lease"),
            ("[limits]\nlease = \"0s\"", "zero"),
            ("[limits]\nleese = \"5s\"", "leese"),
        ] {
            let error = parse(&format!("{MINIMAL}\n{more}")).unwrap_err();
            assert!(error.contains(named), "{more}: {error}");
        }
    }
}
