//! Which Ethernet address is behind an IP address: by the kernel's neighbour tables, else by our own leases.
//!
//! Good enough to name a machine in a log, to serve what is not secret, and to refuse hosts that are recognisably
//! others; never a proof of identity.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::TryStreamExt as _;
use landfall_api::MacAddr;
use landfall_edge::forwarded::Via;
use landfall_edge::gate::count_hosts_of;
use nix::ifaddrs::getifaddrs;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute};

use super::dhcp::service::Leases;
use super::dhcp::v6::address::Link;

/// The kernel's table of IPv4. That of IPv6 is in no file; it is asked for by netlink.
const TABLE: &str = "/proc/net/arp";

/// How long the kernel may take to say who its IPv6 neighbours are.
const LIMIT: Duration = Duration::from_secs(1);

/// The lookup; clones share what they know.
#[derive(Debug, Clone)]
pub struct Neighbours {
    served: Arc<OnceLock<Served>>,
    /// The link on which DHCPv6 gives out every address.
    link: Arc<OnceLock<Link>>,
    table: PathBuf,
}

/// The link that the full DHCP server serves.
#[derive(Debug)]
struct Served {
    interface: String,
    leases: Leases,
}

/// The host at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// A host behind a router or relay, or this host itself.
    Unknown,
    /// The machine with this Ethernet address.
    Mac(MacAddr),
    /// The same, on the link where we give out every address, and we did not give it this one.
    Unleased(MacAddr),
    /// A host on the link where DHCPv6 gives out every address, whose port the kernel does not name.
    Stray,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::with_table(TABLE.into())
    }
}

impl Neighbours {
    /// The same with another file in place of the kernel's table.
    pub fn with_table(table: PathBuf) -> Self {
        Self { served: Arc::default(), link: Arc::default(), table }
    }

    /// Makes the full DHCP server's leases known, and the interface that it serves. Only the first call counts: there is one
    /// server.
    pub fn learn(&self, interface: &str, leases: Leases) {
        if self.served.set(Served { interface: interface.to_owned(), leases }).is_err() {
            tracing::debug!(service = "boot", "leases are known already");
        }
    }

    /// Makes the link known whose addresses DHCPv6 gives out. Only the first call counts.
    pub fn learn_link(&self, link: Link) {
        if self.link.set(link).is_err() {
            tracing::debug!(service = "boot", "the link is known already");
        }
        count_hosts_of(link.own);
    }

    /// Who is behind the other end of a connection. Of one that a standby forwards, this host's own tables say nothing: the standby is
    /// asked by the client, and may be elsewhere.
    pub async fn behind(&self, peer: SocketAddr, via: Via) -> Behind {
        match (peer.ip().to_canonical(), via) {
            (IpAddr::V4(address), Via::Standby(Some(found))) => {
                let device = link_of(address.into()).unwrap_or_default();
                self.behind_v4(address, Some((found, device)))
            }
            (IpAddr::V6(address), Via::Standby(Some(found))) => self.behind_v6(address, Some(found)),
            // From this host's own links, by a standby elsewhere: only a host that hides from this one has a reason to.
            (address, Via::Standby(None)) if link_of(address).is_some() => Behind::Stray,
            (_, Via::Standby(None)) => Behind::Unknown,
            (IpAddr::V4(address), Via::Itself) => self.behind_v4(address, self.neighbour(address)),
            (IpAddr::V6(address), Via::Itself) if address.is_loopback() || is_own(address) => Behind::Unknown,
            (IpAddr::V6(address), Via::Itself) => {
                let scope = if let SocketAddr::V6(peer) = peer { peer.scope_id() } else { 0 };
                let found = match tokio::time::timeout(LIMIT, in_kernel(address, scope)).await {
                    Ok(Ok(found)) => found,
                    Ok(Err(error)) => {
                        tracing::warn!(service = "boot", %error, "cannot read the kernel's IPv6 neighbours");
                        None
                    }
                    Err(_) => None,
                };
                self.behind_v6(address, found)
            }
        }
    }

    /// Where DHCPv6 is given in full, every machine is on its link: there are no relays, and no router makes a host one of ours.
    fn behind_v6(&self, address: Ipv6Addr, found: Option<MacAddr>) -> Behind {
        match (self.link.get(), found) {
            (None, None) => Behind::Unknown,
            (None, Some(mac)) => Behind::Mac(mac),
            (Some(_), None) => Behind::Stray,
            (Some(link), Some(mac)) if link.shows(address, mac) => Behind::Mac(mac),
            (Some(_), Some(mac)) => Behind::Unleased(mac),
        }
    }

    /// Without procfs, or behind a router, no host is a neighbour.
    fn neighbour(&self, address: Ipv4Addr) -> Option<(MacAddr, String)> {
        in_table(&std::fs::read_to_string(&self.table).ok()?, address)
    }

    /// `found`: the neighbour with that address, and the interface of this host on whose link it is.
    fn behind_v4(&self, address: Ipv4Addr, found: Option<(MacAddr, String)>) -> Behind {
        let served = self.served.get();
        let leased = served.and_then(|served| served.leases.holder(address));
        match (found, leased) {
            (None, None) => Behind::Unknown,
            // Behind a relay.
            (None, Some(holder)) => Behind::Mac(holder),
            (Some((mac, device)), None) if served.is_some_and(|served| served.interface == device) => {
                Behind::Unleased(mac)
            }
            // Also where another port has the lease: this one uses the address.
            (Some((mac, _)), _) => Behind::Mac(mac),
        }
    }

    /// The Ethernet address behind the other end of a connection, if it is on one of our links.
    pub async fn mac(&self, peer: SocketAddr, via: Via) -> Option<MacAddr> {
        match self.behind(peer, via).await {
            Behind::Unknown | Behind::Stray => None,
            Behind::Mac(mac) | Behind::Unleased(mac) => Some(mac),
        }
    }
}

/// The interface of this host on whose network an address is.
fn link_of(address: IpAddr) -> Option<String> {
    let is_of = |address: &[u8], own: &[u8], mask: &[u8]| {
        address.iter().zip(own).zip(mask).all(|((address, own), mask)| address & mask == own & mask)
    };
    getifaddrs().ok()?.find_map(|one| {
        let (own, mask) = (one.address?, one.netmask?);
        let is_on_it = match address {
            IpAddr::V4(address) => {
                let (own, mask) = (own.as_sockaddr_in()?.ip(), mask.as_sockaddr_in()?.ip());
                is_of(&address.octets(), &own.octets(), &mask.octets())
            }
            IpAddr::V6(address) => {
                let (own, mask) = (own.as_sockaddr_in6()?.ip(), mask.as_sockaddr_in6()?.ip());
                is_of(&address.octets(), &own.octets(), &mask.octets())
            }
        };
        is_on_it.then_some(one.interface_name)
    })
}

/// Whether this host itself has the address.
fn is_own(address: Ipv6Addr) -> bool {
    let Ok(mut all) = getifaddrs() else { return false };
    all.any(|one| {
        one.address.and_then(|found| found.as_sockaddr_in6().map(|found| found.ip() == address)) == Some(true)
    })
}

/// The Ethernet address that the kernel itself sends to for this address; of a link-local one, on the interface with this number.
async fn in_kernel(address: Ipv6Addr, scope: u32) -> Result<Option<MacAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    // It ends with the handle.
    tokio::spawn(connection);
    let mut all = handle.neighbours().get().set_address_family(AddressFamily::Inet6).execute();
    while let Some(neighbour) = all.try_next().await? {
        let (mut at, mut mac) = (None, None);
        for attribute in &neighbour.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => at = Some(*found),
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(MacAddr),
                _ => {}
            }
        }
        let is_there = scope == 0 || neighbour.header.ifindex == scope;
        if is_there && at == Some(address) && mac.is_some_and(|mac| mac.0 != [0; 6]) {
            return Ok(mac);
        }
    }
    Ok(None)
}

/// `IP address  HW type  Flags  HW address  Mask  Device`, one neighbour a line: the address and the device.
fn in_table(table: &str, address: Ipv4Addr) -> Option<(MacAddr, String)> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let found = fields.next()?.parse::<Ipv4Addr>().ok()? == address;
        let mac = fields.nth(2)?.parse::<MacAddr>().ok()?;
        let device = fields.nth(1)?.to_owned();
        // An unresolved entry has all zeroes.
        (found && mac.0 != [0; 6]).then_some((mac, device))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_found_and_an_unresolved_one_is_not() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.77.0.100      0x1         0x2         52:54:00:00:00:01     *        br0\n\
            10.77.0.101      0x1         0x0         00:00:00:00:00:00     *        br0\n";
        let found = Some(("52:54:00:00:00:01".parse().unwrap(), "br0".to_owned()));
        assert_eq!(in_table(table, Ipv4Addr::new(10, 77, 0, 100)), found);
        assert_eq!(in_table(table, Ipv4Addr::new(10, 77, 0, 101)), None);
        assert_eq!(in_table(table, Ipv4Addr::new(10, 77, 0, 10)), None);
    }

    #[test]
    fn an_address_that_we_did_not_lease_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("arp");
        let line = |last: u8, device: &str| format!("10.77.0.{last} 0x1 0x2 52:54:00:00:00:{last:02x} * {device}\n");
        std::fs::write(&table, format!("IP address\n{}{}{}", line(1, "br0"), line(2, "br0"), line(3, "br1"))).unwrap();
        let neighbours = Neighbours::with_table(table);
        let of = |last| {
            let address = Ipv4Addr::new(10, 77, 0, last);
            neighbours.behind_v4(address, neighbours.neighbour(address))
        };
        let mac = |last| MacAddr([0x52, 0x54, 0, 0, 0, last]);
        assert_eq!((of(1), of(9)), (Behind::Mac(mac(1)), Behind::Unknown), "no server of ours");
        let leased = |last| Ipv4Addr::new(10, 77, 0, last);
        neighbours.learn("br0", Leases::of([(leased(2), mac(7)), (leased(8), mac(8))]));
        assert_eq!(of(1), Behind::Unleased(mac(1)));
        assert_eq!(of(2), Behind::Mac(mac(2)), "another host took over the address of a lease");
        assert_eq!(of(8), Behind::Mac(mac(8)), "behind a relay");
        assert_eq!(of(3), Behind::Mac(mac(3)), "another link is not ours");
        assert_eq!(of(9), Behind::Unknown, "behind a router");
    }

    #[tokio::test]
    async fn a_standby_says_who_is_on_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let table = directory.path().join("arp");
        std::fs::write(&table, "IP address\n10.77.0.1 0x1 0x2 52:54:00:00:00:01 * br0\n").unwrap();
        let (neighbours, mac) = (Neighbours::with_table(table), |last| MacAddr([0x52, 0x54, 0, 0, 0, last]));
        // The one link that every host has.
        neighbours.learn("lo", Leases::of([([10, 77, 0, 8].into(), mac(8))]));
        let of = async |address: &str, found| {
            neighbours.behind(SocketAddr::new(address.parse().unwrap(), 1), Via::Standby(found)).await
        };
        assert_eq!(of("10.77.0.1", None).await, Behind::Unknown, "this host's table is of other links");
        assert_eq!(of("10.77.0.1", Some(mac(9))).await, Behind::Mac(mac(9)));
        assert_eq!(of("127.0.0.7", Some(mac(7))).await, Behind::Unleased(mac(7)), "on the link that this host serves");
        assert_eq!(of("10.77.0.8", Some(mac(8))).await, Behind::Mac(mac(8)));
        assert_eq!(of("127.0.0.7", None).await, Behind::Stray, "it does not ask this host, whose link it is on");
        assert_eq!(of("::1", None).await, Behind::Stray);
        assert_eq!(of("10.77.0.8", None).await, Behind::Unknown, "a lease alone is no word of this client");
    }

    #[test]
    fn an_ipv6_host_is_its_port_by_table_and_address() {
        let neighbours = Neighbours::default();
        let (mac, other) = (MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]), MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x57]));
        let of = |address: &str, found| neighbours.behind_v6(address.parse().unwrap(), found);
        assert_eq!(
            (of("fd77::9", None), of("fd77::9", Some(mac))),
            (Behind::Unknown, Behind::Mac(mac)),
            "no server of ours"
        );
        let link = Link { own: "fd77::1".parse().unwrap(), prefix_length: 64 };
        neighbours.learn_link(link);
        let given = link.address(mac, 7).to_string();
        for address in [given.as_str(), "fd77::5054:ff:fe12:3456", "fe80::5054:ff:fe12:3456"] {
            assert_eq!(of(address, Some(mac)), Behind::Mac(mac), "{address}");
            assert_eq!(of(address, Some(other)), Behind::Unleased(other), "{address} is another's");
            assert_eq!(of(address, None), Behind::Stray, "{address} is in no table");
        }
        assert_eq!(of("fd77::9", Some(mac)), Behind::Unleased(mac), "one of its own choice");
        assert_eq!(of("2001:db8::9", None), Behind::Stray, "from behind a router that a host made itself");
    }

    #[tokio::test]
    async fn this_host_is_no_machine() {
        let neighbours = Neighbours::default();
        neighbours.learn_link(Link { own: "fd77::1".parse().unwrap(), prefix_length: 64 });
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 1);
        assert_eq!(neighbours.behind(at("::1"), Via::Itself).await, Behind::Unknown);
        assert_eq!(
            neighbours.behind(at("2001:db8::9"), Via::Itself).await,
            Behind::Stray,
            "the kernel's table has no such neighbour"
        );
    }
}
