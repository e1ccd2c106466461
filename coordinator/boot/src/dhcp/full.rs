//! The full DHCP server's decisions (RFC 2131): the only server of its network, so what it does not know it refuses.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use dhcproto::v4::{DhcpOption, Flags, MessageType};
use landfall_api::MacAddr;

use super::bootfile::BootServer;
use super::leases::{Holder, Lease, Pool};
use super::packet::{Client, Request};
use super::reply::{Destination, Reply};
use super::{Silence, Standing};
use crate::policy::Reservations;

/// The lease of an unknown machine: long enough to identify it.
pub const UNKNOWN_LEASE: Duration = Duration::from_secs(600);

/// What the server tells its clients about their network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// An address in it.
    pub inside: Ipv4Addr,
    /// Option 1.
    pub netmask: Ipv4Addr,
    /// Option 3.
    pub router: Option<Ipv4Addr>,
    /// Option 6.
    pub dns: Vec<Ipv4Addr>,
    /// Option 143: the coordinators' addresses, `https://HOST:PORT`, for those who ask; this one's first.
    pub coordinators: Vec<String>,
    /// How long an address is given for; at most `u32::MAX` seconds.
    pub lease: Duration,
}

impl Network {
    /// How long this client has its address.
    fn lease_of(&self, client: Holder<'_>) -> Duration {
        if client.unknown { self.lease.min(UNKNOWN_LEASE) } else { self.lease }
    }

    /// Whether the address is in it.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = u32::from(self.netmask);
        u32::from(address) & mask == u32::from(self.inside) & mask
    }

    /// The subnet's own and its broadcast address: no machine may have either.
    pub fn ends(&self) -> [Ipv4Addr; 2] {
        let (mask, inside) = (u32::from(self.netmask), u32::from(self.inside));
        [Ipv4Addr::from(inside & mask), Ipv4Addr::from(inside | !mask)]
    }
}

/// A subnet with its addresses.
#[derive(Debug, Clone)]
pub struct Subnet {
    /// What its clients learn of it.
    pub network: Network,
    /// The addresses.
    pub pool: Pool,
}

/// Every subnet served: the coordinator's own link, then those behind relays.
#[derive(Debug, Clone)]
pub struct Subnets {
    own: Subnet,
    relayed: Vec<Subnet>,
}

impl Subnets {
    /// The link's, and those behind relays.
    pub const fn new(own: Subnet, relayed: Vec<Subnet>) -> Self {
        Self { own, relayed }
    }

    fn all(&self) -> impl Iterator<Item = &Subnet> {
        std::iter::once(&self.own).chain(&self.relayed)
    }

    /// Grows whenever [`Subnets::kept`] has changed.
    pub fn revision(&self) -> u64 {
        self.all().map(|subnet| subnet.pool.revision()).sum()
    }

    /// What is to be kept over a restart.
    pub fn kept(&self) -> BTreeMap<Ipv4Addr, Lease> {
        self.all().flat_map(|subnet| subnet.pool.kept()).collect()
    }

    /// Who has the address now, if it is leased.
    pub fn holder(&self, address: Ipv4Addr, now: u64) -> Option<MacAddr> {
        self.all().find_map(|subnet| subnet.pool.holder(address, now))
    }

    /// The client's subnet: the one that its relay names, else the one of the lease that it renews, else the link's own. An address
    /// by itself proves nothing: any host can name one.
    fn of(&mut self, request: &Request, now: u64) -> Result<&mut Subnet, Silence> {
        let relay = request.link();
        let renewed = |subnet: &Subnet| subnet.pool.holder(request.ciaddr, now) == Some(request.mac);
        let found = match relay {
            Some(relay) if self.own.network.contains(relay) => None,
            Some(relay) => {
                let found = self.relayed.iter().position(|subnet| subnet.network.contains(relay));
                Some(found.ok_or(Silence::Relayed(relay))?)
            }
            None => self.relayed.iter().position(renewed),
        };
        Ok(found.map_or(&mut self.own, |n| &mut self.relayed[n]))
    }
}

/// Answers a packet that came to port 67, changing the pool of its subnet accordingly.
///
/// # Errors
/// [`Silence`] with the reason.
pub fn answer(
    request: &Request, standing: Standing, subnets: &mut Subnets, reservations: &dyn Reservations, server: &BootServer,
    now: u64,
) -> Result<Reply, Silence> {
    standing.check()?;
    let Subnet { network, pool } = subnets.of(request, now)?;
    let client = Holder { mac: request.mac, unknown: standing != Standing::Known, reservations };
    match request.kind {
        MessageType::Discover => {
            let address = pool.offer(client, request.requested, now).ok_or(Silence::NoAddress)?;
            lease_reply(request, MessageType::Offer, (address, network.lease_of(client)), network, server)
        }
        MessageType::Request => on_request(request, client, pool, network, server, now),
        MessageType::Inform => {
            let mut reply = Reply::new(request, MessageType::Ack, server, destination(request, network, server));
            add_network(&mut reply, request, network);
            add_boot(&mut reply, request, server)?;
            Ok(reply)
        }
        MessageType::Decline => {
            let ours = request.server_id.is_none_or(|id| id == server.address);
            if let Some(address) = request.requested.filter(|_| ours) {
                pool.decline(request.mac, address, now);
            }
            Err(Silence::Kind)
        }
        MessageType::Release => {
            pool.release(request.mac, request.ciaddr);
            Err(Silence::Kind)
        }
        _ => Err(Silence::Kind),
    }
}

fn on_request(
    request: &Request, client: Holder<'_>, pool: &mut Pool, network: &Network, server: &BootServer, now: u64,
) -> Result<Reply, Silence> {
    if let Some(id) = request.server_id
        && id != server.address
    {
        pool.withdraw(request.mac);
        return Err(Silence::OtherServer(id));
    }
    // Selecting and rebooting clients name the address in option 50, renewing ones have it already.
    let Some(address) = request.requested.or(Some(request.ciaddr).filter(|a| !a.is_unspecified())) else {
        return nak(request, network, server);
    };
    let life = network.lease_of(client);
    if !pool.bind(client, address, life, now) {
        return nak(request, network, server);
    }
    lease_reply(request, MessageType::Ack, (address, life), network, server)
}

fn lease_reply(
    request: &Request, kind: MessageType, (address, life): (Ipv4Addr, Duration), network: &Network, server: &BootServer,
) -> Result<Reply, Silence> {
    let mut reply = Reply::new(request, kind, server, destination(request, network, server));
    reply.message.set_yiaddr(address);
    let seconds = u32::try_from(life.as_secs()).unwrap_or(u32::MAX);
    let options = reply.message.opts_mut();
    options.insert(DhcpOption::AddressLeaseTime(seconds));
    options.insert(DhcpOption::Renewal(seconds / 2));
    options.insert(DhcpOption::Rebinding(seconds / 8 * 7));
    add_network(&mut reply, request, network);
    add_boot(&mut reply, request, server)?;
    Ok(reply)
}

fn add_network(reply: &mut Reply, request: &Request, network: &Network) {
    if request.asks_coordinator {
        reply.add_coordinators(&network.coordinators);
    }
    let options = reply.message.opts_mut();
    options.insert(DhcpOption::SubnetMask(network.netmask));
    if let Some(router) = network.router {
        options.insert(DhcpOption::Router(vec![router]));
    }
    if !network.dns.is_empty() {
        options.insert(DhcpOption::DomainNameServer(network.dns.clone()));
    }
}

/// Boot options for netbooting clients. A client without a loader here still gets its address: its firmware then
/// reports that there is nothing to boot, and continues with the disk.
fn add_boot(reply: &mut Reply, request: &Request, server: &BootServer) -> Result<(), Silence> {
    if request.client == Client::Ordinary {
        return Ok(());
    }
    match server.boot_file(request.client, request.arch, request.mac) {
        Ok(file) => reply.add_boot(request, &file, server, true),
        Err(reason) => {
            tracing::warn!(service = "dhcp", mac = %request.mac, %reason, "the client gets an address, but there is \
                no boot file for it");
            Ok(())
        }
    }
}

/// A refusal: the client starts over at once, instead of using an address that is not its own.
fn nak(request: &Request, network: &Network, server: &BootServer) -> Result<Reply, Silence> {
    let to = match request.giaddr {
        relay if !relay.is_unspecified() => Destination::Relay(relay),
        _ if is_far(request, network, server) => Destination::Client(request.ciaddr),
        // Always broadcast: the client's address is exactly what is in doubt.
        _ => Destination::Broadcast,
    };
    let mut reply = Reply::new(request, MessageType::Nak, server, to);
    reply.message.set_ciaddr(Ipv4Addr::UNSPECIFIED);
    if matches!(to, Destination::Relay(_)) {
        // RFC 2131, 4.3.2: the relay must broadcast it too.
        reply.message.set_flags(Flags::new(request.flags).set_broadcast());
    }
    Ok(reply)
}

/// Whether a client that renews by itself is on another link, where no broadcast of ours arrives.
fn is_far(request: &Request, network: &Network, server: &BootServer) -> bool {
    let on_link = network.contains(server.address) && network.contains(request.ciaddr);
    !request.ciaddr.is_unspecified() && !on_link
}

/// Broadcast reaches every client that has no address yet, also those that did not ask for it; sending to an address that
/// the client does not answer ARP for would need raw sockets and gains nothing on a lab network.
fn destination(request: &Request, network: &Network, server: &BootServer) -> Destination {
    if !request.giaddr.is_unspecified() {
        Destination::Relay(request.giaddr)
    } else if is_far(request, network, server) || !request.ciaddr.is_unspecified() && !request.broadcast {
        Destination::Client(request.ciaddr)
    } else {
        Destination::Broadcast
    }
}
