//! The network of an installed system, and what is wrong with it.

use std::{collections::BTreeSet, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::super::rules::{Rules, is_host_name, plain_text};
use super::address::{IpWithPrefix, unusable};
use crate::{MacAddr, issue::has_expression};

/// The network of an installed system, as the files of its own network service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkSpec {
    /// Whose files are written. Default: `auto`, those of the service that the installed system uses.
    #[serde(default, skip_serializing_if = "NetworkFormat::is_auto")]
    pub format: NetworkFormat,
    /// The Ethernet interfaces; at least one.
    pub interfaces: Vec<InterfaceSpec>,
}

words! {
    /// A network service, by its files.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    NetworkFormat {
        /// As the installed system has it: netplan, else the service that it starts.
        #[default]
        Auto = "auto",
        /// `/etc/network/interfaces`
        Ifupdown = "ifupdown",
        /// `/etc/systemd/network`
        Networkd = "networkd",
        /// `/etc/NetworkManager/system-connections`
        NetworkManager = "networkManager",
        /// `/etc/netplan`
        Netplan = "netplan",
    }
}

impl NetworkFormat {
    const fn is_auto(&self) -> bool {
        matches!(self, Self::Auto)
    }
}

/// One Ethernet interface, or all whose name matches: with DHCP, or with the addresses that are stated.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceSpec {
    /// It is the one with this address. Either this or `name`.
    pub mac: Option<MacAddr>,
    /// It is the one that the installed system calls so; with `*` and `?`, every one whose name matches, and then
    /// it is the only item. Either this or `mac`.
    pub name: Option<String>,
    /// Whether it asks for its addresses (DHCP, and what IPv6 routers offer). Default: whether there are no `addresses`.
    pub dhcp: Option<bool>,
    /// Its addresses, IPv4 or IPv6, each with the length of its network's prefix: `192.0.2.17/24`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpWithPrefix>,
    /// The default routers, each in the network of one of `addresses`; of all interfaces at most one for IPv4 and one for IPv6.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<IpAddr>,
    /// Domains in which short names are looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
    /// The largest packet, bytes, 1280 (the least of IPv6) to 65535. Default: the driver's.
    #[schemars(range(min = 1280, max = 65535))]
    pub mtu: Option<u32>,
}

/// The longest name of an interface, bytes: the kernel's IFNAMSIZ without the byte that ends it.
const MAX_NAME: usize = 15;

/// The mapping `network` at `path`.
pub(super) fn check(network: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let Some(interfaces) = network.get("interfaces").and_then(Value::as_array) else { return };
    let at = format!("{path}.interfaces");
    if interfaces.is_empty() {
        rules.say(&at, "there is no interface", "list at least one, or leave network out to keep what the system has");
    }
    let (mut known, mut routers) = (BTreeSet::new(), BTreeSet::new());
    for (i, interface) in interfaces.iter().enumerate() {
        let Some(interface) = interface.as_object() else { continue };
        let at = format!("{at}[{i}]");
        let port = Interface { fields: interface, at: &at };
        port.identity(&mut known, rules);
        if interfaces.len() > 1 && plain_text(port.fields, "name").is_some_and(is_pattern) {
            let hint = "name each interface by its mac or its whole name, or leave the others out";
            rules.say(port.at("name"), "a pattern must be the only interface: it could mean the others too", hint);
        }
        port.addresses(&mut routers, rules);
        port.names(rules);
    }
}

/// One interface as it is written.
struct Interface<'v> {
    fields: &'v Map<String, Value>,
    at: &'v str,
}

impl<'v> Interface<'v> {
    fn has(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| !value.is_null())
    }

    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.at)
    }

    /// The texts of a list, with where they stand; expressions are left out.
    fn texts(&self, field: &'static str) -> impl Iterator<Item = (String, &'v str)> {
        let items = self.fields.get(field).and_then(Value::as_array).into_iter().flatten().enumerate();
        let texts = items.filter_map(|(n, item)| Some((n, item.as_str().filter(|text| !has_expression(text))?)));
        let at = self.at(field);
        texts.map(move |(n, text)| (format!("{at}[{n}]"), text))
    }

    /// Exactly one of `mac` and `name`, and none twice.
    fn identity(&self, known: &mut BTreeSet<String>, rules: &mut Rules<'_>) {
        let hint = "write mac: for one port wherever it is, or name: as the installed system calls it";
        match (self.has("mac"), self.has("name")) {
            (true, true) => {
                return rules.say(
                    self.at("name"),
                    "an interface has a mac or a name, not both",
                    "remove one of the two",
                );
            }
            (false, false) => return rules.say(self.at("mac"), "an interface has neither mac nor name", hint),
            _ => {}
        }
        if let Some(name) = plain_text(self.fields, "name").filter(|name| !is_interface(name)) {
            let message = format!("\"{name}\" cannot be an interface's name");
            return rules.say(self.at("name"), message, "write a name such as eth0, or a pattern such as e*");
        }
        for field in ["mac", "name"] {
            let Some(text) = plain_text(self.fields, field) else { continue };
            let one = text.parse::<MacAddr>().map_or_else(|_| text.to_owned(), |mac| mac.to_string());
            if !known.insert(one) {
                rules.say(
                    self.at(field),
                    format!("the interface {text} is there twice"),
                    "write all of it into one item",
                );
            }
        }
    }

    fn addresses(&self, routers: &mut BTreeSet<bool>, rules: &mut Rules<'_>) {
        let list = self.fields.get("addresses");
        let none = list.is_none_or(|list| list.is_null() || list.as_array().is_some_and(Vec::is_empty));
        match self.fields.get("dhcp").and_then(Value::as_bool) {
            Some(true) if !none => {
                let hint = "remove dhcp for fixed addresses, or addresses to ask for them";
                rules.say(self.at("dhcp"), "an interface has dhcp or addresses, not both", hint);
            }
            Some(false) if none => {
                let hint = "add addresses, or leave the interface out of the list";
                rules.say(self.at("dhcp"), "an interface without dhcp and addresses has no network", hint);
            }
            _ => {}
        }
        if !none && plain_text(self.fields, "name").is_some_and(is_pattern) {
            let hint = "name one interface, or remove addresses to ask for them";
            rules.say(self.at("addresses"), "several interfaces cannot have the same addresses", hint);
        }
        let mut own: Vec<IpWithPrefix> = Vec::new();
        for (at, text) in self.texts("addresses") {
            let hint = "write the address, a slash, and the length of its prefix";
            match text.parse::<IpWithPrefix>() {
                Ok(address) if unusable(address.ip) || address.ip.is_loopback() => {
                    rules.say(at, format!("{} cannot be an interface's address", address.ip), hint);
                }
                Ok(address) if address.prefix == 0 => {
                    rules.say(at, format!("{address} has a network without an end"), hint);
                }
                Ok(address) => own.push(address),
                Err(error) => rules.say(at, error.to_string(), hint),
            }
        }
        let pending = list.and_then(Value::as_array).map_or(0, Vec::len) != own.len()
            || list.and_then(Value::as_str).is_some_and(has_expression);
        if none && self.has("gateways") {
            let hint = "add addresses, or remove gateways: DHCP brings its own";
            return rules.say(self.at("gateways"), "gateways belong to addresses, and there are none", hint);
        }
        self.gateways(if pending { None } else { Some(&own) }, routers, rules);
        self.ips("nameservers", rules);
    }

    /// `own`: the interface's addresses, if all of them are known; `routers`: the kinds (whether IPv4) of those that other
    /// interfaces have.
    fn gateways(&self, own: Option<&[IpWithPrefix]>, routers: &mut BTreeSet<bool>, rules: &mut Rules<'_>) {
        for (at, ip) in self.ips("gateways", rules) {
            if !routers.insert(ip.is_ipv4()) {
                let hint = "leave one for IPv4 and one for IPv6, on the interface that leads to the other networks";
                rules.say(at, format!("{ip} is a second default router of its kind"), hint);
            } else if own.is_some_and(|own| own.iter().any(|address| address.ip == ip)) || ip.is_loopback() {
                rules.say(at, format!("{ip} is the machine itself"), "write the router's address");
            } else if own.is_some_and(|own| !own.iter().any(|address| address.reaches(ip))) {
                // Services differ in what they make of it: most fail the whole interface.
                let message = format!("{ip} is in the network of none of the interface's addresses");
                rules.say(at, message, "correct the router's address, or the length of an address' prefix");
            }
        }
    }

    fn ips(&self, field: &'static str, rules: &mut Rules<'_>) -> Vec<(String, IpAddr)> {
        let mut found = Vec::new();
        for (at, text) in self.texts(field) {
            match text.parse() {
                Ok(ip) if !unusable(ip) => found.push((at, ip)),
                Ok(ip) => rules.say(
                    at,
                    format!("{ip} is no address of a machine"),
                    "write one such as 192.0.2.1 or 2001:db8::1",
                ),
                Err(_) => {
                    rules.say(at, format!("\"{text}\" is no IP address"), "write one such as 192.0.2.1 or 2001:db8::1")
                }
            }
        }
        found
    }

    fn names(&self, rules: &mut Rules<'_>) {
        for (at, text) in self.texts("searchDomains").filter(|(_, text)| !is_host_name(text)) {
            rules.say(at, format!("\"{text}\" cannot be a domain"), "write a name such as example.net");
        }
    }
}

/// Whether it may mean several interfaces.
fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// A name that the kernel gives, as every network service's files take it unquoted; or a pattern of such names.
fn is_interface(name: &str) -> bool {
    let part = |b: u8| b.is_ascii_alphanumeric() || b"_-.*?".contains(&b);
    (1..=MAX_NAME).contains(&name.len()) && !matches!(name, "." | ".." | "lo") && name.bytes().all(part)
}
