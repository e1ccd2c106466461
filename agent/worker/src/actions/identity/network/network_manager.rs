//! `/etc/NetworkManager/system-connections/landfall-N.nmconnection` (nm-settings-keyfile(5)), one for each interface. Pure.

use std::net::IpAddr;

use landfall_api::InterfaceSpec;

use super::{HEADER, Text, asks, name};

pub(super) fn texts(ports: &[InterfaceSpec]) -> Vec<Text> {
    let text = |(n, port)| Text {
        path: format!("/etc/NetworkManager/system-connections/landfall-{n:02}.nmconnection"),
        // It reads no file that others can read.
        mode: 0o600,
        content: text(port, n),
    };
    ports.iter().enumerate().map(text).collect()
}

fn text(port: &InterfaceSpec, n: usize) -> String {
    let mut text = format!("{HEADER}\n[connection]\nid=landfall-{n:02}\ntype=ethernet\n");
    // The highest: before the connections that it makes by itself, and those of the image.
    text += "autoconnect-priority=999\n";
    let pattern = port.name.as_deref().filter(|_| name(port).is_none());
    // Writing to a text cannot fail.
    if let Some(name) = name(port) {
        text += &format!("interface-name={name}\n");
    }
    if let Some(pattern) = pattern {
        // 3: on several interfaces at a time.
        text += &format!("multi-connect=3\n\n[match]\ninterface-name={pattern};\n");
    }
    text += "\n[ethernet]\n";
    if let Some(mac) = port.mac {
        text += &format!("mac-address={mac}\n");
    }
    if let Some(mtu) = port.mtu {
        text += &format!("mtu={mtu}\n");
    }
    text + &family(port, true) + &family(port, false)
}

fn family(port: &InterfaceSpec, v4: bool) -> String {
    let of_family = |ip: &IpAddr| ip.is_ipv4() == v4;
    let addresses: Vec<_> = port.addresses.iter().filter(|address| of_family(&address.ip)).collect();
    let method = match (addresses.is_empty(), asks(port) || !v4) {
        (false, _) => "manual",
        // IPv6 without addresses: as its routers offer it.
        (true, true) => "auto",
        (true, false) => "disabled",
    };
    let mut text = format!("\n[{}]\nmethod={method}\n", if v4 { "ipv4" } else { "ipv6" });
    for (n, address) in addresses.iter().enumerate() {
        text += &format!("address{}={address}\n", n + 1);
    }
    if let Some(gateway) = port.gateways.iter().find(|ip| of_family(ip)) {
        text += &format!("gateway={gateway}\n");
    }
    // It refuses these where a family has no network.
    if method != "disabled" {
        let servers: String = port.nameservers.iter().filter(|ip| of_family(ip)).map(|ip| format!("{ip};")).collect();
        if !servers.is_empty() {
            text += &format!("dns={servers}\n");
        }
        if !port.search_domains.is_empty() {
            text += &format!("dns-search={};\n", port.search_domains.join(";"));
        }
    }
    text
}
