//! The network: every port up at once, DHCP on each, and the first that reaches the coordinator carries the session.

mod dhcp;
mod netlink;
mod port;
mod resolve;
#[cfg(test)]
mod tests;
mod uplink;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use tokio::sync::watch;

use self::netlink::{LinkChanges, Netlink};
pub(crate) use self::port::{Port, Ports};
pub(crate) use self::uplink::{Change, Uplink};

/// Time between scans of the ports without an announcement, in case one was lost.
const RESCAN: Duration = Duration::from_secs(10);
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
}

impl Network {
    /// Starts bringing ports up. `with_virtual`: also those without a device behind them. The uplink's name servers are
    /// written to `resolv_conf`.
    ///
    /// # Errors
    /// The kernel gives no routing socket.
    pub(crate) fn start(with_virtual: bool, resolv_conf: PathBuf) -> io::Result<Self> {
        let (netlink, changes) = Netlink::open()?;
        let (sender, ports) = watch::channel(Ports::new());
        let (checks, check) = watch::channel(0);
        let managed = Managed { netlink: netlink.clone(), ports: sender, check };
        tokio::spawn(managed.manage(changes, with_virtual));
        tokio::spawn(complain_about_missing_ports(ports.clone()));
        Ok(Self { netlink, ports, checks, resolv_conf })
    }

    /// Every port as it is now, and its changes.
    pub(crate) fn ports(&self) -> watch::Receiver<Ports> {
        self.ports.clone()
    }

    /// Asks DHCP again on every port, at once and of any server: the network behind a port may be another one now, without
    /// a change of carrier. What is lent stays until a server takes it back.
    pub(crate) fn check_leases(&self) {
        self.checks.send_modify(|count| *count += 1);
    }
}

/// What the tasks of the ports need.
struct Managed {
    netlink: Netlink,
    ports: watch::Sender<Ports>,
    check: watch::Receiver<u64>,
}

impl Managed {
    async fn manage(self, mut changes: LinkChanges, with_virtual: bool) {
        let Self { netlink, ports, check } = self;
        let mut carriers: BTreeMap<u32, watch::Sender<bool>> = BTreeMap::new();
        let mut refused: BTreeSet<u32> = BTreeSet::new();
        loop {
            match netlink.links(with_virtual).await {
                Err(e) => tracing::warn!("{e}"),
                Ok(links) => {
                    carriers.retain(|index, _| links.iter().any(|l| l.index == *index));
                    ports.send_if_modified(|all| {
                        let before = all.len();
                        all.retain(|index, _| links.iter().any(|l| l.index == *index));
                        before != all.len()
                    });
                    for link in links {
                        if !link.up
                            && let Err(e) = netlink.up(&link).await
                            && refused.insert(link.index)
                        {
                            let source = std::error::Error::source(&e).map(ToString::to_string).unwrap_or_default();
                            tracing::warn!("{e}: {source}; its driver may lack firmware in the boot image");
                        }
                        let carrier = carriers.entry(link.index).or_insert_with(|| {
                            let (sender, receiver) = watch::channel(false);
                            tracing::info!("{}: port {}", link.name, link.permanent_mac);
                            ports.send_modify(|all| _ = all.insert(link.index, known(&link)));
                            let seen = port::Seen { carrier: receiver, check: check.clone() };
                            tokio::spawn(port::run(link.clone(), netlink.clone(), seen, ports.clone()));
                            sender
                        });
                        let changed = carrier.send_if_modified(|c| std::mem::replace(c, link.carrier) != link.carrier);
                        if changed {
                            ports.send_modify(|all| {
                                if let Some(port) = all.get_mut(&link.index) {
                                    port.carrier = link.carrier;
                                }
                            });
                        }
                    }
                }
            }
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep(RESCAN) => {}
            }
        }
    }
}

fn known(link: &netlink::Link) -> Port {
    Port {
        name: link.name.clone(),
        mac: link.mac,
        permanent_mac: link.permanent_mac,
        carrier: link.carrier,
        lease: None,
        unanswered: 0,
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
            "no network port ({seen}); add its driver to the boot image's profile. The agent keeps looking"
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
            format!("{}:{} at {at}", id("vendor"), id("device"))
        })
        .take(16)
        .collect()
}
