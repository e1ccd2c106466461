//! The site's own DHCP server, which Landfall must live beside.

use std::path::Path;
use std::time::Duration;

use crate::{LabError, Log, Mark, Namespace, Network, Process};

/// A dnsmasq that leases addresses and has no boot options.
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
        let mut command = neighbour.command("dnsmasq");
        command
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--log-facility=-", "--log-dhcp"])
            .args(["--interface=eth0", "--bind-interfaces", "--dhcp-authoritative", "--dhcp-no-override"])
            .arg(format!("--dhcp-range={a}.{b}.{c}.100,{a}.{b}.{c}.199,255.255.255.0,1h"))
            .arg(format!("--dhcp-leasefile={}", dir.join("dnsmasq.leases").display()))
            .arg(format!("--pid-file={}", dir.join("dnsmasq.pid").display()));
        let log = Log::open(&dir.join("dnsmasq.log"))?;
        let mut process = Process::spawn("dnsmasq", command, log)?;
        process.wait_stderr(Mark::default(), "DHCP, IP range", Duration::from_secs(10)).await?;
        Ok(Self { process })
    }

    /// Its log.
    pub fn log(&self) -> &Log {
        self.process.stderr()
    }
}
