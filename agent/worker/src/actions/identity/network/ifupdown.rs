//! `/etc/network/interfaces` (interfaces(5)), the whole file. Pure.
//!
//! An address or a pattern gives the interface a logical name, as ifupdown's "pattern matching interfaces" has it.

use std::net::{IpAddr, Ipv4Addr};

use landfall_api::InterfaceSpec;

use super::{HEADER, Text, asks, label, name};

pub(super) fn text(ports: &[InterfaceSpec]) -> Text {
    let mut text = format!("{HEADER}\nauto lo\niface lo inet loopback\n");
    for (n, port) in ports.iter().enumerate() {
        text.push('\n');
        text += &stanzas(port, &label(n));
    }
    Text { path: "/etc/network/interfaces".into(), mode: 0o644, content: text }
}

fn stanzas(port: &InterfaceSpec, label: &str) -> String {
    let (auto, logical) = match (name(port), port.mac) {
        (Some(name), _) => (name.to_owned(), name),
        (None, Some(mac)) => (format!("mac/{mac}={label}"), label),
        (None, None) => (format!("/{}={label}", port.name.as_deref().unwrap_or_default()), label),
    };
    // ifupdown takes one after the other, and its DHCP client waits: what is not plugged in must not hold up the others.
    let when = if name(port).is_none() && port.mac.is_none() { "allow-hotplug" } else { "auto" };
    let mut text = format!("{when} {auto}\n");
    // Writing to a text cannot fail. The kernel gives what IPv6 routers offer without a stanza.
    if asks(port) {
        text += &format!("iface {logical} inet dhcp\n");
        text += &once(port);
        return text;
    }
    let mut gateways = port.gateways.clone();
    for (n, address) in port.addresses.iter().enumerate() {
        // busybox gives no address at all without this line; every ifupdown knows it.
        let (family, mask) = match address.ip {
            IpAddr::V4(_) => ("inet", mask(address.prefix).to_string()),
            IpAddr::V6(_) => ("inet6", address.prefix.to_string()),
        };
        text += &format!("iface {logical} {family} static\n    address {}\n    netmask {mask}\n", address.ip);
        if let Some(at) = gateways.iter().position(|gateway| gateway.is_ipv4() == address.ip.is_ipv4()) {
            text += &format!("    gateway {}\n", gateways.remove(at));
        }
        if n == 0 {
            text += &once(port);
        }
    }
    text
}

fn mask(prefix: u8) -> Ipv4Addr {
    let rest = Ipv4Addr::BITS.saturating_sub(prefix.into());
    Ipv4Addr::from_bits(u32::MAX.checked_shl(rest).unwrap_or(0))
}

/// What stands in the first stanza alone.
fn once(port: &InterfaceSpec) -> String {
    let mut text = String::new();
    if let Some(mtu) = port.mtu {
        // Not every method has an option for it.
        text += &format!("    pre-up ip link set dev $IFACE mtu {mtu}\n");
    }
    if !port.nameservers.is_empty() {
        let servers: Vec<_> = port.nameservers.iter().map(ToString::to_string).collect();
        text += &format!("    dns-nameservers {}\n", servers.join(" "));
    }
    if !port.search_domains.is_empty() {
        text += &format!("    dns-search {}\n", port.search_domains.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_mask_of_as_many_bits() {
        let masks = [0, 1, 24, 31, 32].map(|prefix| mask(prefix).to_string());
        assert_eq!(masks, ["0.0.0.0", "128.0.0.0", "255.255.255.0", "255.255.255.254", "255.255.255.255"]);
    }
}
