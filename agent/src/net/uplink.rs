//! The uplink: the one port that the agent uses to reach the coordinator.
//!
//! Every port with an address is tried, bound to its device so that routes of others do not matter; the firmware's own
//! port (`BOOTIF`) gets a head start, and one on USB waits for the others. The winner's route to the coordinator is then set with a metric below every
//! other, which settles it for all connections (two ports in one subnet included). A renewed lease with other routes or name
//! servers is adopted in mid-session. When the winner loses its carrier or address, or the session gets no answers any
//! more, the choice is made again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use landfall_api::MacAddr;
use tokio::net::TcpSocket;
use tokio::time::Instant;

use super::Network;
use super::port::Port;
use super::resolve::{resolve, write_resolv_conf};
use super::setup::{Addresses, Route};

/// How long BOOTIF is tried alone.
const HEAD_START: Duration = Duration::from_millis(300);
/// How long the others are tried before a port on USB, which may lead to the machine's BMC alone.
const USB_WAIT: Duration = Duration::from_secs(3);
/// So long after the first try other ports are taken in: one whose address changes again and again would never let the choice end.
const TAKEN_IN: Duration = Duration::from_secs(30);
/// For one TCP connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Below every metric of `port`.
const COORDINATOR_METRIC: u32 = 10;
const DEFAULT_METRIC: u32 = 50;

/// The chosen port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// The kernel's number of the port.
    pub(crate) index: u32,
    /// Its name.
    pub(crate) name: String,
    /// Where the coordinator answered.
    pub(crate) coordinator: SocketAddr,
    /// The port's addresses, as they were adopted.
    pub(super) addresses: Addresses,
    routes: Vec<(Route, u32)>,
}

impl fmt::Display for Uplink {
    /// The port's name and its addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.addresses.iter().try_for_each(|setup| write!(f, " {}", setup.address))
    }
}

/// What became of the uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its port lost its carrier or its address.
    Lost,
    /// It keeps its address, and there are other routes or name servers.
    Renewed(Addresses),
}

/// Why no port reaches the coordinator: one sentence per port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoUplink(pub(crate) Vec<String>);

impl Network {
    /// Tries every port that has an address to reach one of these hosts, and sets routes and name servers for the one that wins. Waits for a first address,
    /// at most `patience`; a port that gets one while others are tried is tried too.
    ///
    /// # Errors [`NoUplink`], with the error of each port.
    pub(crate) async fn elect(
        &self, hops: &[(impl AsRef<str> + Sync, u16)], boot_port: Option<MacAddr>, patience: Duration,
    ) -> Result<Uplink, NoUplink> {
        let mut changes = self.ports();
        // A timeout is not an error here: the errors per port follow below.
        _ = tokio::time::timeout(patience, changes.wait_for(|all| all.values().any(usable))).await;
        let mut problems: BTreeMap<u32, String> = BTreeMap::new();
        let mut tried: BTreeMap<u32, Addresses> = BTreeMap::new();
        let mut tries = FuturesUnordered::new();
        let until = Instant::now() + TAKEN_IN;
        loop {
            let ports = changes.borrow_and_update().clone();
            for (index, candidate) in ports.into_iter().filter(|(_, port)| usable(port)) {
                if tried.get(&index) == Some(&candidate.addresses) || Instant::now() > until {
                    continue;
                }
                tried.insert(index, candidate.addresses.clone());
                let wait = wait(&candidate, boot_port, changes.borrow().values());
                tries.push(async move {
                    tokio::time::sleep(wait).await;
                    let Port { name, addresses, .. } = candidate;
                    let answer = connect(&name, hops, &addresses).await;
                    (index, name, addresses, answer)
                });
            }
            tokio::select! {
                answered = tries.next() => match answered {
                    Some((index, name, addresses, Ok(coordinator))) => {
                        return Ok(self.adopt(index, name, addresses, coordinator).await);
                    }
                    Some((index, name, addresses, Err(why))) => {
                        let held: Vec<_> = addresses.iter().map(|setup| setup.address.addr().to_string()).collect();
                        problems.insert(index, format!("{name} ({}): {why}", held.join(", ")));
                    }
                    None => break,
                },
                Ok(()) = changes.changed() => {}
            }
        }
        for (index, port) in changes.borrow().iter().filter(|(_, port)| !usable(port)) {
            problems.entry(*index).or_insert_with(|| format!("{}: {}", port.name, missing(port)));
        }
        if problems.is_empty() {
            problems.insert(0, "there is no network port".into());
        }
        Err(NoUplink(problems.into_values().collect()))
    }

    async fn adopt(&self, index: u32, name: String, addresses: Addresses, coordinator: SocketAddr) -> Uplink {
        let routes = routes_of(&addresses, coordinator.ip());
        for (route, metric) in &routes {
            if let Err(e) = self.netlink.set_route(index, *route, *metric).await {
                // The port's own routes may do; if not, the session says that it cannot connect.
                tracing::warn!("{name}: {e}");
            }
        }
        if let Err(e) = write_resolv_conf(&self.resolv_conf, &addresses.nameservers()) {
            tracing::warn!("{}: {e}; names in URLs will not resolve", self.resolv_conf.display());
        }
        Uplink { index, name, coordinator, addresses, routes }
    }

    /// Follows a renewed lease: its routes and name servers take the place of the old.
    pub(crate) async fn follow(&self, old: Uplink, addresses: Addresses) -> Uplink {
        let new = self.adopt(old.index, old.name.clone(), addresses, old.coordinator).await;
        for (route, metric) in old.routes.iter().filter(|route| !new.routes.contains(route)) {
            self.netlink.remove_route(old.index, *route, *metric).await;
        }
        tracing::info!("{}: there are other routes or name servers; they are used from now on", new.name);
        new
    }

    /// Takes the uplink's routes back, before another is chosen.
    pub(crate) async fn release(&self, uplink: &Uplink) {
        for (route, metric) in &uplink.routes {
            self.netlink.remove_route(uplink.index, *route, *metric).await;
        }
    }

    /// Waits until the uplink is lost or its lease names another way.
    pub(crate) async fn changed(&self, uplink: &Uplink) -> Change {
        let mut ports = self.ports();
        loop {
            if let Some(change) = change(uplink, ports.borrow_and_update().get(&uplink.index)) {
                return change;
            }
            // The sender lives as long as the tasks behind it, which never end.
            if ports.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// What a port's present state means for the uplink over it. A lease that only lasts longer is no change.
fn change(uplink: &Uplink, port: Option<&Port>) -> Option<Change> {
    let ip = uplink.coordinator.ip();
    let held = port.filter(|port| port.carrier).map(|port| &port.addresses);
    let address = |addresses: &Addresses| addresses.like(ip).map(|setup| setup.address.addr());
    let Some(now) = held.filter(|now| address(now) == address(&uplink.addresses)) else { return Some(Change::Lost) };
    let way = |addresses: &Addresses| {
        addresses.iter().map(|s| (s.address, s.routes.clone(), s.nameservers.clone())).collect::<Vec<_>>()
    };
    (way(now) != way(&uplink.addresses)).then(|| Change::Renewed(now.clone()))
}

/// The routes of the uplink, with their metrics: its default routes, and the way to the coordinator.
fn routes_of(addresses: &Addresses, coordinator: IpAddr) -> Vec<(Route, u32)> {
    let default = addresses.iter().flat_map(|setup| &setup.routes).filter(|route| route.is_default());
    // Without a known way the kernel has one of its own, such as a router's: it has just been used.
    let way = addresses.like(coordinator).and_then(|setup| setup.way_to(coordinator));
    default.map(|route| (*route, DEFAULT_METRIC)).chain(way.map(|route| (route, COORDINATOR_METRIC))).collect()
}

/// How long others are tried before a port. Without a choice there is nothing to wait for.
fn wait<'a>(port: &Port, boot_port: Option<MacAddr>, mut all: impl Iterator<Item = &'a Port>) -> Duration {
    match boot_port {
        Some(mac) if mac == port.mac || mac == port.permanent_mac => Duration::ZERO,
        _ if port.usb && all.any(|other| !other.usb) => USB_WAIT,
        Some(_) => HEAD_START,
        None => Duration::ZERO,
    }
}

fn usable(port: &Port) -> bool {
    port.carrier && port.addresses.iter().next().is_some()
}

fn missing(port: &Port) -> String {
    match (port.carrier, &port.trouble) {
        (false, _) => "no carrier; check the cable".into(),
        (true, Some(trouble)) => format!("no address; {trouble}"),
        (true, None) if port.unanswered == 0 => "no address yet".into(),
        (true, None) => format!("no address; no DHCP server has answered {} questions", port.unanswered),
    }
}

/// The address of the first of these hosts that takes a connection.
async fn connect(device: &str, hops: &[(impl AsRef<str> + Sync, u16)], held: &Addresses) -> Result<SocketAddr, String> {
    let mut problems = Vec::new();
    for (host, port) in hops {
        match connect_host(device, host.as_ref(), *port, held).await {
            Ok(address) => return Ok(address),
            Err(why) => problems.push(why),
        }
    }
    Err(problems.join("; "))
}

async fn connect_host(device: &str, host: &str, port: u16, held: &Addresses) -> Result<SocketAddr, String> {
    let found = resolve(host, port, &held.nameservers()).await?;
    let mut problem = match (&held.v4, &held.v6) {
        (Some(_), None) => format!("{host} has no IPv4 address, and the port has no other"),
        (None, Some(_)) => format!("{host} has no IPv6 address, and the port has no other"),
        _ => format!("{host} has no address"),
    };
    for address in found.into_iter().filter(|address| held.like(address.ip()).is_some()).take(4) {
        match connect_one(device, address).await {
            Ok(()) => return Ok(address),
            Err(why) => problem = format!("{address}: {why}"),
        }
    }
    Err(problem)
}

async fn connect_one(device: &str, address: SocketAddr) -> Result<(), String> {
    let socket =
        if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(|e| e.to_string())?;
    socket.bind_device(Some(device.as_bytes())).map_err(|e| e.to_string())?;
    match tokio::time::timeout(CONNECT_LIMIT, socket.connect(address)).await {
        // The connection itself is of no use: the session makes its own, over the routes set meanwhile.
        Ok(Ok(_stream)) => Ok(()),
        Ok(Err(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
            Err("connection refused; check that the coordinator, or the proxy to it, runs there".into())
        }
        Ok(Err(e)) => Err(e.to_string()),
        Err(_elapsed) => Err(format!("no answer in {} s; check routes and firewalls", CONNECT_LIMIT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::setup::Setup;
    use super::*;

    fn setup(address: &str, routes: &[(&str, &str)], nameservers: &[&str]) -> Setup {
        let routes = routes.iter().map(|(to, via)| Route { to: to.parse().unwrap(), via: Some(via.parse().unwrap()) });
        let nameservers = nameservers.iter().map(|server| server.parse().unwrap()).collect();
        Setup { address: address.parse().unwrap(), routes: routes.collect(), nameservers, mtu: None }
    }

    fn v4(address: &str, routes: &[(&str, &str)], nameservers: &[&str]) -> Addresses {
        Addresses { v4: Some(setup(address, routes, nameservers)), v6: None }
    }

    fn port(mac: MacAddr, usb: bool, addresses: Addresses) -> Port {
        let (coordinators, coordinators_v6) = (Vec::new(), Vec::new());
        Port {
            name: "eth0".into(),
            mac,
            permanent_mac: mac,
            usb,
            carrier: true,
            addresses,
            coordinators,
            coordinators_v6,
            unanswered: 0,
            trouble: None,
        }
    }

    const ROUTES: &[(&str, &str)] = &[("0.0.0.0/0", "10.0.2.1"), ("172.16.0.0/12", "10.0.2.9")];

    #[test]
    fn only_another_way_is_a_change_of_the_uplink() {
        let coordinator = "8.8.8.8:7443".parse().unwrap();
        let held = v4("10.0.2.15/24", ROUTES, &[]);
        let uplink = Uplink { index: 2, name: "eth0".into(), coordinator, addresses: held.clone(), routes: Vec::new() };
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let port = |addresses| port(mac, false, addresses);
        let longer = Addresses { v4: held.v4.clone().map(|v4| Setup { mtu: Some(1500), ..v4 }), v6: None };
        assert_eq!(change(&uplink, Some(&port(longer))), None);
        let others = [
            v4("10.0.2.15/24", ROUTES, &["10.0.2.53"]),
            v4("10.0.2.15/24", &ROUTES[1..], &[]),
            Addresses { v6: Some(setup("2001:db8::7/64", &[], &[])), ..held.clone() },
        ];
        for other in others {
            assert_eq!(change(&uplink, Some(&port(other.clone()))), Some(Change::Renewed(other)));
        }
        let dark = Port { carrier: false, ..port(held) };
        let other = port(v4("10.0.2.16/24", ROUTES, &[]));
        for lost in [Some(&other), Some(&port(Addresses::default())), Some(&dark), None] {
            assert_eq!(change(&uplink, lost), Some(Change::Lost));
        }
    }

    #[test]
    fn a_port_on_usb_waits_for_the_others() {
        let [card, usb] =
            [(1, false), (2, true)].map(|(n, usb)| port(MacAddr([2, 0, 0, 0, 0, n]), usb, <_>::default()));
        let both = [card.clone(), usb.clone()];
        let of = |port: &Port, boot: Option<&Port>, all: &[Port]| wait(port, boot.map(|p| p.mac), all.iter());
        let zero = Duration::ZERO;
        assert_eq!((of(&card, None, &both), of(&usb, None, &both)), (zero, USB_WAIT));
        assert_eq!((of(&card, Some(&usb), &both), of(&usb, Some(&usb), &both)), (HEAD_START, zero));
        assert_eq!((of(&card, Some(&card), &both), of(&usb, Some(&card), &both)), (zero, USB_WAIT));
        assert_eq!(of(&usb, None, std::slice::from_ref(&usb)), zero, "there is no other");
    }

    #[test]
    fn the_way_to_the_coordinator_comes_first() {
        let both = Addresses {
            v6: Some(setup("2001:db8::7/64", &[("::/0", "fe80::1")], &[])),
            ..v4("10.0.2.15/24", ROUTES, &[])
        };
        let shown = |coordinator: &str| {
            let routes = routes_of(&both, coordinator.parse().unwrap()).into_iter();
            routes.map(|(r, metric)| format!("{} {} {metric}", r.to, r.via.unwrap())).collect::<Vec<_>>()
        };
        let default = ["0.0.0.0/0 10.0.2.1 50", "::/0 fe80::1 50"];
        assert_eq!(shown("172.20.0.1"), [&default[..], &["172.20.0.1/32 10.0.2.9 10"]].concat());
        assert_eq!(shown("2001:4860::8"), [&default[..], &["2001:4860::8/128 fe80::1 10"]].concat());
    }
}
