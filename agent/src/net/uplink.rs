//! The uplink: the one port that the agent uses to reach the coordinator.
//!
//! Every port with an address is tried, bound to its device so that routes of others do not matter; the firmware's own
//! port (`BOOTIF`) gets a head start. The winner's route to the coordinator is then set with a metric below every
//! other, which settles it for all connections (two ports in one subnet included). A renewed lease with other routes or name
//! servers is adopted in mid-session. When the winner loses its carrier or address, or the session gets no answers any
//! more, the choice is made again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use landfall_api::MacAddr;
use tokio::net::TcpSocket;

use super::Network;
use super::dhcp::{Lease, Route};
use super::port::Port;
use super::resolve::{resolve, write_resolv_conf};

/// How long BOOTIF is tried alone.
const HEAD_START: Duration = Duration::from_millis(300);
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
    /// The port's lease, as it was adopted.
    pub(super) lease: Lease,
    routes: Vec<(Route, u32)>,
}

/// What became of the uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its port lost its carrier or its address.
    Lost,
    /// It keeps its address, and the server names other routes or name servers.
    Renewed(Lease),
}

/// Why no port reaches the coordinator: one sentence per port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoUplink(pub(crate) Vec<String>);

impl Network {
    /// Tries every port that has an address, once, and sets routes and name servers for the one that wins. Waits for a
    /// first address, at most `patience`.
    ///
    /// # Errors [`NoUplink`], with the error of each port.
    pub(crate) async fn elect(
        &self, host: &str, port: u16, boot_port: Option<MacAddr>, patience: Duration,
    ) -> Result<Uplink, NoUplink> {
        let mut changes = self.ports();
        // A timeout is not an error here: the errors per port follow below.
        _ = tokio::time::timeout(patience, changes.wait_for(|all| all.values().any(usable))).await;
        let ports = changes.borrow().clone();
        let mut problems: BTreeMap<u32, String> = BTreeMap::new();
        let mut tries = FuturesUnordered::new();
        for (index, candidate) in &ports {
            let Some(lease) = candidate.lease.clone().filter(|_| candidate.carrier) else {
                problems.insert(*index, format!("{}: {}", candidate.name, missing(candidate)));
                continue;
            };
            let first = boot_port.is_none_or(|mac| mac == candidate.mac || mac == candidate.permanent_mac);
            let (name, index) = (candidate.name.clone(), *index);
            tries.push(async move {
                if !first {
                    tokio::time::sleep(HEAD_START).await;
                }
                let answer = connect(&name, host, port, &lease.nameservers).await;
                (index, name, lease, answer)
            });
        }
        while let Some((index, name, lease, answer)) = tries.next().await {
            match answer {
                Ok(coordinator) => return Ok(self.adopt(index, name, &lease, coordinator).await),
                Err(why) => _ = problems.insert(index, format!("{name} ({}): {why}", lease.address)),
            }
        }
        if problems.is_empty() {
            problems.insert(0, "there is no network port".into());
        }
        Err(NoUplink(problems.into_values().collect()))
    }

    async fn adopt(&self, index: u32, name: String, lease: &Lease, coordinator: SocketAddr) -> Uplink {
        let routes = routes_of(lease, coordinator.ip());
        for (route, metric) in &routes {
            if let Err(e) = self.netlink.set_route(index, *route, *metric).await {
                // The port's own routes may do; if not, the session says that it cannot connect.
                tracing::warn!("{name}: {e}");
            }
        }
        if let Err(e) = write_resolv_conf(&self.resolv_conf, &lease.nameservers) {
            tracing::warn!("{}: {e}; names in URLs will not resolve", self.resolv_conf.display());
        }
        Uplink { index, name, coordinator, lease: lease.clone(), routes }
    }

    /// Follows a renewed lease: its routes and name servers take the place of the old.
    pub(crate) async fn follow(&self, old: Uplink, lease: &Lease) -> Uplink {
        let new = self.adopt(old.index, old.name.clone(), lease, old.coordinator).await;
        for (route, metric) in old.routes.iter().filter(|route| !new.routes.contains(route)) {
            self.netlink.remove_route(old.index, *route, *metric).await;
        }
        tracing::info!("{}: the DHCP server names other routes or name servers; they are used from now on", new.name);
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
    let held = port.filter(|port| port.carrier).and_then(|port| port.lease.as_ref());
    let Some(lease) = held.filter(|lease| lease.address == uplink.lease.address) else { return Some(Change::Lost) };
    let way = |lease: &Lease| (lease.prefix, lease.routes.clone(), lease.nameservers.clone());
    (way(lease) != way(&uplink.lease)).then(|| Change::Renewed(lease.clone()))
}

/// The routes of the uplink, with their metrics: the lease's default routes, and the way to the coordinator.
fn routes_of(lease: &Lease, coordinator: IpAddr) -> Vec<(Route, u32)> {
    let mut routes: Vec<(Route, u32)> =
        lease.routes.iter().filter(|r| r.prefix == 0).map(|r| (*r, DEFAULT_METRIC)).collect();
    if let IpAddr::V4(address) = coordinator {
        let gateway = gateway_to(address, lease);
        routes.push((Route { destination: address, prefix: 32, gateway }, COORDINATOR_METRIC));
    }
    routes
}

fn usable(port: &Port) -> bool {
    port.carrier && port.lease.is_some()
}

fn missing(port: &Port) -> String {
    if port.carrier {
        format!("no address; the DHCP server has not answered {} questions", port.unanswered)
    } else {
        "no carrier; check the cable".into()
    }
}

/// The gateway to the coordinator: 0.0.0.0 if it is on the link itself.
fn gateway_to(address: Ipv4Addr, lease: &Lease) -> Ipv4Addr {
    let within = |net: Ipv4Addr, prefix: u8| {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        u32::from(address) & mask == u32::from(net) & mask
    };
    if within(lease.address, lease.prefix) {
        return Ipv4Addr::UNSPECIFIED;
    }
    let best = lease.routes.iter().filter(|r| within(r.destination, r.prefix)).max_by_key(|r| r.prefix);
    best.map_or(Ipv4Addr::UNSPECIFIED, |r| r.gateway)
}

async fn connect(device: &str, host: &str, port: u16, servers: &[Ipv4Addr]) -> Result<SocketAddr, String> {
    let addresses = resolve(host, port, servers).await?;
    let mut problem = format!("{host} has no IPv4 address");
    for address in addresses.into_iter().take(4) {
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
            Err("connection refused; check that the coordinator runs there".into())
        }
        Ok(Err(e)) => Err(e.to_string()),
        Err(_elapsed) => Err(format!("no answer in {} s; check routes and firewalls", CONNECT_LIMIT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        let route = |d: [u8; 4], prefix, g: [u8; 4]| Route { destination: d.into(), prefix, gateway: g.into() };
        Lease {
            address: Ipv4Addr::new(10, 0, 2, 15),
            prefix: 24,
            routes: vec![route([0, 0, 0, 0], 0, [10, 0, 2, 1]), route([172, 16, 0, 0], 12, [10, 0, 2, 9])],
            nameservers: Vec::new(),
            mtu: None,
            server: Ipv4Addr::new(10, 0, 2, 2),
            length: None,
        }
    }

    #[test]
    fn only_another_way_is_a_change_of_the_uplink() {
        let coordinator = "8.8.8.8:7443".parse().unwrap();
        let uplink = Uplink { index: 2, name: "eth0".into(), coordinator, lease: lease(), routes: Vec::new() };
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let port = |lease| Port { name: "eth0".into(), mac, permanent_mac: mac, carrier: true, lease, unanswered: 0 };
        let other_server = Lease { server: Ipv4Addr::new(10, 0, 2, 3), ..lease() };
        assert_eq!(change(&uplink, Some(&port(Some(other_server)))), None);
        let names = Lease { nameservers: vec![Ipv4Addr::new(10, 0, 2, 53)], ..lease() };
        assert_eq!(change(&uplink, Some(&port(Some(names.clone())))), Some(Change::Renewed(names)));
        let gateway = Lease { routes: lease().routes[1..].to_vec(), ..lease() };
        assert_eq!(change(&uplink, Some(&port(Some(gateway.clone())))), Some(Change::Renewed(gateway)));
        let address = Lease { address: Ipv4Addr::new(10, 0, 2, 16), ..lease() };
        let dark = Port { carrier: false, ..port(Some(lease())) };
        for lost in [Some(&port(Some(address))), Some(&port(None)), Some(&dark), None] {
            assert_eq!(change(&uplink, lost), Some(Change::Lost));
        }
    }

    #[test]
    fn the_most_specific_route_leads_to_the_coordinator() {
        let lease = lease();
        assert_eq!(gateway_to(Ipv4Addr::new(10, 0, 2, 2), &lease), Ipv4Addr::UNSPECIFIED);
        assert_eq!(gateway_to(Ipv4Addr::new(172, 20, 0, 1), &lease), Ipv4Addr::new(10, 0, 2, 9));
        assert_eq!(gateway_to(Ipv4Addr::new(8, 8, 8, 8), &lease), Ipv4Addr::new(10, 0, 2, 1));
    }
}
