//! The site's own DHCP server, which Landfall must live beside, and its relay.

use std::path::Path;
use std::time::Duration;

use crate::{LabError, Log, Mark, Namespace, Network, Process};

/// A dnsmasq that leases addresses and has no boot options, or one that relays.
#[derive(Debug)]
pub struct Dnsmasq {
    process: Process,
}

impl Dnsmasq {
    /// Starts it in the neighbour's namespace; its log goes to `<dir>/dnsmasq.log`.
    ///
    /// # Errors
    /// [`LabError`] if dnsmasq is missing or does not start.
    pub async fn start(neighbour: &Namespace, dir: &Path) -> Result<Self, LabError> {
        let [a, b, c, _] = Network::NEIGHBOUR.octets();
        let range = format!("--dhcp-range={a}.{b}.{c}.100,{a}.{b}.{c}.199,255.255.255.0,1h");
        let leases = format!("--dhcp-leasefile={}", dir.join("dnsmasq.leases").display());
        let own = ["--interface=eth0", "--bind-interfaces", "--dhcp-authoritative", "--dhcp-no-override"];
        Self::run(neighbour, dir, &[&own[..], &[&range, &leases]].concat(), "DHCP, IP range").await
    }

    /// Starts one in the namespace of a network behind a router, which relays to [`Network::ADDRESS`].
    ///
    /// # Errors
    /// [`LabError`] if dnsmasq is missing or does not start.
    pub async fn relay(behind: &Network, dir: &Path) -> Result<Self, LabError> {
        let relay = format!("--dhcp-relay={},{}", Network::BEHIND_ROUTER, Network::ADDRESS);
        Self::run(behind.namespace(), dir, &[&relay], "DHCP relay from").await
    }

    /// Starts one with these words, and waits until it says that it is ready.
    async fn run(namespace: &Namespace, dir: &Path, own: &[&str], ready: &str) -> Result<Self, LabError> {
        let mut command = namespace.command("dnsmasq");
        command
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--log-facility=-", "--log-dhcp"])
            .args(own)
            .arg(format!("--pid-file={}", dir.join("dnsmasq.pid").display()));
        let log = Log::open(&dir.join("dnsmasq.log"))?;
        let mut process = Process::spawn("dnsmasq", command, log)?;
        process.wait_stderr(Mark::default(), ready, Duration::from_secs(10)).await?;
        Ok(Self { process })
    }

    /// Its log.
    pub fn log(&self) -> &Log {
        self.process.stderr()
    }
}
