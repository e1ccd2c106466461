//! Which Ethernet address is behind an IP address: by the kernel's neighbour tables, else by our own leases.
//!
//! Good enough to name a machine in a log, to serve what is not secret, and to refuse hosts that are recognisably
//! others; never a proof of identity.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::TryStreamExt as _;
use landfall_api::MacAddr;
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
    served: Arc<ArcSwapOption<Served>>,
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

    /// Makes the full DHCP server's leases known, and the interface that it serves.
    pub fn learn(&self, interface: &str, leases: Leases) {
        self.served.store(Some(Arc::new(Served { interface: interface.to_owned(), leases })));
    }

    /// The full DHCP server of this host has ended: others may give out addresses.
    pub fn forget(&self) {
        self.served.store(None);
    }

    /// Makes the link known whose addresses DHCPv6 gives out. Only the first call counts.
    pub fn learn_link(&self, link: Link) {
        if self.link.set(link).is_err() {
            tracing::debug!(service = "boot", "the link is known already");
        }
        count_hosts_of(link.own);
    }

    /// Who is behind the other end of a connection.
    pub async fn behind(&self, peer: SocketAddr) -> Behind {
        match peer.ip().to_canonical() {
            IpAddr::V4(address) => self.behind_v4(address),
            IpAddr::V6(address) if address.is_loopback() || is_own(address) => Behind::Unknown,
            IpAddr::V6(address) => {
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

    fn behind_v4(&self, address: Ipv4Addr) -> Behind {
        // Without procfs, or behind a router, no host is a neighbour.
        let found = std::fs::read_to_string(&self.table).ok().and_then(|table| in_table(&table, address));
        let served = self.served.load();
        let leased = served.as_ref().and_then(|served| served.leases.holder(address));
        match (found, leased) {
            (None, None) => Behind::Unknown,
            // Behind a relay.
            (None, Some(holder)) => Behind::Mac(holder),
            (Some((mac, device)), None) if served.as_ref().is_some_and(|served| served.interface == device) => {
                Behind::Unleased(mac)
            }
            // Also where another port has the lease: this one uses the address.
            (Some((mac, _)), _) => Behind::Mac(mac),
        }
    }

    /// The Ethernet address behind the other end of a connection, if it is on one of our links.
    pub async fn mac(&self, peer: SocketAddr) -> Option<MacAddr> {
        match self.behind(peer).await {
            Behind::Unknown | Behind::Stray => None,
            Behind::Mac(mac) | Behind::Unleased(mac) => Some(mac),
        }
    }
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
        let (of, mac) =
            (|last| neighbours.behind_v4(Ipv4Addr::new(10, 77, 0, last)), |last| MacAddr([0x52, 0x54, 0, 0, 0, last]));
        assert_eq!((of(1), of(9)), (Behind::Mac(mac(1)), Behind::Unknown), "no server of ours");
        let leased = |last| Ipv4Addr::new(10, 77, 0, last);
        neighbours.learn("br0", Leases::of([(leased(2), mac(7)), (leased(8), mac(8))]));
        assert_eq!(of(1), Behind::Unleased(mac(1)));
        assert_eq!(of(2), Behind::Mac(mac(2)), "another host took over the address of a lease");
        assert_eq!(of(8), Behind::Mac(mac(8)), "behind a relay");
        assert_eq!(of(3), Behind::Mac(mac(3)), "another link is not ours");
        assert_eq!(of(9), Behind::Unknown, "behind a router");
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
        assert_eq!(neighbours.behind(at("::1")).await, Behind::Unknown);
        assert_eq!(
            neighbours.behind(at("2001:db8::9")).await,
            Behind::Stray,
            "the kernel's table has no such neighbour"
        );
    }
}
