//! The uplink: the one port that the agent uses to reach the coordinator.
//!
//! Every port with an address is tried, bound to its device so that routes of others do not matter; the firmware's own
//! port (`BOOTIF`) gets a head start. The winner's route to the coordinator is then set with a metric below every
//! other, which settles it for all connections (two ports in one subnet included). When the winner loses its carrier or
//! address, or the session gets no answers any more, the choice is made again.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use landfall_api::MacAddr;
use tokio::net::TcpSocket;

use super::{
    Network,
    dhcp::{Lease, Route},
    port::Port,
    resolve::{resolve, write_resolv_conf},
};

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
    /// Its own address.
    pub(crate) address: Ipv4Addr,
    /// Where the coordinator answered.
    pub(crate) coordinator: SocketAddr,
    /// Name servers of that port's lease.
    pub(crate) nameservers: Vec<Ipv4Addr>,
    routes: Vec<(Route, u32)>,
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
        &self,
        host: &str,
        port: u16,
        boot_port: Option<MacAddr>,
        patience: Duration,
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
        let mut routes: Vec<(Route, u32)> =
            lease.routes.iter().filter(|r| r.prefix == 0).map(|r| (*r, DEFAULT_METRIC)).collect();
        if let IpAddr::V4(address) = coordinator.ip() {
            let gateway = gateway_to(address, lease);
            routes.push((Route { destination: address, prefix: 32, gateway }, COORDINATOR_METRIC));
        }
        for (route, metric) in &routes {
            if let Err(e) = self.netlink.set_route(index, *route, *metric).await {
                // The port's own routes may do; if not, the session says that it cannot connect.
                tracing::warn!("{name}: {e}");
            }
        }
        if let Err(e) = write_resolv_conf(&self.resolv_conf, &lease.nameservers) {
            tracing::warn!("{}: {e}; names in image URLs will not resolve", self.resolv_conf.display());
        }
        Uplink { index, name, address: lease.address, coordinator, nameservers: lease.nameservers.clone(), routes }
    }

    /// Takes the uplink's routes back, before another is chosen.
    pub(crate) async fn release(&self, uplink: &Uplink) {
        for (route, metric) in &uplink.routes {
            self.netlink.remove_route(uplink.index, *route, *metric).await;
        }
    }

    /// Waits until the uplink's port lost its carrier or changed its address.
    pub(crate) async fn lost(&self, uplink: &Uplink) {
        let holds = |port: &Port| port.carrier && port.lease.as_ref().is_some_and(|l| l.address == uplink.address);
        // The sender lives as long as the tasks behind it, which never end.
        _ = self.ports().wait_for(|all| !all.get(&uplink.index).is_some_and(holds)).await;
    }
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

    #[test]
    fn the_most_specific_route_leads_to_the_coordinator() {
        let route = |d: [u8; 4], prefix, g: [u8; 4]| Route { destination: d.into(), prefix, gateway: g.into() };
        let lease = Lease {
            address: Ipv4Addr::new(10, 0, 2, 15),
            prefix: 24,
            routes: vec![route([0, 0, 0, 0], 0, [10, 0, 2, 1]), route([172, 16, 0, 0], 12, [10, 0, 2, 9])],
            nameservers: Vec::new(),
            mtu: None,
            server: Ipv4Addr::new(10, 0, 2, 2),
            length: None,
        };
        assert_eq!(gateway_to(Ipv4Addr::new(10, 0, 2, 2), &lease), Ipv4Addr::UNSPECIFIED);
        assert_eq!(gateway_to(Ipv4Addr::new(172, 20, 0, 1), &lease), Ipv4Addr::new(10, 0, 2, 9));
        assert_eq!(gateway_to(Ipv4Addr::new(8, 8, 8, 8), &lease), Ipv4Addr::new(10, 0, 2, 1));
    }
}
