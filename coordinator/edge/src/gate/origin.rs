//! Where a connection comes from, as far as places are counted.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;

/// The network of 64 bits whose machines are served by DHCPv6.
static SERVED: OnceLock<Ipv6Addr> = OnceLock::new();

/// Counts every host of this network of 64 bits by itself, for the life of the process: the machines of a link that is served over IPv6 are
/// all in one. Only the first call counts.
pub fn count_hosts_of(network: Ipv6Addr) {
    // A second one would be of a second DHCPv6 service, which there is not.
    let _ = SERVED.set(network_of(network));
}

fn network_of(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)
}

/// The address that places are counted by: of IPv6 the network of 64 bits, since a host with one address has them all; but a host of
/// the link that is served, by its own.
pub fn origin(address: IpAddr) -> IpAddr {
    origin_beside(address, SERVED.get())
}

fn origin_beside(address: IpAddr, served: Option<&Ipv6Addr>) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if served.is_none_or(|served| network_of(address) != *served) => network_of(address).into(),
        address => address,
    }
}

/// How many places one address may have, if unauthenticated hosts may have `each` of `total`: this host itself may have
/// all.
pub fn each_of(address: IpAddr, each: usize, total: usize) -> usize {
    if address.to_canonical().is_loopback() { total } else { each }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_counts_as_one_address() {
        let at = |text: &str| origin(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        let served = |text: &str| origin_beside(text.parse().unwrap(), Some(&"fd77::".parse().unwrap()));
        assert_ne!(served("fd77::2"), served("fd77::3"), "machines of the link that is served");
        assert_eq!(served("2001:db8::1"), served("2001:db8::ffff:1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.2"), at("10.0.0.1"));
        assert_eq!(each_of("127.0.0.9".parse().unwrap(), 3, 9), 9);
        assert_eq!(each_of("10.0.0.1".parse().unwrap(), 3, 9), 3);
    }
}
