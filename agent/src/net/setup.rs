//! What a port is set up with, by a DHCP server, a router, or the command line.

use std::net::IpAddr;

use ipnet::IpNet;

/// One address of a port, and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The address, and its subnet's prefix length.
    pub(crate) address: IpNet,
    /// Routes, the default route among them.
    pub(crate) routes: Vec<Route>,
    /// Name servers, best first.
    pub(crate) nameservers: Vec<IpAddr>,
    /// The link's MTU, bytes, where one is stated.
    pub(crate) mtu: Option<u32>,
}

/// The addresses of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// By DHCP or the command line.
    pub(crate) v4: Option<Setup>,
    /// By a router or the command line.
    pub(crate) v6: Option<Setup>,
}

impl Addresses {
    /// Both.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Setup> {
        self.v4.iter().chain(&self.v6)
    }

    /// The one of the same family as `ip`.
    pub(crate) fn like(&self, ip: IpAddr) -> Option<&Setup> {
        if ip.is_ipv4() { self.v4.as_ref() } else { self.v6.as_ref() }
    }

    /// Takes the place of the one of its family, which it returns.
    pub(crate) fn set(&mut self, setup: Setup) -> Option<Setup> {
        if setup.address.addr().is_ipv4() { self.v4.replace(setup) } else { self.v6.replace(setup) }
    }

    /// Name servers, each once; those of IPv4 first.
    pub(crate) fn nameservers(&self) -> Vec<IpAddr> {
        let mut seen = Vec::new();
        for server in self.iter().flat_map(|setup| &setup.nameservers) {
            if !seen.contains(server) {
                seen.push(*server);
            }
        }
        seen
    }
}

/// One route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    /// The network; of prefix length 0 for the default route.
    pub(crate) to: IpNet,
    /// The gateway; `None`: it is on the link itself.
    pub(crate) via: Option<IpAddr>,
}

impl Route {
    /// Whether it is the default route.
    pub(crate) fn is_default(&self) -> bool {
        self.to.prefix_len() == 0
    }
}

impl Setup {
    /// The default gateway.
    pub(crate) fn gateway(&self) -> Option<IpAddr> {
        self.routes.iter().find(|route| route.is_default()).and_then(|route| route.via)
    }

    /// The way to `address`: on the link itself, or by the most specific route; `None` if no route is known.
    pub(crate) fn way_to(&self, address: IpAddr) -> Option<Route> {
        let to = IpNet::from(address);
        if self.address.contains(&address) {
            return Some(Route { to, via: None });
        }
        let leading = self.routes.iter().filter(|route| route.to.contains(&address));
        leading.max_by_key(|route| route.to.prefix_len()).map(|route| Route { to, via: route.via })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_route_leads_to_an_address() {
        for (address, routes, ways) in [
            (
                "10.0.2.15/24",
                [("0.0.0.0/0", "10.0.2.1"), ("172.16.0.0/12", "10.0.2.9")],
                [("10.0.2.2", None), ("172.20.0.1", Some("10.0.2.9")), ("8.8.8.8", Some("10.0.2.1"))],
            ),
            (
                "2001:db8::7/64",
                [("::/0", "fe80::1"), ("2001:db8:9::/48", "fe80::9")],
                [("2001:db8::2", None), ("2001:db8:9::2", Some("fe80::9")), ("2001:4860::8", Some("fe80::1"))],
            ),
        ] {
            let route = |(to, via): (&str, &str)| Route { to: to.parse().unwrap(), via: Some(via.parse().unwrap()) };
            let routes = routes.map(route).to_vec();
            let setup = Setup { address: address.parse().unwrap(), routes, nameservers: vec![], mtu: None };
            for (to, via) in ways {
                let way = setup.way_to(to.parse().unwrap()).unwrap();
                assert_eq!(way.via, via.map(|via: &str| via.parse().unwrap()), "{to}");
                assert!(way.to.prefix_len() == way.to.max_prefix_len() && way.to.addr().to_string() == to);
            }
            assert_eq!(setup.gateway(), setup.routes[0].via);
            let unrouted = Setup { routes: vec![], ..setup };
            let far = ways[2].0.parse().unwrap();
            assert_eq!((unrouted.way_to(far), unrouted.gateway()), (None, None));
        }
    }
}
