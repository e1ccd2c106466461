//! The addresses that are given out: which one a port gets.

use std::net::Ipv6Addr;

use landfall_api::MacAddr;

/// The link that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// This coordinator's own address there.
    pub own: Ipv6Addr,
    /// Bits of the prefix that it shares with every host of the link, 48 to 64.
    pub prefix_length: u8,
}

impl Link {
    /// The prefix, with zeros behind it.
    pub fn prefix(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.own.to_bits() & self.mask())
    }

    const fn mask(&self) -> u128 {
        u128::MAX << (128 - self.prefix_length)
    }

    /// Whether an address is in the prefix.
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.own.to_bits()) & self.mask() == 0
    }

    /// The address of a port for one of its clients' numbers (IAID): the upper half of the Ethernet address, 16 bits made of the number, the
    /// lower half. Firmware takes several addresses for one port, each with a number of its own; if two numbers make the same 16 bits, the
    /// same port gets the same address twice.
    pub fn address(&self, mac: MacAddr, number: u32) -> Ipv6Addr {
        let mixed = (number ^ (number >> 16)) & 0xffff;
        let at = |mixed: u32| {
            let [a, b, c, d, e, f] = mac.0;
            let [high, low] = [(mixed >> 8) as u8, mixed as u8];
            let host = u64::from_be_bytes([a, b, c, high, low, d, e, f]);
            // In the coordinator's own network of 64 bits: a client that takes this length for granted reaches it.
            Ipv6Addr::from_bits(self.own.to_bits() >> 64 << 64 | u128::from(host))
        };
        // A person may have given the coordinator such an address.
        Some(at(mixed)).filter(|address| *address != self.own).unwrap_or_else(|| at(mixed ^ 1))
    }

    /// Whether an address may be this port's: one that it was given, or that it made of its Ethernet address.
    pub fn shows(&self, address: Ipv6Addr, mac: MacAddr) -> bool {
        let is_here = self.contains(address) || address.is_unicast_link_local();
        let [.., a, b, c, _, _, d, e, f] = address.octets();
        is_here && (eui64(address) == Some(mac) || self.contains(address) && mac.0 == [a, b, c, d, e, f])
    }
}

/// The Ethernet address that a host made this address of (RFC 4291, appendix A).
pub fn eui64(address: Ipv6Addr) -> Option<MacAddr> {
    let [.., a, b, c, 0xff, 0xfe, d, e, f] = address.octets() else { return None };
    Some(MacAddr([a ^ 2, b, c, d, e, f])).filter(|mac| is_port(*mac))
}

/// Whether it is a port's, and not a group's or nothing.
pub fn is_port(mac: MacAddr) -> bool {
    mac.0[0] & 1 == 0 && mac.0 != [0; 6]
}
