//! The network configuration: version 1 (curtin's) and version 2 (netplan's), as cloud-init reads them.

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::action::Rules;
use crate::issue::{describe, has_expression, join, suggest};

/// Version 1: what an item may be, and the fields that it needs (`ensure_command_keys` of cloud-init's `network_state`).
const ITEMS: [(&str, &[&str]); 8] = [
    ("physical", &["name"]),
    ("loopback", &["name"]),
    ("infiniband", &["name"]),
    ("vlan", &["name", "vlan_id", "vlan_link"]),
    ("bond", &["name", "bond_interfaces", "params"]),
    ("bridge", &["name", "bridge_interfaces"]),
    ("nameserver", &["address"]),
    ("route", &["destination"]),
];

/// Version 1: what a subnet may be (`schema-network-config-v1.json` of cloud-init).
const SUBNETS: [&str; 9] = [
    "dhcp4", "dhcp", "dhcp6", "static", "static6", "manual", "ipv6_dhcpv6-stateful", "ipv6_dhcpv6-stateless",
    "ipv6_slaac",
];

/// Version 2: kinds of devices, of which the last are netplan's alone.
const SECTIONS: [&str; 11] = [
    "ethernets", "bonds", "bridges", "vlans", "wifis", "tunnels", "vrfs", "modems", "dummy-devices",
    "virtual-ethernets", "nm-devices",
];
/// Version 2: what else may stand beside them.
const BESIDE: [&str; 3] = ["version", "renderer", "openvswitch"];

/// The configuration itself: netplan's and curtin's files have it below `network`, of which not every cloud-init takes note.
pub fn network_section(network: &Value) -> &Value {
    match network.as_object() {
        Some(fields) if fields.len() == 1 => fields.get("network").unwrap_or(network),
        _ => network,
    }
}

/// Says what is wrong with the configuration at `path`.
pub(super) fn check(network: &Value, path: &str, rules: &mut Rules<'_>) {
    if network.as_str().is_some_and(has_expression) {
        return;
    }
    let section = network_section(network);
    let path = if std::ptr::eq(section, network) { path.to_owned() } else { join(path, "network") };
    let Some(fields) = section.as_object() else {
        let hint = match section {
            Value::String(_) => "write it as a mapping: without \"|\" and quotes",
            _ => "write version: 2 and ethernets: below it",
        };
        return rules.say(path, "a network configuration is a mapping", hint);
    };
    // Of any version: cloud-init then leaves the network to the system.
    if fields.get("config").and_then(Value::as_str) == Some("disabled") {
        return;
    }
    let at = join(&path, "version");
    match fields.get("version") {
        Some(Value::String(text)) if has_expression(text) => {}
        Some(version) if version.as_u64() == Some(1) => first(fields, &path, rules),
        Some(version) if version.as_u64() == Some(2) => second(fields, &path, rules),
        Some(Value::String(text)) if matches!(text.as_str(), "1" | "2") => {
            rules.say(at, "the version must be a number, not text", format!("write version: {text}, without quotes"));
        }
        Some(other) => {
            let message = format!("network configuration has version 1 or 2, not {}", describe(other));
            rules.say(at, message, "write version: 2 for netplan's form, version: 1 for a list under config");
        }
        None => {
            let version = if fields.contains_key("config") { 1 } else { 2 };
            rules.say(at, "the network configuration has no version", format!("add version: {version}"));
        }
    }
}

/// Version 1: a list of devices and of what concerns them all.
fn first(fields: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    for field in fields.keys().filter(|field| !matches!(field.as_str(), "version" | "config")) {
        let hint = if SECTIONS.contains(&field.as_str()) {
            "write version: 2, or list the devices under config".to_owned()
        } else {
            suggest(field, &["version", "config"], "version 1 has")
        };
        rules.say(join(path, field), format!("network configuration of version 1 has no field \"{field}\""), hint);
    }
    let at = join(path, "config");
    let Some(items) = fields.get("config") else {
        let hint =
            "add config: with one item a device, such as - { type: physical, name: eno1, subnets: [{ type: dhcp4 }] }";
        return rules.say(at, "network configuration of version 1 has no config", hint);
    };
    let Some(items) = items.as_array() else {
        return list_or_expression(items, &at, rules);
    };
    for (i, item) in items.iter().enumerate() {
        first_item(item, &format!("{at}[{i}]"), rules);
    }
}

fn first_item(item: &Value, path: &str, rules: &mut Rules<'_>) {
    let Some(fields) = mapping(item, path, rules) else { return };
    let names = ITEMS.map(|(name, _)| name);
    let kind = match fields.get("type") {
        Some(Value::String(kind)) if has_expression(kind) => return,
        Some(Value::String(kind)) => kind.as_str(),
        _ => {
            let hint = format!("add type: with one of {}", names.join(", "));
            return rules.say(join(path, "type"), "the item has no type", hint);
        }
    };
    let Some((_, needed)) = ITEMS.iter().find(|(name, _)| *name == kind) else {
        let message = format!("cloud-init knows no item of type \"{kind}\"");
        return rules.say(join(path, "type"), message, suggest(kind, &names, "The types are"));
    };
    for field in needed.iter().filter(|field| fields.get(**field).is_none_or(Value::is_null)) {
        rules.say(join(path, field), format!("an item of type {kind} needs {field}"), format!("add {field}"));
    }
    let Some(subnets) = fields.get("subnets").filter(|subnets| !subnets.is_null()) else { return };
    let at = join(path, "subnets");
    let Some(subnets) = subnets.as_array() else { return list_or_expression(subnets, &at, rules) };
    for (i, subnet) in subnets.iter().enumerate() {
        let at = format!("{at}[{i}]");
        let Some(fields) = mapping(subnet, &at, rules) else { continue };
        match fields.get("type").and_then(Value::as_str) {
            Some(kind) if has_expression(kind) || SUBNETS.contains(&kind) => {}
            Some(kind) => {
                let message = format!("cloud-init knows no subnet of type \"{kind}\"");
                rules.say(join(&at, "type"), message, suggest(kind, &SUBNETS, "The types are"));
                continue;
            }
            None => {
                rules.say(join(&at, "type"), "the subnet has no type", format!("add one of {}", SUBNETS.join(", ")));
                continue;
            }
        }
        if matches!(fields.get("type").and_then(Value::as_str), Some("static" | "static6"))
            && fields.get("address").is_none_or(Value::is_null)
        {
            rules.say(join(&at, "address"), "a static subnet needs an address", "add address: such as 192.0.2.7/24");
        }
    }
}

/// Version 2: netplan's devices by kind and name.
fn second(fields: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    for (section, devices) in fields.iter().filter(|(section, _)| !BESIDE.contains(&section.as_str())) {
        let at = join(path, section);
        if !SECTIONS.contains(&section.as_str()) {
            let hint = if section == "config" {
                "write version: 1, or the devices by kind and name, such as ethernets: { eno1: { dhcp4: true } }"
                    .to_owned()
            } else {
                suggest(section, &SECTIONS, "The kinds of devices are")
            };
            rules.say(at, format!("network configuration of version 2 has no field \"{section}\""), hint);
            continue;
        }
        let Some(devices) = mapping(devices, &at, rules) else { continue };
        for (name, device) in devices {
            let at = join(&at, name);
            let Some(device) = mapping(device, &at, rules) else { continue };
            if section == "vlans" {
                for field in ["id", "link"].into_iter().filter(|field| device.get(*field).is_none_or(Value::is_null)) {
                    rules.say(join(&at, field), format!("a VLAN needs {field}"), format!("add {field}"));
                }
            }
            second_device(device, &at, rules);
        }
    }
}

fn second_device(device: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    for field in ["addresses", "routes", "interfaces"] {
        let Some(list) = device.get(field).filter(|list| !list.is_null()) else { continue };
        let at = join(path, field);
        let Some(items) = list.as_array() else {
            list_or_expression(list, &at, rules);
            continue;
        };
        if field != "addresses" {
            continue;
        }
        for (i, item) in items.iter().enumerate() {
            // An address with a label or a lifetime is the name of a mapping.
            let text = item.as_object().and_then(|one| one.keys().next()).map(String::as_str).or(item.as_str());
            let Some(text) = text.filter(|text| !has_expression(text)) else { continue };
            if !is_with_prefix(text) {
                let message = format!("\"{text}\" is not an address with the length of its prefix");
                rules.say(format!("{at}[{i}]"), message, "write such as 192.0.2.7/24 or 2001:db8::7/64");
            }
        }
    }
    for field in ["dhcp4", "dhcp6"] {
        let Some(value) = device.get(field) else { continue };
        let pending = value.as_str().is_some_and(has_expression);
        if !pending && !value.is_boolean() && !matches!(value.as_str(), Some("yes" | "no")) {
            let message = format!("{field} is true or false, not {}", describe(value));
            rules.say(join(path, field), message, format!("write {field}: true"));
        }
    }
}

fn is_with_prefix(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    match (address.parse(), length.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(length)) => length <= 32,
        (Ok(IpAddr::V6(_)), Ok(length)) => length <= 128,
        _ => false,
    }
}

/// The fields of a mapping; `None` after a fault, or for an expression.
fn mapping<'v>(value: &'v Value, path: &str, rules: &mut Rules<'_>) -> Option<&'v Map<String, Value>> {
    if value.as_object().is_none() && !value.as_str().is_some_and(has_expression) {
        rules.say(
            path,
            format!("this must be a mapping, not {}", describe(value)),
            "write its fields below it, indented",
        );
    }
    value.as_object()
}

fn list_or_expression(value: &Value, path: &str, rules: &mut Rules<'_>) {
    if !value.as_str().is_some_and(has_expression) {
        rules.say(path, format!("this must be a list, not {}", describe(value)), "begin each item with \"- \"");
    }
}
