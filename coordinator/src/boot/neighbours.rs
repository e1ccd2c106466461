//! Which Ethernet address is behind an IP address: by our own leases, else by the kernel's neighbour table.
//!
//! Good enough to name a machine in a log and to serve what is not secret; never a proof of identity.

use std::{
    net::Ipv4Addr,
    sync::{Arc, OnceLock},
};

use landfall_api::MacAddr;

use super::dhcp::service::Leases;

/// The lookup; clones share what they know.
#[derive(Debug, Clone, Default)]
pub struct Neighbours {
    leases: Arc<OnceLock<Leases>>,
}

impl Neighbours {
    /// Makes the full DHCP server's leases known. Only the first call counts: there is one server.
    pub fn learn(&self, leases: Leases) {
        if self.leases.set(leases).is_err() {
            tracing::debug!(service = "boot", "leases are known already");
        }
    }

    /// Who holds the address by our own leases; `None` where we gave none.
    pub fn lease_holder(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.leases.get()?.holder(address)
    }

    /// The Ethernet address behind an IP address, if it is on one of our links.
    pub fn mac(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.lease_holder(address).or_else(|| {
            // Without procfs, or behind a router, nobody is a neighbour.
            let table = std::fs::read_to_string("/proc/net/arp").ok()?;
            in_table(&table, address)
        })
    }
}

/// `IP address  HW type  Flags  HW address  Mask  Device`, one neighbour a line.
fn in_table(table: &str, address: Ipv4Addr) -> Option<MacAddr> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let found = fields.next()?.parse::<Ipv4Addr>().ok()? == address;
        let mac = fields.nth(2)?.parse::<MacAddr>().ok()?;
        // An unresolved entry has all zeroes.
        (found && mac.0 != [0; 6]).then_some(mac)
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
        assert_eq!(in_table(table, Ipv4Addr::new(10, 77, 0, 100)), Some("52:54:00:00:00:01".parse().unwrap()));
        assert_eq!(in_table(table, Ipv4Addr::new(10, 77, 0, 101)), None);
        assert_eq!(in_table(table, Ipv4Addr::new(10, 77, 0, 10)), None);
    }
}
