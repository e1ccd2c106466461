//! One port: carrier, DHCP or a fixed address, and routes, for as long as the port exists.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use landfall_api::MacAddr;
use tokio::sync::watch;

use super::dhcp::{Client, Socket, Step};
use super::interfaces::Addressing;
use super::netlink::{Link, Netlink, NetlinkError};
use super::setup::{Addresses, Setup};

/// After this time without carrier the console shows a line: a link takes a few seconds to train.
const CARRIER_PATIENCE: Duration = Duration::from_secs(10);
/// Time between attempts to open the DHCP socket.
const SOCKET_RETRY: Duration = Duration::from_secs(5);
/// Metric of every port's own routes, plus the port's index. The uplink's copies are lower (`uplink`).
const METRIC: u32 = 1024;

/// What is known of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    /// The kernel's name.
    pub(crate) name: String,
    /// The address frames are sent from.
    pub(crate) mac: MacAddr,
    /// The address burned in.
    pub(crate) permanent_mac: MacAddr,
    /// Whether it is on USB.
    pub(crate) usb: bool,
    /// Whether there is a signal.
    pub(crate) carrier: bool,
    /// What it can be used with.
    pub(crate) addresses: Addresses,
    /// The coordinators that its DHCP server names, and those of its DHCPv6 server.
    pub(crate) coordinators: Vec<String>,
    pub(crate) coordinators_v6: Vec<String>,
    /// DHCP questions without an answer.
    pub(crate) unanswered: u32,
    /// What its DHCP server does in place of lending an address.
    pub(crate) trouble: Option<String>,
}

/// Every port by the kernel's number.
pub(crate) type Ports = BTreeMap<u32, Port>;

/// What a port's task waits for.
pub(super) struct Seen {
    /// Whether there is a signal; its sender goes with the port.
    pub(super) carrier: watch::Receiver<bool>,
    /// Changes when the lease is to be checked.
    pub(super) check: watch::Receiver<u64>,
}

/// Drives one port until the carrier's sender is gone (the port vanished).
pub(super) async fn run(link: Link, addressing: Addressing, netlink: Netlink, seen: Seen, ports: watch::Sender<Ports>) {
    let Seen { mut carrier, check } = seen;
    let mut task = Task { link, addressing, netlink, ports, check, client: None };
    loop {
        // Mapped to a value of its own: what `wait_for` gives borrows the receiver, which is waited on again below.
        let seen = tokio::time::timeout(CARRIER_PATIENCE, carrier.wait_for(|c| *c)).await.map(|s| s.map(drop));
        match seen {
            Ok(Ok(())) => {}
            Ok(Err(_gone)) => return,
            Err(_elapsed) => {
                tracing::warn!("{}: no carrier; check the cable and the switch port", task.link.name);
                if carrier.wait_for(|c| *c).await.is_err() {
                    return;
                }
            }
        }
        tracing::info!("{}: carrier", task.link.name);
        if task.with_carrier(&mut carrier).await.is_err() {
            return;
        }
        tracing::warn!("{}: carrier lost", task.link.name);
    }
}

struct Task {
    link: Link,
    addressing: Addressing,
    netlink: Netlink,
    ports: watch::Sender<Ports>,
    check: watch::Receiver<u64>,
    client: Option<Client>,
}

/// The port does not exist any more.
struct Gone;

/// Waits until the carrier is lost. The value that `wait_for` gives holds a lock, and must not live across an await.
async fn lost(carrier: &mut watch::Receiver<bool>) -> Result<(), Gone> {
    carrier.wait_for(|c| !*c).await.map(drop).map_err(|_| Gone)
}

/// Waits until the lease is to be checked; for ever once the network's owner is gone.
async fn asked(check: &mut watch::Receiver<u64>) {
    if check.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Task {
    /// Has its address until the carrier is lost.
    async fn with_carrier(&mut self, carrier: &mut watch::Receiver<bool>) -> Result<(), Gone> {
        if self.addressing.fixed.is_empty() {
            return self.speak_dhcp(carrier).await;
        }
        for setup in self.addressing.fixed.clone() {
            self.bind(setup, "the command line").await;
        }
        lost(carrier).await
    }

    async fn speak_dhcp(&mut self, carrier: &mut watch::Receiver<bool>) -> Result<(), Gone> {
        let socket = loop {
            match Socket::open(&self.link.name) {
                Ok(socket) => break socket,
                Err(e) => tracing::warn!("{}: cannot open a socket for DHCP: {e}", self.link.name),
            }
            tokio::select! {
                () = tokio::time::sleep(SOCKET_RETRY) => {}
                gone = lost(carrier) => return gone,
            }
        };
        let now = Instant::now();
        match &mut self.client {
            Some(client) => client.link_returned(now),
            None => {
                // Not from the kernel's random source: early in a boot it blocks for seconds, and an exchange number
                // need only differ from its neighbours'.
                let random = std::hash::RandomState::new().hash_one(self.link.mac);
                let [a, b, c, d, ..] = random.to_ne_bytes();
                self.client = Some(Client::new(self.link.mac, u32::from_ne_bytes([a, b, c, d]), now));
            }
        }
        let mut buffer = [0; 2048];
        while let Some(client) = &mut self.client {
            let wait =
                client.due().map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(Instant::now()));
            let steps = tokio::select! {
                gone = lost(carrier) => return gone,
                received = socket.receive(&mut buffer) => match received {
                    Ok(length) => client.receive(&buffer[..length], Instant::now()),
                    // ENETDOWN and similar: the carrier will show the port's state.
                    Err(e) => {
                        tracing::debug!("{}: DHCP: {e}", self.link.name);
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        Vec::new()
                    }
                },
                () = tokio::time::sleep(wait) => client.tick(Instant::now()),
                () = asked(&mut self.check) => {
                    client.link_returned(Instant::now());
                    Vec::new()
                }
            };
            let (unanswered, trouble) = (client.unanswered(), client.trouble().map(str::to_owned));
            self.note_silence(unanswered);
            self.note_trouble(trouble);
            for step in steps {
                self.take(step, &socket).await;
            }
        }
        Ok(())
    }

    async fn take(&mut self, step: Step, socket: &Socket) {
        let name = &self.link.name;
        match step {
            Step::Send(message, to) => {
                if let Err(e) = socket.send(&message, to).await {
                    // It is repeated after its wait, like a lost frame.
                    tracing::debug!("{name}: DHCP: cannot send: {e}");
                }
            }
            Step::Bound(lease) => {
                if self.publish_coordinators(&lease.coordinators) {
                    let (server, named) = (lease.server, lease.coordinators.join(", "));
                    tracing::info!("{name}: DHCP server {server} names the coordinator {named}");
                }
                let (Addressing { nameservers, mtu, .. }, mut setup) = (&self.addressing, lease.setup);
                let of_dhcp = setup.nameservers.into_iter().filter(|server| !nameservers.contains(server));
                setup.nameservers = nameservers.iter().copied().chain(of_dhcp).collect();
                setup.mtu = mtu.or(setup.mtu);
                self.bind(setup, &format!("DHCP server {}", lease.server)).await;
            }
            Step::Lost(why) => {
                tracing::warn!("{name}: address lost: {why}");
                if let Err(e) = self.netlink.remove_addresses(self.link.index, None).await {
                    tracing::warn!("{name}: {e}");
                }
                self.publish(|port| port.addresses.v4 = None);
                self.publish_coordinators(&[]);
            }
        }
    }

    /// Sets the port up; `from` says who names the address.
    async fn bind(&self, setup: Setup, from: &str) {
        let name = &self.link.name;
        let held = self.ports.borrow().get(&self.link.index).map(|port| port.addresses.clone()).unwrap_or_default();
        let known = held.like(setup.address.addr());
        if let Err(e) = self.apply(&setup, known).await {
            let source = std::error::Error::source(&e).map(ToString::to_string).unwrap_or_default();
            tracing::error!("{name}: {e}: {source}");
        }
        if known.map(|known| known.address.addr()) != Some(setup.address.addr()) {
            let gateway = setup.gateway().map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
            tracing::info!("{name}: address {} from {from}{gateway}", setup.address);
        }
        self.publish(|port| _ = port.addresses.set(setup));
    }

    async fn apply(&self, setup: &Setup, known: Option<&Setup>) -> Result<(), NetlinkError> {
        let (index, metric) = (self.link.index, METRIC + self.link.index);
        if let Some(mtu) = setup.mtu
            && known.and_then(|k| k.mtu) != setup.mtu
        {
            // A port that cannot do it still works with its own.
            if let Err(e) = self.netlink.set_mtu(index, mtu).await {
                tracing::warn!("{}: {e}", self.link.name);
            }
        }
        self.netlink.set_address(index, setup.address).await?;
        let stale = known.into_iter().flat_map(|k| &k.routes).filter(|r| !setup.routes.contains(r));
        for route in stale {
            self.netlink.remove_route(index, *route, metric).await;
        }
        for route in &setup.routes {
            self.netlink.set_route(index, *route, metric).await?;
        }
        Ok(())
    }

    /// Logs that no server answers: after 4 requests (about 15 s), then at every doubling.
    fn note_silence(&self, unanswered: u32) {
        let before = self.ports.borrow().get(&self.link.index).map_or(0, |p| p.unanswered);
        if before == unanswered {
            return;
        }
        if unanswered >= 4 && unanswered.is_power_of_two() {
            tracing::warn!(
                "{} ({}): no DHCP answer after {unanswered} tries; check that a DHCP server serves this network and \
                    answers this address (the coordinator's answers those in machines' documents), and that the switch port is in \
                    the right VLAN. The agent keeps trying",
                self.link.name,
                self.link.mac,
            );
        }
        self.publish(|port| port.unanswered = unanswered);
    }

    /// Logs what a server does in place of lending an address: once, until it lends one or falls silent.
    fn note_trouble(&self, trouble: Option<String>) {
        let before = self.ports.borrow().get(&self.link.index).and_then(|port| port.trouble.clone());
        if before == trouble {
            return;
        }
        if let (None, Some(trouble)) = (&before, &trouble) {
            tracing::warn!("{} ({}): {trouble}; the agent keeps trying", self.link.name, self.link.mac);
        }
        self.publish(|port| port.trouble = trouble);
    }

    /// Whether they are others than before.
    fn publish_coordinators(&self, named: &[String]) -> bool {
        let mut are_new = false;
        self.publish(|port| {
            are_new = port.coordinators != named;
            named.clone_into(&mut port.coordinators);
        });
        are_new && !named.is_empty()
    }

    fn publish(&self, change: impl FnOnce(&mut Port)) {
        self.ports.send_modify(|ports| {
            if let Some(port) = ports.get_mut(&self.link.index) {
                change(port);
            }
        });
    }
}
