//! The network of an installed system, and what is wrong with it.

use std::{collections::BTreeSet, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::rules::{Rules, is_host_name, plain_text};
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

/// A network service, by its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NetworkFormat {
    /// As the installed system has it: netplan, else the service that it starts.
    #[default]
    Auto,
    /// `/etc/network/interfaces`
    Ifupdown,
    /// `/etc/systemd/network`
    Networkd,
    /// `/etc/NetworkManager/system-connections`
    NetworkManager,
    /// `/etc/netplan`
    Netplan,
}

impl NetworkFormat {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Ifupdown, Self::Networkd, Self::NetworkManager, Self::Netplan];

    /// As documents have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ifupdown => "ifupdown",
            Self::Networkd => "networkd",
            Self::NetworkManager => "networkManager",
            Self::Netplan => "netplan",
        }
    }

    const fn is_auto(&self) -> bool {
        matches!(self, Self::Auto)
    }
}

/// One Ethernet interface, or all whose name matches: with DHCP, or with the addresses that are stated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceSpec {
    /// It is the one with this address. Either this or `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// It is the one that the installed system calls so; with `*` and `?`, every one whose name matches, and then
    /// it is the only item. Either this or `mac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it asks for its addresses (DHCP, and what IPv6 routers offer). Default: whether there are no `addresses`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<bool>,
    /// Its addresses, IPv4 or IPv6, each with the length of its network's prefix: `192.0.2.17/24`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpWithPrefix>,
    /// The default routers, at most one for IPv4 and one for IPv6.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// An address and the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
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

impl std::fmt::Display for IpWithPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl TryFrom<String> for IpWithPrefix {
    type Error = NotAnAddress;

    fn try_from(text: String) -> Result<Self, NotAnAddress> {
        text.parse()
    }
}

impl From<IpWithPrefix> for String {
    fn from(address: IpWithPrefix) -> Self {
        address.to_string()
    }
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
    let mut known = BTreeSet::new();
    for (i, interface) in interfaces.iter().enumerate() {
        let Some(interface) = interface.as_object() else { continue };
        let at = format!("{at}[{i}]");
        let port = Interface { fields: interface, at: &at };
        port.identity(&mut known, rules);
        if interfaces.len() > 1 && plain_text(port.fields, "name").is_some_and(is_pattern) {
            let hint = "name each interface by its mac or its whole name, or leave the others out";
            rules.say(port.at("name"), "a pattern must be the only interface: it could mean the others too", hint);
        }
        port.addresses(rules);
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

    fn addresses(&self, rules: &mut Rules<'_>) {
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
        let mut own = Vec::new();
        for (at, text) in self.texts("addresses") {
            match text.parse::<IpWithPrefix>() {
                Ok(address) => own.push(address.ip.is_ipv4()),
                Err(error) => {
                    rules.say(at, error.to_string(), "write the address, a slash, and the length of its prefix")
                }
            }
        }
        let pending = list.and_then(Value::as_array).map_or(0, Vec::len) != own.len()
            || list.and_then(Value::as_str).is_some_and(has_expression);
        if none && self.has("gateways") {
            let hint = "add addresses, or remove gateways: DHCP brings its own";
            return rules.say(self.at("gateways"), "gateways belong to addresses, and there are none", hint);
        }
        let mut versions = BTreeSet::new();
        for (at, ip) in self.ips("gateways", rules) {
            if !versions.insert(ip.is_ipv4()) {
                rules.say(
                    at,
                    format!("{ip} is a second default router of its kind"),
                    "leave one for IPv4 and one for IPv6",
                );
            } else if !pending && !own.contains(&ip.is_ipv4()) {
                rules.say(at, format!("{ip} is of another kind than every address"), "add an address of its kind");
            }
        }
        self.ips("nameservers", rules);
    }

    fn ips(&self, field: &'static str, rules: &mut Rules<'_>) -> Vec<(String, IpAddr)> {
        let mut found = Vec::new();
        for (at, text) in self.texts(field) {
            match text.parse() {
                Ok(ip) => found.push((at, ip)),
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
