//! `/etc/systemd/network/00-landfall-N.network` (systemd.network(5)), one for each interface. Pure.
//!
//! The first file whose `[Match]` fits is the interface's; so they sort before those that images have.

use std::fmt::Display;

use landfall_api::InterfaceSpec;

use super::{HEADER, Text, asks, name};

/// What says that the network is there: it waits for every interface, plugged in or not.
pub(super) const WAIT: &str = "/etc/systemd/system/systemd-networkd-wait-online.service.d/landfall.conf";

/// `programs`: where systemd's own programs are.
pub(super) fn texts(ports: &[InterfaceSpec], programs: &str) -> Vec<Text> {
    let text = |(n, port)| Text {
        path: format!("/etc/systemd/network/00-landfall-{n:02}.network"),
        mode: 0o644,
        content: text(port),
    };
    let mut texts: Vec<_> = ports.iter().enumerate().map(text).collect();
    if ports.iter().any(|port| port.mac.is_none() && name(port).is_none()) {
        // What is not plugged in must not be waited for; one that is, must.
        let content =
            format!("{HEADER}\n[Service]\nExecStart=\nExecStart={programs}/systemd-networkd-wait-online --any\n");
        texts.push(Text { path: WAIT.into(), mode: 0o644, content });
    }
    texts
}

fn text(port: &InterfaceSpec) -> String {
    let line = |key: &str, value: &dyn Display| format!("{key}={value}\n");
    // A VLAN or a bond on top of it has its address too, and is of another type.
    let which = match port.mac {
        Some(mac) => line("MACAddress", &mac),
        None => line("Name", &port.name.as_deref().unwrap_or_default()),
    };
    let link = port.mtu.map(|mtu| format!("\n[Link]\n{}", line("MTUBytes", &mtu))).unwrap_or_default();
    let mut network = line("DHCP", if asks(port) { &"yes" } else { &"no" });
    network.extend(port.addresses.iter().map(|address| line("Address", address)));
    network.extend(port.gateways.iter().map(|gateway| line("Gateway", gateway)));
    network.extend(port.nameservers.iter().map(|server| line("DNS", server)));
    if !port.search_domains.is_empty() {
        network += &line("Domains", &port.search_domains.join(" "));
    }
    format!("{HEADER}\n[Match]\nType=ether\n{which}{link}\n[Network]\n{network}")
}
