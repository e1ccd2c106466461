//! What the boot services are configured with: addresses, ranges, files.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use landfall_api::DurationSpec;
use serde::{Deserialize, Serialize};

use crate::dhcp::DhcpError;

/// Everything the boot services need to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address at which machines reach this host, written into boot scripts and DHCP answers. Boot services are given by its version
    /// of IP.
    pub advertise: IpAddr,
    /// Where the agent reaches its coordinator, such as `https://10.77.0.1:7443`: written onto its command line.
    pub coordinator_url: String,
    /// Those of the coordinators that take its place.
    pub other_coordinator_urls: Vec<String>,
    /// Another coordinator of the same store served this network until now. So the full DHCP server looks for no other one: it could
    /// find the former, which does not know yet that it is no longer wanted.
    pub takes_over: bool,
    /// Pins of the coordinator's CA (`sha256:…`), written onto the agent's command line.
    pub ca_pins: Vec<String>,
    /// The directory in which the full DHCP server keeps its leases.
    pub data_dir: PathBuf,
    /// The plain HTTP port.
    pub http: HttpConfig,
    /// The files served, and the kernel's arguments.
    pub boot: BootConfig,
    /// The DHCP service.
    pub dhcp: DhcpConfig,
    /// The TFTP service.
    pub tftp: TftpConfig,
}

impl Config {
    /// Where the agent reaches its coordinator, and those that take its place.
    pub fn coordinator_urls(&self) -> Vec<String> {
        [&self.coordinator_url].into_iter().chain(&self.other_coordinator_urls).cloned().collect()
    }

    /// The IPv4 addresses of the coordinators that take this one's place, where they are written as such.
    pub fn other_addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.other_coordinator_urls.iter().filter_map(|url| {
            let (host, _port) = url.strip_prefix("https://")?.rsplit_once(':')?;
            host.parse().ok()
        })
    }

    /// The base URL of the plain HTTP port.
    pub fn http_url(&self) -> String {
        format!("http://{}", SocketAddr::new(self.advertise, self.http.listen.port()))
    }
}

/// The plain HTTP port: boot scripts, boot image, OS images, metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Default `0.0.0.0:7480`; where [`Config::advertise`] is of IPv6, `[::]:7480`.
    pub listen: SocketAddr,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7480)) }
    }
}

/// What machines boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootConfig {
    /// The kernel of x86-64 machines, served as `/boot/kernel`.
    pub kernel: PathBuf,
    /// The initramfs with their agent, served as `/boot/initramfs`.
    pub initramfs: PathBuf,
    /// The unified kernel image of x86-64 machines (`landfall-image uki`), for firmware that boots from HTTP without iPXE.
    /// Absent: such firmware gets iPXE.
    #[serde(default)]
    pub uki: Option<PathBuf>,
    /// The boot medium of x86-64 machines (`landfall-image iso`), served as `/boot/landfall.iso` to their BMCs. Absent: no machine starts
    /// from virtual media.
    #[serde(default)]
    pub iso: Option<PathBuf>,
    /// The tools layer of x86-64 machines. Absent: actions that need it are refused.
    #[serde(default)]
    pub tools: Option<PathBuf>,
    /// The boot image of arm64 machines. Without any: they boot their own disks.
    #[serde(default)]
    pub arm64: OtherImage,
    /// Directory that holds `undionly.kpxe`, `snponly.efi` and for arm64 `snponly-arm64.efi`. Default `/usr/lib/ipxe`,
    /// Debian's, which lacks the last one.
    #[serde(default = "default_bootloaders")]
    pub bootloaders: PathBuf,
    /// Directory served under `/images/`. Absent: none is.
    #[serde(default)]
    pub images: Option<PathBuf>,
    /// More words for the kernel's command line on x86-64 machines. Default `console=tty0 console=ttyS0,115200`.
    #[serde(default = "default_kernel_args")]
    pub kernel_args: String,
}

/// The boot image of another architecture than x86-64: kernel and initramfs, both or neither; its unified kernel image; its tools layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtherImage {
    /// The kernel, served as `/boot/kernel-arm64`.
    pub kernel: Option<PathBuf>,
    /// The initramfs with the agent, served as `/boot/initramfs-arm64`.
    pub initramfs: Option<PathBuf>,
    /// The unified kernel image, for firmware that boots from HTTP without iPXE.
    pub uki: Option<PathBuf>,
    /// The boot medium, served as `/boot/landfall-arm64.iso`.
    pub iso: Option<PathBuf>,
    /// The tools layer. Absent: actions that need it are refused.
    pub tools: Option<PathBuf>,
    /// More words for the kernel's command line. Default `console=tty0 console=ttyAMA0,115200`: servers have Arm's PL011.
    pub kernel_args: String,
}

impl Default for OtherImage {
    fn default() -> Self {
        let kernel_args = "console=tty0 console=ttyAMA0,115200".to_owned();
        Self { kernel: None, initramfs: None, uki: None, iso: None, tools: None, kernel_args }
    }
}

fn default_bootloaders() -> PathBuf {
    PathBuf::from("/usr/lib/ipxe")
}

fn default_kernel_args() -> String {
    "console=tty0 console=ttyS0,115200".to_owned()
}

/// Which DHCP service is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    pub dns: Vec<IpAddr>,
    /// Bits of the prefix that this host's IPv6 address shares with the machines', 48 to 64; `full` over IPv6 only. Default 64.
    pub prefix_length: u8,
    /// How long an address is given for; `full` only. Default 1 h.
    pub lease: DurationSpec,
    /// Subnets behind DHCP relays; `full` only.
    pub subnets: Vec<SubnetConfig>,
    /// Whether machines that no document describes are answered.
    pub discovery: bool,
}

impl Default for DhcpConfig {
    fn default() -> Self {
        Self {
            mode: DhcpMode::Off,
            interface: None,
            range: None,
            netmask: default_netmask(),
            router: None,
            dns: Vec::new(),
            prefix_length: 64,
            lease: DurationSpec::from_secs(3600),
            subnets: Vec::new(),
            discovery: false,
        }
    }
}

impl DhcpConfig {
    /// The interface served.
    ///
    /// # Errors
    /// [`DhcpError::Config`]: none is named.
    pub(crate) fn served_interface(&self) -> Result<String, DhcpError> {
        self.interface.clone().ok_or(DhcpError::Config {
            key: "dhcp.interface",
            what: "is missing".to_owned(),
            hint: "name the interface with the machines to serve",
        })
    }

    /// The resolvers of IPv4.
    pub(crate) fn dns_v4(&self) -> Vec<Ipv4Addr> {
        let of_v4 = |address: &IpAddr| if let IpAddr::V4(address) = address { Some(*address) } else { None };
        self.dns.iter().filter_map(of_v4).collect()
    }

    /// The resolvers of IPv6.
    pub(crate) fn dns_v6(&self) -> Vec<Ipv6Addr> {
        let of_v6 = |address: &IpAddr| if let IpAddr::V6(address) = address { Some(*address) } else { None };
        self.dns.iter().filter_map(of_v6).collect()
    }
}

/// A subnet whose machines reach this server through a DHCP relay.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubnetConfig {
    /// First and last address given out.
    pub range: AddressRange,
    /// Default `255.255.255.0`.
    #[serde(default = "default_netmask")]
    pub netmask: Ipv4Addr,
    /// The default route, by which the machines reach the coordinator.
    pub router: Ipv4Addr,
    /// The resolvers. Default: those of `dhcp.dns`.
    #[serde(default)]
    pub dns: Option<Vec<Ipv4Addr>>,
}

fn default_netmask() -> Ipv4Addr {
    Ipv4Addr::new(255, 255, 255, 0)
}

/// Addresses from `first` to `last`, both included, `first` ≤ `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    /// The lowest.
    pub first: Ipv4Addr,
    /// The highest.
    pub last: Ipv4Addr,
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        format!("{}-{}", range.first, range.last)
    }
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
