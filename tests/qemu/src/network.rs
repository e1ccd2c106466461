//! A network of its own: a namespace with a bridge, invisible to the host.
//!
//! All interfaces live inside, so removing the namespace removes everything, and machines cannot reach (or disturb) the
//! host's own network.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sweep::{own_prefix, remove_namespace};
use crate::{LabError, ip::ip, sweep};

static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// A network namespace; dropping it ends the processes in it and removes it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn create() -> Result<Self, LabError> {
        let name = format!("{}-{}", own_prefix(), NAMESPACES.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name, for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it, for those that enter it.
    pub fn file(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// A command that will run inside, and die with this process.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("ip");
        command.args(["netns", "exec", &self.name, "setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    fn ip(&self, args: &[&str]) -> Result<String, LabError> {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(args);
        ip(&all)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove_namespace(&self.name);
    }
}

/// A lab's network: `10.77.0.0/24` and `fd77::/64` on a bridge, the lab's own side at `10.77.0.1` and `fd77::1`.
#[derive(Debug)]
pub struct Network {
    namespace: Namespace,
    taps: AtomicU32,
}

impl Network {
    /// The lab's own address on the bridge.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
    /// The same of IPv6.
    pub const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
    /// Where a second server, such as the site's own DHCP, lives.
    pub const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    /// Where another one lives.
    pub const THIRD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
    /// The port of such a server.
    pub const NEIGHBOUR_PORT: &str = "eth0";
    /// A router's own address in the network behind it, see [`Network::behind_router`].
    pub const BEHIND_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
    /// The bridge's name inside the namespace.
    pub const BRIDGE: &str = "br0";
    /// That of the bridge of [`Network::island`].
    pub const ISLAND: &str = "br1";

    /// Makes a network, after sweeping what dead labs left.
    ///
    /// # Errors
    /// [`LabError`] if the caller may not make namespaces (root is needed) or iproute2 is missing.
    pub fn create() -> Result<Self, LabError> {
        sweep()?;
        let network = Self::bridged(Namespace::create()?, Self::ADDRESS)?;
        // No other host has it: it can be used at once.
        let address = format!("{}/64", Self::ADDRESS_V6);
        network.namespace.ip(&["addr", "add", &address, "dev", Self::BRIDGE, "nodad"])?;
        Ok(network)
    }

    /// A bridge in a namespace, which has this address on it.
    fn bridged(namespace: Namespace, address: Ipv4Addr) -> Result<Self, LabError> {
        // No spanning tree and no forwarding delay: a port forwards at once, as a lab's switch should.
        namespace.ip(&[
            "link",
            "add",
            Self::BRIDGE,
            "type",
            "bridge",
            "stp_state",
            "0",
            "forward_delay",
            "0",
            "mcast_snooping",
            "0",
        ])?;
        namespace.ip(&["addr", "add", &format!("{address}/24"), "dev", Self::BRIDGE])?;
        namespace.ip(&["link", "set", Self::BRIDGE, "up"])?;
        Ok(Self { namespace, taps: AtomicU32::new(0) })
    }

    /// The namespace it lives in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A command that will run inside the network, and die with this process.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> tokio::process::Command {
        self.namespace.command(program)
    }

    /// Plugs a new tap into a bridge and returns its name.
    ///
    /// # Errors
    /// [`LabError`] if there is no such bridge, or the kernel has no tun driver.
    pub fn add_tap(&self, bridge: &str) -> Result<String, LabError> {
        let name = format!("tap{}", self.taps.fetch_add(1, Ordering::Relaxed));
        self.namespace.ip(&["tuntap", "add", &name, "mode", "tap"])?;
        self.namespace.ip(&["link", "set", &name, "master", bridge, "up"])?;
        Ok(name)
    }

    /// Pulls (`false`) or plugs (`true`) the cable between a tap and the bridge.
    ///
    /// # Errors
    /// [`LabError`] if there is no such tap.
    pub fn set_link(&self, tap: &str, up: bool) -> Result<(), LabError> {
        self.namespace.ip(&["link", "set", tap, if up { "up" } else { "down" }]).map(drop)
    }

    /// A second namespace on the same bridge, at [`Network::NEIGHBOUR`]: a place for another DHCP server, which must not
    /// share port 67 with the one under test.
    ///
    /// # Errors
    /// [`LabError`] as for [`Network::create`].
    pub fn neighbour(&self) -> Result<Namespace, LabError> {
        self.beside(Self::BRIDGE, "veth0", Self::NEIGHBOUR)
    }

    /// A third namespace on the same bridge, at [`Network::THIRD`].
    ///
    /// # Errors
    /// [`LabError`] as for [`Network::create`].
    pub fn third(&self) -> Result<Namespace, LabError> {
        self.beside(Self::BRIDGE, "veth2", Self::THIRD)
    }

    /// A namespace at [`Network::NEIGHBOUR`] on a bridge of its own, from which nothing leads to the lab's side: a place for a DHCP
    /// server whose network is a dead end. Machines are plugged in by [`Plug::Island`](crate::Plug::Island).
    ///
    /// # Errors
    /// [`LabError`] as for [`Network::create`].
    pub fn island(&self) -> Result<Namespace, LabError> {
        self.namespace.ip(&["link", "add", Self::ISLAND, "type", "bridge", "stp_state", "0", "forward_delay", "0"])?;
        self.namespace.ip(&["link", "set", Self::ISLAND, "up"])?;
        self.beside(Self::ISLAND, "veth1", Self::NEIGHBOUR)
    }

    fn beside(&self, bridge: &str, end: &str, address: Ipv4Addr) -> Result<Namespace, LabError> {
        let other = Namespace::create()?;
        self.namespace.ip(&[
            "link",
            "add",
            end,
            "type",
            "veth",
            "peer",
            "name",
            Self::NEIGHBOUR_PORT,
            "netns",
            other.name(),
        ])?;
        self.namespace.ip(&["link", "set", end, "master", bridge, "up"])?;
        other.ip(&["addr", "add", &format!("{address}/24"), "dev", Self::NEIGHBOUR_PORT])?;
        other.ip(&["link", "set", Self::NEIGHBOUR_PORT, "up"])?;
        Ok(other)
    }

    /// A second network, `10.78.0.0/24`, whose own side is a router: at [`Network::NEIGHBOUR`] in this network, and at
    /// [`Network::BEHIND_ROUTER`] in that one. No broadcast passes it.
    ///
    /// # Errors
    /// [`LabError`] as for [`Network::create`].
    pub fn behind_router(&self) -> Result<Self, LabError> {
        let far = Self::bridged(self.neighbour()?, Self::BEHIND_ROUTER)?;
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        ip(&["netns", "exec", far.namespace.name(), "sh", "-c", forward])?;
        self.namespace.ip(&["route", "add", "10.78.0.0/24", "via", &Self::NEIGHBOUR.to_string()])?;
        Ok(far)
    }
}
