//! `/etc/netplan/60-landfall.yaml` (netplan.readthedocs.io, "YAML configuration"), the only file there. Pure.

use std::net::IpAddr;

use landfall_api::InterfaceSpec;

use super::{HEADER, Text, asks, label, name};

pub(super) fn text(ports: &[InterfaceSpec], network_manager: bool) -> Text {
    let renderer = if network_manager { "  renderer: NetworkManager\n" } else { "" };
    let mut text = format!("{HEADER}\nnetwork:\n  version: 2\n{renderer}  ethernets:\n");
    for (n, port) in ports.iter().enumerate() {
        text += &one(port, &label(n));
    }
    // It warns of files that others can read.
    Text { path: "/etc/netplan/60-landfall.yaml".into(), mode: 0o600, content: text }
}

fn one(port: &InterfaceSpec, label: &str) -> String {
    // Writing to a text cannot fail.
    let mut text = format!("    {}:\n", name(port).map_or_else(|| label.to_owned(), |name| format!("\"{name}\"")));
    if let Some(mac) = port.mac {
        text += &format!("      match:\n        macaddress: \"{mac}\"\n");
    } else if let Some(pattern) = port.name.as_deref().filter(|_| name(port).is_none()) {
        // What is not plugged in must not be waited for.
        text += &format!("      match:\n        name: \"{pattern}\"\n      optional: true\n");
    }
    let asks = asks(port);
    text += &format!("      dhcp4: {asks}\n      dhcp6: {asks}\n");
    if let Some(mtu) = port.mtu {
        text += &format!("      mtu: {mtu}\n");
    }
    if !port.addresses.is_empty() {
        text += "      addresses:\n";
        text += &items(&port.addresses, 8);
    }
    if !port.gateways.is_empty() {
        text += "      routes:\n";
    }
    for gateway in &port.gateways {
        // Every version knows these; "default" only newer ones.
        let all = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        text += &format!("        - to: \"{all}\"\n          via: \"{gateway}\"\n");
    }
    text + &names(&port.nameservers, &port.search_domains)
}

fn names(servers: &[IpAddr], domains: &[String]) -> String {
    let mut text = String::new();
    if !servers.is_empty() || !domains.is_empty() {
        text += "      nameservers:\n";
    }
    if !servers.is_empty() {
        text += "        addresses:\n";
        text += &items(servers, 10);
    }
    if !domains.is_empty() {
        text += "        search:\n";
        text += &items(domains, 10);
    }
    text
}

fn items(all: &[impl ToString], indent: usize) -> String {
    all.iter().map(|item| format!("{:indent$}- \"{}\"\n", "", item.to_string())).collect()
}
