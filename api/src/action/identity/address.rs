//! An address with its network, and what can be one.

use std::{fmt, net::IpAddr, str::FromStr};

/// An address and the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpWithPrefix {
    /// The address.
    pub ip: IpAddr,
    /// 0 to 32, or to 128 for IPv6.
    pub prefix: u8,
}

/// A text is no address with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address with a prefix length, such as 192.0.2.17/24")]
pub struct NotAnAddress(String);

string_scalar!(IpWithPrefix, "^[0-9a-fA-F.:]+/[0-9]{1,3}$", "An IP address and the length of its network's prefix");

impl IpWithPrefix {
    /// Whether a machine with this address reaches that one without a router.
    pub(super) fn reaches(&self, other: IpAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let ((own, length), (other_bits, other_length)) = (bits(self.ip), bits(other));
        let rest = length - u32::from(self.prefix).min(length);
        let link_local = matches!(other, IpAddr::V6(ip) if ip.is_unicast_link_local());
        length == other_length && (link_local || own.checked_shr(rest) == other_bits.checked_shr(rest))
    }
}

/// It means none, or several machines.
pub(super) fn unusable(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_multicast() || matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

impl FromStr for IpWithPrefix {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let parsed = text.split_once('/').and_then(|(ip, prefix)| {
            let (ip, prefix): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
            (prefix <= if ip.is_ipv4() { 32 } else { 128 }).then_some(Self { ip, prefix })
        });
        parsed.ok_or_else(|| NotAnAddress(text.to_owned()))
    }
}

impl fmt::Display for IpWithPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_says_who_is_reached_without_a_router() {
        for (own, other, reached) in [
            ("192.0.2.17/24", "192.0.2.1", true),
            ("192.0.2.17/24", "192.0.3.1", false),
            ("192.0.2.17/32", "192.0.2.1", false),
            ("192.0.2.17/0", "10.0.0.1", true),
            ("192.0.2.17/24", "::c000:201", false),
            ("2001:db8::17/64", "2001:db8::1", true),
            ("2001:db8::17/64", "2001:db8:1::1", false),
            ("2001:db8::17/64", "fe80::1", true),
        ] {
            let own: IpWithPrefix = own.parse().unwrap();
            assert_eq!(own.reaches(other.parse().unwrap()), reached, "{own} {other}");
        }
    }
}
