//! The task that sees ports come and go: it makes what the interfaces need, and starts a task for each port with an address.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::{Duration, Instant};

use landfall_api::NetworkInterface;
use tokio::sync::watch;

use super::interfaces::{Role, Step, missing, plan};
use super::netlink::{Link, LinkChanges, Netlink, NetlinkError};
use super::port::{self, Port, Ports};
use super::router;
use super::setup::Addresses;

/// So long at least a port that an interface names may take to appear: its driver is being loaded.
const APPEARS: Duration = Duration::from_secs(5);
/// Time between scans of the ports without an announcement, in case one was lost.
const RESCAN: Duration = Duration::from_secs(10);

/// Every port that was seen.
pub(super) struct Managed {
    netlink: Netlink,
    ports: watch::Sender<Ports>,
    check: watch::Receiver<u64>,
    wanted: Vec<NetworkInterface>,
    with_virtual: bool,
    /// What tells a port's task of its carrier.
    carriers: BTreeMap<u32, watch::Sender<bool>>,
    /// What failed or was missing, and was said.
    refused: BTreeSet<String>,
    begun: Instant,
}

impl Managed {
    pub(super) fn new(
        netlink: Netlink, ports: watch::Sender<Ports>, check: watch::Receiver<u64>, wanted: Vec<NetworkInterface>,
        with_virtual: bool,
    ) -> Self {
        let (carriers, refused, begun) = (BTreeMap::new(), BTreeSet::new(), Instant::now());
        Self { netlink, ports, check, wanted, with_virtual, carriers, refused, begun }
    }

    pub(super) async fn manage(mut self, mut changes: LinkChanges) {
        loop {
            match self.netlink.links().await {
                Err(e) => tracing::warn!("{e}"),
                Ok(links) => self.follow(&links).await,
            }
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep(RESCAN) => {}
            }
        }
    }

    async fn follow(&mut self, links: &[Link]) {
        // One with another name is another port: udev names ports while the agent is at work, and sockets are bound by name.
        let stays = |index: &u32, name: &str| links.iter().any(|link| link.index == *index && link.name == name);
        self.ports.send_if_modified(|all| {
            let before = all.len();
            all.retain(|index, port| stays(index, &port.name));
            self.carriers.retain(|index, _| all.contains_key(index));
            before != all.len()
        });
        let (steps, mut roles) = plan(&self.wanted, links, self.with_virtual);
        for step in steps {
            let made = self.make(&step).await;
            self.refuses(made, "check landfall.net on the kernel command line, and the modules of the boot image");
        }
        self.name_missing(links);
        for link in links {
            let Some(role) = roles.remove(&link.index) else { continue };
            if !link.up {
                let up = self.netlink.up(link).await;
                self.refuses(up, "its driver may lack firmware in the boot image");
            }
            if let Role::Interface(addressing) = role {
                let carrier = self.carriers.entry(link.index).or_insert_with(|| {
                    let (sender, receiver) = watch::channel(false);
                    let usb = if link.usb { " on USB, which is tried 3 s after it has an address" } else { "" };
                    tracing::info!("{}: port {}{usb}", link.name, link.permanent_mac);
                    self.ports.send_modify(|all| _ = all.insert(link.index, known(link)));
                    let seen = || port::Seen { carrier: receiver.clone(), check: self.check.clone() };
                    // A fixed IPv6 address is the only one that is used.
                    if !addressing.fixed.iter().any(|setup| setup.address.addr().is_ipv6()) {
                        let (netlink, servers) = (self.netlink.clone(), addressing.nameservers.clone());
                        tokio::spawn(router::run(link.clone(), servers, netlink, seen(), self.ports.clone()));
                    }
                    let task = port::run(link.clone(), addressing, self.netlink.clone(), seen(), self.ports.clone());
                    tokio::spawn(task);
                    sender
                });
                if carrier.send_if_modified(|c| std::mem::replace(c, link.carrier) != link.carrier) {
                    self.ports.send_modify(|all| {
                        if let Some(port) = all.get_mut(&link.index) {
                            port.carrier = link.carrier;
                        }
                    });
                }
            }
        }
    }

    /// Logs which ports of the interfaces are not there, each once: a bond goes on without, and what has no port is not made.
    fn name_missing(&mut self, links: &[Link]) {
        if self.begun.elapsed() < APPEARS {
            return;
        }
        for (port, interface) in missing(&self.wanted, links) {
            if self.refused.insert(format!("no port {port}")) {
                let real = links.iter().filter(|link| link.real);
                let there: Vec<_> = real.map(|link| format!("{} ({})", link.name, link.permanent_mac)).collect();
                tracing::error!(
                    "there is no port {port} yet, which the setting {interface} names; check landfall.net and ip on the kernel command \
                     line, or spec.network of the machine. Ports: {}",
                    if there.is_empty() { "none".to_owned() } else { there.join(", ") }
                );
            }
        }
    }

    async fn make(&self, step: &Step) -> Result<(), NetlinkError> {
        match step {
            Step::Bond { name, mode } => {
                self.netlink.add_bond(name, *mode).await?;
                tracing::info!("{name}: bond, {}", mode.as_str());
            }
            Step::Join { port, name, bond } => {
                self.netlink.join(*port, name, *bond).await?;
                tracing::info!("{name}: in its bond");
            }
            Step::Vlan { name, base, id } => {
                self.netlink.add_vlan(name, *base, *id).await?;
                tracing::info!("{name}: VLAN {id}");
            }
            Step::Mtu { port, name, mtu } => {
                self.netlink.set_mtu(*port, *mtu).await?;
                tracing::info!("{name}: MTU {mtu}");
            }
        }
        Ok(())
    }

    /// Logs a refusal, each once: what failed is tried again at every change.
    fn refuses(&mut self, result: Result<(), NetlinkError>, advice: &str) {
        let Err(e) = result else { return };
        let source = e.source().map(ToString::to_string).unwrap_or_default();
        let line = format!("{e}: {source}; {advice}");
        if self.refused.insert(line.clone()) {
            tracing::warn!("{line}");
        }
    }
}

fn known(link: &Link) -> Port {
    Port {
        name: link.name.clone(),
        mac: link.mac,
        permanent_mac: link.permanent_mac,
        usb: link.usb,
        carrier: link.carrier,
        addresses: Addresses::default(),
        coordinators: Vec::new(),
        coordinators_v6: Vec::new(),
        unanswered: 0,
        trouble: None,
    }
}
