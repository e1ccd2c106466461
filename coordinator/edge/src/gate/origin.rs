//! Where a connection comes from, as far as places are counted.

use std::net::{IpAddr, Ipv6Addr};

/// The address that places are counted by: of IPv6 the network of 64 bits, since a host with one address has them all.
pub fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
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
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.2"), at("10.0.0.1"));
        assert_eq!(each_of("127.0.0.9".parse().unwrap(), 3, 9), 9);
        assert_eq!(each_of("10.0.0.1".parse().unwrap(), 3, 9), 3);
    }
}
