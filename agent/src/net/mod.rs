//! The network: every port up at once, DHCP on each unless the command line says otherwise, and the first that reaches the
//! coordinator carries the session.

mod advertisement;
mod dhcp;
mod dhcp6;
mod interfaces;
mod lldp;
mod manage;
mod neighbours;
mod netlink;
mod original_port;
mod port;
mod resolve;
mod router;
mod setup;
#[cfg(test)]
mod tests;
mod uplink;

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use landfall_api::NetworkInterface;
use tokio::sync::watch;

pub(crate) use self::neighbours::Neighbours;
use self::netlink::Netlink;
pub(crate) use self::port::{Port, Ports};
#[cfg(test)]
pub(crate) use self::setup::{Addresses, Setup};
pub(crate) use self::uplink::{Change, Uplink};
use crate::drivers::why_undriven;

/// How long to wait for drivers before the log reports that there is no port.
const PORT_PATIENCE: Duration = Duration::from_secs(5);

/// Every port, driven by tasks of their own.
#[derive(Clone)]
pub(crate) struct Network {
    netlink: Netlink,
    ports: watch::Receiver<Ports>,
    /// Counts the requests to check every lease.
    checks: watch::Sender<u64>,
    resolv_conf: PathBuf,
    neighbours: Neighbours,
}

impl Network {
    /// Starts bringing ports up, and makes the interfaces. `with_virtual`: also ports without a device behind them. The
    /// uplink's name servers are written to `resolv_conf`.
    ///
    /// # Errors
    /// The kernel gives no routing socket.
    pub(crate) fn start(
        interfaces: Vec<NetworkInterface>, with_virtual: bool, resolv_conf: PathBuf,
    ) -> io::Result<Self> {
        let (netlink, changes) = Netlink::open()?;
        let (sender, ports) = watch::channel(Ports::new());
        let (checks, check) = watch::channel(0);
        let managed = manage::Managed::new(netlink.clone(), sender, check, interfaces, with_virtual);
        tokio::spawn(managed.manage(changes));
        tokio::spawn(complain_about_missing_ports(ports.clone()));
        let neighbours = Neighbours::listen().unwrap_or_else(|e| {
            tracing::warn!("the ports' neighbours stay unknown: cannot open a packet socket: {e}");
            Neighbours::none()
        });
        Ok(Self { netlink, ports, checks, resolv_conf, neighbours })
    }

    /// Every port as it is now, and its changes.
    pub(crate) fn ports(&self) -> watch::Receiver<Ports> {
        self.ports.clone()
    }

    /// What is at the other end of each port.
    pub(crate) fn neighbours(&self) -> Neighbours {
        self.neighbours.clone()
    }

    /// Asks DHCP again on every port, at once and of any server: the network behind a port may be another one now, without
    /// a change of carrier. What is lent stays until a server takes it back.
    pub(crate) fn check_leases(&self) {
        self.checks.send_modify(|count| *count += 1);
    }
}

/// Logs that there is no port, and which network devices have no driver.
async fn complain_about_missing_ports(mut ports: watch::Receiver<Ports>) {
    let mut wait = PORT_PATIENCE;
    while let Err(_elapsed) = tokio::time::timeout(wait, ports.wait_for(|p| !p.is_empty())).await {
        let orphans = driverless_pci_nics();
        let seen = match orphans.as_slice() {
            [] => "there is no network device on the PCI bus".to_owned(),
            some => format!("without a driver: {}", some.join(", ")),
        };
        tracing::error!(
            "no network port ({seen}). A driver that the boot image lacks is packed with: landfall-image initramfs --module NAME. The \
             agent keeps looking"
        );
        wait = (wait * 2).min(Duration::from_secs(60));
    }
}

/// PCI devices of class 02 (network) that no driver took, as `vendor:device at address`.
fn driverless_pci_nics() -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/bus/pci/devices") else { return Vec::new() };
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    devices
        .flatten()
        .map(|d| d.path())
        .filter(|d| read(d.join("class")).starts_with("0x02") && !d.join("driver").exists())
        .map(|d| {
            let id = |name: &str| read(d.join(name)).trim_start_matches("0x").to_owned();
            let at = d.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let why = why_undriven(&read(d.join("modalias"))).problem;
            let why = if why.is_empty() { why } else { format!(" ({why})") };
            format!("{}:{} at {at}{why}", id("vendor"), id("device"))
        })
        .take(16)
        .collect()
}
