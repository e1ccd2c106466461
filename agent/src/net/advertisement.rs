//! What an IPv6 router says of a link. Pure.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use super::dhcp6::Asks;
use super::setup::{Route, Setup};

/// What a router says of the link (RFC 4861, 4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advertisement {
    /// Whether it is a default router.
    pub(super) is_default: bool,
    /// RFC 8106, best first.
    pub(super) nameservers: Vec<IpAddr>,
    /// What is to be asked of a DHCPv6 server.
    pub(super) asks: Option<Asks>,
}

impl Advertisement {
    /// Reads a message of ICMPv6. `None`: it is not an advertisement, or it is cut short.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        const ADVERTISEMENT: u8 = 134;
        const RDNSS: u8 = 25;
        const MANAGED: u8 = 0x80;
        const OTHER: u8 = 0x40;
        let (head, mut options) = message.split_at_checked(16)?;
        if head[..2] != [ADVERTISEMENT, 0] {
            return None;
        }
        let lifetime = u16::from_be_bytes([head[6], head[7]]);
        let asks = match head[5] {
            flags if flags & MANAGED != 0 => Some(Asks::Address),
            flags if flags & OTHER != 0 => Some(Asks::NameServers),
            _ => None,
        };
        let mut out = Self { is_default: lifetime > 0, nameservers: Vec::new(), asks };
        while !options.is_empty() {
            let [kind, units, ..] = options else { return None };
            // In units of 8 bytes, this head included.
            let (option, rest) = options.split_at_checked(usize::from(*units) * 8)?;
            if option.is_empty() {
                return None;
            }
            // Kind, length, two bytes that are not used, and for how long in seconds.
            if *kind == RDNSS && option.len() >= 8 && option[4..8] != [0; 4] {
                let servers =
                    option[8..].chunks_exact(16).filter_map(|a| <[u8; 16]>::try_from(a).ok()).map(Ipv6Addr::from);
                // One on the link alone would need the port's name in resolv.conf.
                let usable = servers.filter(|a| !a.is_unspecified() && !a.is_multicast() && !a.is_unicast_link_local());
                out.nameservers.extend(usable.map(IpAddr::V6).take(3));
            }
            options = rest;
        }
        Some(out)
    }

    /// Of several routers the first default router is followed: the others would change the port's routes with each of their words.
    pub(super) fn replaces(&self, from: Ipv6Addr, held: Option<&(Self, Ipv6Addr)>) -> bool {
        held.is_none_or(|(held, router)| *router == from || self.is_default && !held.is_default)
    }

    /// What the port is set up with, once it has this address: name servers of the command line come first, those of DHCPv6 last.
    pub(super) fn setup(&self, router: Ipv6Addr, address: Ipv6Net, own: &[IpAddr], by_dhcp: &[IpAddr]) -> Setup {
        let default = Route { to: IpNet::V6(Ipv6Net::default()), via: Some(IpAddr::V6(router)) };
        let mut nameservers = own.to_vec();
        for server in self.nameservers.iter().chain(by_dhcp) {
            if !nameservers.contains(server) {
                nameservers.push(*server);
            }
        }
        Setup {
            address: IpNet::V6(address),
            routes: self.is_default.then_some(default).into_iter().collect(),
            nameservers,
            // The kernel follows the routers' MTU by itself.
            mtu: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn advertisement(flags: u8, lifetime: u16, options: &[&[u8]]) -> Vec<u8> {
        let [high, low] = lifetime.to_be_bytes();
        let head: [u8; 16] = [134, 0, 0, 0, 64, flags, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
        [&head, &options.concat()[..]].concat()
    }

    /// RDNSS with these addresses, for so many seconds.
    fn rdnss(seconds: u32, servers: &[&str]) -> Vec<u8> {
        let units = u8::try_from(1 + 2 * servers.len()).unwrap();
        let addresses: Vec<u8> = servers.iter().flat_map(|s| s.parse::<Ipv6Addr>().unwrap().octets()).collect();
        [&[25, units, 0, 0], &seconds.to_be_bytes()[..], &addresses].concat()
    }

    #[test]
    fn name_servers_are_read_among_other_options() {
        let mtu = [5, 1, 0, 0, 0, 0, 5, 220];
        let servers = rdnss(600, &["2001:db8::53", "fe80::53", "2001:db8::54"]);
        let heard = Advertisement::parse(&advertisement(0xc0, 1800, &[&mtu, &servers])).unwrap();
        let expected: Vec<IpAddr> = ["2001:db8::53", "2001:db8::54"].map(|s| s.parse().unwrap()).to_vec();
        assert_eq!(heard, Advertisement { is_default: true, nameservers: expected.clone(), asks: Some(Asks::Address) });
        let ended = Advertisement::parse(&advertisement(0x40, 0, &[&rdnss(0, &["2001:db8::53"])])).unwrap();
        assert_eq!(ended, Advertisement { is_default: false, nameservers: vec![], asks: Some(Asks::NameServers) });

        let [own, by_dhcp] = ["2001:db8::1", "2001:db8::2"].map(|s| s.parse::<IpAddr>().unwrap());
        let address = "2001:db8::7/64".parse().unwrap();
        let made = heard.setup("fe80::1".parse().unwrap(), address, &[own, expected[1]], &[by_dhcp, expected[0]]);
        assert_eq!(made.nameservers, [own, expected[1], expected[0], by_dhcp]);
        assert_eq!((made.gateway(), made.address), (Some("fe80::1".parse().unwrap()), IpNet::V6(address)));
        assert_eq!(ended.setup("fe80::1".parse().unwrap(), address, &[], &[]).routes, []);
    }

    #[test]
    fn the_first_default_router_is_followed() {
        let of = |lifetime| Advertisement::parse(&advertisement(0, lifetime, &[])).unwrap();
        let [one, two] = ["fe80::1", "fe80::2"].map(|s| s.parse::<Ipv6Addr>().unwrap());
        for (new, from, held, follows) in [
            (of(0), one, None, true),
            (of(9), two, Some((of(0), one)), true),
            (of(0), one, Some((of(9), one)), true),
            (of(0), two, Some((of(9), one)), false),
            (of(9), two, Some((of(9), one)), false),
        ] {
            assert_eq!(new.replaces(from, held.as_ref()), follows, "{new:?} {held:?}");
        }
    }

    #[test]
    fn what_is_cut_short_or_no_advertisement_is_nothing() {
        let whole = advertisement(0, 1800, &[&rdnss(600, &["2001:db8::53"])]);
        for length in 0..whole.len() {
            assert!(length == 16 || Advertisement::parse(&whole[..length]).is_none(), "{length}");
        }
        let empty_option = advertisement(0, 1800, &[&[5, 0, 0, 0, 0, 0, 0, 0]]);
        let mut solicitation = whole;
        solicitation[0] = 133;
        assert_eq!([Advertisement::parse(&empty_option), Advertisement::parse(&solicitation)], [None, None]);
    }

    proptest! {
        #[test]
        fn no_message_makes_the_parser_panic(options in proptest::collection::vec(any::<u8>(), 0..200)) {
            Advertisement::parse(&advertisement(0, 1, &[&options]));
        }
    }
}
