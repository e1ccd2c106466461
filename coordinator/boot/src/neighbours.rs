//! Which Ethernet address is behind an IP address: by the kernel's neighbour table, else by our own leases.
//!
//! Good enough to name a machine in a log, to serve what is not secret, and to refuse hosts that are recognisably
//! others; never a proof of identity.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use landfall_api::MacAddr;

use super::dhcp::service::Leases;

/// The kernel's table; of IPv4 only.
const TABLE: &str = "/proc/net/arp";

/// The lookup; clones share what they know.
#[derive(Debug, Clone)]
pub struct Neighbours {
    served: Arc<OnceLock<Served>>,
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
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::with_table(TABLE.into())
    }
}

impl Neighbours {
    /// The same with another file in place of the kernel's table.
    pub fn with_table(table: PathBuf) -> Self {
        Self { served: Arc::default(), table }
    }

    /// Makes the full DHCP server's leases known, and the interface that it serves. Only the first call counts: there is one
    /// server.
    pub fn learn(&self, interface: &str, leases: Leases) {
        if self.served.set(Served { interface: interface.to_owned(), leases }).is_err() {
            tracing::debug!(service = "boot", "leases are known already");
        }
    }

    /// Who is behind an IP address.
    pub fn behind(&self, address: Ipv4Addr) -> Behind {
        let served = self.served.get();
        let leased = served.and_then(|served| served.leases.holder(address));
        // Without procfs, or behind a router, no host is a neighbour.
        let found = std::fs::read_to_string(&self.table).ok().and_then(|table| in_table(&table, address));
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

    /// The Ethernet address behind an IP address, if it is on one of our links.
    pub fn mac(&self, address: Ipv4Addr) -> Option<MacAddr> {
        match self.behind(address) {
            Behind::Unknown => None,
            Behind::Mac(mac) | Behind::Unleased(mac) => Some(mac),
        }
    }
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
            (|last| neighbours.behind(Ipv4Addr::new(10, 77, 0, last)), |last| MacAddr([0x52, 0x54, 0, 0, 0, last]));
        assert_eq!((of(1), of(9)), (Behind::Mac(mac(1)), Behind::Unknown), "no server of ours");
        let leased = |last| Ipv4Addr::new(10, 77, 0, last);
        neighbours.learn("br0", Leases::of([(leased(2), mac(7)), (leased(8), mac(8))]));
        assert_eq!(of(1), Behind::Unleased(mac(1)));
        assert_eq!(of(2), Behind::Mac(mac(2)), "another host took over the address of a lease");
        assert_eq!(of(8), Behind::Mac(mac(8)), "behind a relay");
        assert_eq!(of(3), Behind::Mac(mac(3)), "another link is not ours");
        assert_eq!(of(9), Behind::Unknown, "behind a router");
    }
}
