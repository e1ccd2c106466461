//! What the IPv6 routers of a link say, and which of them is followed. Pure.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};

use super::dhcp6::Asks;
use super::setup::{Route, Setup};

/// What a router says of the link (RFC 4861, 4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advertisement {
    /// For how long it is a default router from now on; zero: it is none.
    pub(super) lifetime: Duration,
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
        let lifetime = Duration::from_secs(u16::from_be_bytes([head[6], head[7]]).into());
        let asks = match head[5] {
            flags if flags & MANAGED != 0 => Some(Asks::Address),
            flags if flags & OTHER != 0 => Some(Asks::NameServers),
            _ => None,
        };
        let mut out = Self { lifetime, nameservers: Vec::new(), asks };
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
}

/// How many routers of a link are kept. A host must keep two (RFC 4861, 6.3.4).
const ROUTERS: usize = 8;
/// How long answers to a question are waited for. A router answers within 3.5 s (RFC 4861, 6.2.6); a question may be lost.
const ANSWER: Duration = Duration::from_secs(10);

/// A router that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Router {
    /// On the link.
    pub(super) address: Ipv6Addr,
    says: Advertisement,
    /// Until when it is a default router; `None`: it is none, or its lifetime has ended.
    default_until: Option<Instant>,
}

/// The routers that one port has heard. The first default router is followed, also when others speak later: they would change
/// the port's routes with each of their messages.
#[derive(Debug, Default)]
pub(super) struct Routers {
    /// Of the default routers the first is followed.
    heard: Vec<Router>,
    /// Until when a new default router comes first.
    doubt_until: Option<Instant>,
}

impl Routers {
    /// Takes in what the router at `address` says. Of more than [`ROUTERS`] only a default router is kept, in the place of one
    /// that is none.
    pub(super) fn hear(&mut self, address: Ipv6Addr, says: Advertisement, now: Instant) {
        let default_until = (!says.lifetime.is_zero()).then(|| now + says.lifetime);
        let heard = Router { address, says, default_until };
        if let Some(known) = self.heard.iter_mut().find(|router| router.address == address) {
            *known = heard;
            return;
        }
        if self.heard.len() == ROUTERS {
            let other = self.heard.iter().rposition(|router| router.default_until.is_none());
            let (Some(other), Some(_)) = (other, default_until) else { return };
            self.heard.remove(other);
        }
        let in_doubt = default_until.is_some() && self.doubt_until.is_some_and(|until| now < until);
        self.heard.insert(if in_doubt { 0 } else { self.heard.len() }, heard);
    }

    /// Ends what has ended by now.
    pub(super) fn expire(&mut self, now: Instant) {
        for router in &mut self.heard {
            router.default_until = router.default_until.filter(|until| *until > now);
        }
    }

    /// When [`Routers::expire`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.heard.iter().filter_map(|router| router.default_until).min()
    }

    /// The followed router seems to lead nowhere: the others come first from now on, also those that answer a question now.
    pub(super) fn doubt(&mut self, now: Instant) {
        if let Some(at) = self.heard.iter().position(|router| router.default_until.is_some()) {
            self.heard[at..].rotate_left(1);
        }
        self.doubt_until = Some(now + ANSWER);
    }

    /// Whether there is a default router.
    pub(super) fn has_default(&self) -> bool {
        self.due().is_some()
    }

    /// The router that is followed: of those that are no default router only where there is none.
    pub(super) fn followed(&self) -> Option<&Router> {
        self.heard.iter().find(|router| router.default_until.is_some()).or(self.heard.first())
    }

    /// The most that any of them has a DHCPv6 server asked for.
    pub(super) fn asks(&self) -> Option<Asks> {
        self.heard.iter().filter_map(|router| router.says.asks).max()
    }
}

impl Router {
    /// What the port is set up with, once it has this address: name servers of the command line come first, those of DHCPv6 last.
    pub(super) fn setup(&self, address: Ipv6Net, own: &[IpAddr], by_dhcp: &[IpAddr]) -> Setup {
        let default = Route { to: IpNet::V6(Ipv6Net::default()), via: Some(IpAddr::V6(self.address)) };
        let mut nameservers = own.to_vec();
        for server in self.says.nameservers.iter().chain(by_dhcp) {
            if !nameservers.contains(server) {
                nameservers.push(*server);
            }
        }
        Setup {
            address: IpNet::V6(address),
            routes: self.default_until.map(|_| default).into_iter().collect(),
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

    fn on_link(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
    }

    fn router(number: u16, says: Advertisement) -> Router {
        let mut routers = Routers::default();
        routers.hear(on_link(number), says, Instant::now());
        routers.followed().unwrap().clone()
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
        let lifetime = Duration::from_secs(1800);
        assert_eq!(heard, Advertisement { lifetime, nameservers: expected.clone(), asks: Some(Asks::Address) });
        let ended = Advertisement::parse(&advertisement(0x40, 0, &[&rdnss(0, &["2001:db8::53"])])).unwrap();
        let lifetime = Duration::ZERO;
        assert_eq!(ended, Advertisement { lifetime, nameservers: vec![], asks: Some(Asks::NameServers) });

        let [own, by_dhcp] = ["2001:db8::1", "2001:db8::2"].map(|s| s.parse::<IpAddr>().unwrap());
        let address = "2001:db8::7/64".parse().unwrap();
        let made = router(1, heard).setup(address, &[own, expected[1]], &[by_dhcp, expected[0]]);
        assert_eq!(made.nameservers, [own, expected[1], expected[0], by_dhcp]);
        assert_eq!((made.gateway(), made.address), (Some("fe80::1".parse().unwrap()), IpNet::V6(address)));
        assert_eq!(router(1, ended).setup(address, &[], &[]).routes, []);
    }

    #[test]
    fn the_first_default_router_is_followed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let says = |lifetime| Advertisement::parse(&advertisement(0, lifetime, &[])).unwrap();
        let followed = |routers: &Routers| {
            let router = routers.followed().unwrap();
            (router.address.segments()[7], router.default_until.is_some())
        };
        let mut routers = Routers::default();
        assert_eq!((routers.followed(), routers.due()), (None, None));
        for (second, from, lifetime, follows) in [
            (0, 1, 0, (1, false)),
            (1, 2, 9, (2, true)),
            (2, 1, 9, (1, true)),
            (3, 3, 9, (1, true)),
            (4, 1, 0, (2, true)),
            (5, 1, 60, (1, true)),
        ] {
            routers.hear(on_link(from), says(lifetime), at(second));
            assert_eq!(followed(&routers), follows, "{second}");
        }
        routers.doubt(at(6));
        assert_eq!(followed(&routers), (2, true), "the first one leads nowhere");
        routers.hear(on_link(1), says(60), at(6));
        assert_eq!(followed(&routers), (2, true), "it still speaks");
        assert_eq!(routers.due(), Some(at(10)));
        for (second, follows) in [(9, (2, true)), (10, (3, true)), (12, (1, true)), (65, (1, true)), (66, (2, false))] {
            routers.expire(at(second));
            assert_eq!(followed(&routers), follows, "{second}");
        }
        assert!(!routers.has_default());
        routers.doubt(at(100));
        assert_eq!(followed(&routers), (2, false), "it names no gateway that could lead nowhere");
    }

    #[test]
    fn a_router_that_answers_replaces_the_doubted_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let says = |lifetime| Advertisement::parse(&advertisement(0, lifetime, &[])).unwrap();
        let mut routers = Routers::default();
        routers.hear(on_link(1), says(1800), start);
        routers.doubt(at(120));
        for (second, from, lifetime, follows) in
            [(121, 1, 1800, 1), (122, 2, 0, 1), (123, 3, 1800, 3), (130, 4, 1800, 3)]
        {
            routers.hear(on_link(from), says(lifetime), at(second));
            assert_eq!(routers.followed().unwrap().address, on_link(follows), "{second}");
        }
    }

    #[test]
    fn a_default_router_replaces_another_in_a_full_list() {
        let now = Instant::now();
        let says = |lifetime| Advertisement::parse(&advertisement(0, lifetime, &[])).unwrap();
        let mut routers = Routers::default();
        (1..=20).for_each(|n| routers.hear(on_link(n), says(0), now));
        routers.hear(on_link(21), says(9), now);
        assert_eq!((routers.heard.len(), routers.followed().unwrap().address), (ROUTERS, on_link(21)));
        (22..=40).for_each(|n| routers.hear(on_link(n), says(9), now));
        assert_eq!((routers.heard.len(), routers.followed().unwrap().address), (ROUTERS, on_link(21)));
        assert!(routers.heard.iter().all(|router| (21..=28).contains(&router.address.segments()[7])));
    }

    #[test]
    fn what_any_router_asks_of_dhcpv6_is_done() {
        let mut routers = Routers::default();
        for (from, flags, asks) in [
            (1, 0, None),
            (2, 0x40, Some(Asks::NameServers)),
            (1, 0x80, Some(Asks::Address)),
            (2, 0, Some(Asks::Address)),
        ] {
            let says = Advertisement::parse(&advertisement(flags, 9, &[])).unwrap();
            routers.hear(on_link(from), says, Instant::now());
            assert_eq!(routers.asks(), asks, "{from} {flags}");
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
