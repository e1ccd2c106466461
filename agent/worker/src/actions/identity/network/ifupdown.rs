//! `/etc/network/interfaces` (interfaces(5)), the whole file. Pure.
//!
//! An address or a pattern gives the interface a logical name, as ifupdown's "pattern matching interfaces" has it.

use std::fmt::Write as _;

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
    let mut text = format!("auto {auto}\n");
    // Writing to a text cannot fail. The kernel gives what IPv6 routers offer without a stanza.
    if asks(port) {
        let _ = writeln!(text, "iface {logical} inet dhcp");
        text += &once(port);
        return text;
    }
    let mut gateways = port.gateways.clone();
    for (n, address) in port.addresses.iter().enumerate() {
        let family = if address.ip.is_ipv4() { "inet" } else { "inet6" };
        let _ = write!(text, "iface {logical} {family} static\n    address {address}\n");
        if let Some(at) = gateways.iter().position(|gateway| gateway.is_ipv4() == address.ip.is_ipv4()) {
            let _ = writeln!(text, "    gateway {}", gateways.remove(at));
        }
        if n == 0 {
            text += &once(port);
        }
    }
    text
}

/// What stands in the first stanza alone.
fn once(port: &InterfaceSpec) -> String {
    let mut text = String::new();
    if let Some(mtu) = port.mtu {
        // Not every method has an option for it.
        let _ = writeln!(text, "    pre-up ip link set dev $IFACE mtu {mtu}");
    }
    if !port.nameservers.is_empty() {
        let servers: Vec<_> = port.nameservers.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "    dns-nameservers {}", servers.join(" "));
    }
    if !port.search_domains.is_empty() {
        let _ = writeln!(text, "    dns-search {}", port.search_domains.join(" "));
    }
    text
}
