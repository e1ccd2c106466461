//! The network of the agent, and of the installed system where its template states none: what the agent sets up where DHCP on every port is not enough. In a machine's document, and as
//! `landfall.net=` on the kernel's command line.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay, skip_serializing_none};

use crate::MacAddr;

/// Interfaces of one machine.
pub const MAX_INTERFACES: usize = 8;
/// Ports of one bond; the kernel sets no limit, an aggregation group of a switch has 8.
const MAX_PORTS: usize = 8;
/// Name servers or routes of one interface.
const MAX_ENTRIES: usize = 16;
/// IFNAMSIZ (include/uapi/linux/if.h) without the final zero.
const MAX_PORT_NAME: usize = 15;

/// One interface that the agent sets up: ports, a bond of them, a VLAN on it, and its addresses. Ports that no interface names get
/// their addresses by DHCP.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkInterface {
    /// MAC addresses, or the kernel's names such as `eth0`. Several ports need `bond`.
    pub ports: Vec<PortRef>,
    /// Bonds the ports. Without it there is one port.
    pub bond: Option<BondMode>,
    /// The VLAN that the interface is tagged with, 1 to 4094.
    pub vlan: Option<u16>,
    /// Bytes, 576 to 65535.
    pub mtu: Option<u32>,
    /// Its address, such as `192.0.2.7/24`; for IPv4 and IPv6 one each. Without one: DHCP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// The default gateway; for IPv4 and IPv6 one each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<IpAddr>,
    /// Name servers, best first. Beside DHCP, they are asked before those that DHCP names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<IpAddr>,
    /// More routes; they need an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<NetworkRoute>,
}

/// One route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkRoute {
    /// The network, such as `10.0.0.0/8`.
    #[schemars(with = "String")]
    pub to: IpNet,
    /// The gateway to it.
    pub via: IpAddr,
}

/// How the ports of a bond work together (Documentation/networking/bonding.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum BondMode {
    /// IEEE 802.3ad (LACP); the switch must have the ports in one group.
    #[serde(rename = "802.3ad")]
    Lacp,
    /// One port at a time; the switch need not know.
    #[serde(rename = "active-backup")]
    ActiveBackup,
}

impl BondMode {
    const ALL: [Self; 2] = [Self::Lacp, Self::ActiveBackup];

    /// As in a document, and as the kernel names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lacp => "802.3ad",
            Self::ActiveBackup => "active-backup",
        }
    }
}

/// A port, by its MAC address or by the kernel's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub enum PortRef {
    /// The address burned in.
    Mac(MacAddr),
    /// A name such as `eth0`. It may change with the kernel and with the cards in the machine.
    Name(String),
}

impl JsonSchema for PortRef {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PortRef".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1, "maxLength": 17 })
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => mac.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl FromStr for PortRef {
    type Err = InterfaceError;

    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        if let Ok(mac) = text.parse() {
            return Ok(Self::Mac(mac));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=MAX_PORT_NAME).contains(&text.len()) && text.chars().all(plain) {
            return Ok(Self::Name(text.to_owned()));
        }
        let hint = "write a MAC address such as 52:54:00:00:00:01, or the kernel's name such as eth0";
        Err(InterfaceError { field: "ports", what: format!("\"{text}\" is not a port"), hint })
    }
}

/// What is wrong with an interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {hint}")]
pub struct InterfaceError {
    /// The field, as in a document.
    pub field: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub hint: &'static str,
}

impl NetworkInterface {
    /// Checks an interface of a list against those before it.
    ///
    /// # Errors
    /// It uses a port of another one in another way, or there are too many.
    pub fn check_beside(&self, before: &[Self]) -> Result<(), InterfaceError> {
        if before.len() >= MAX_INTERFACES {
            let what = format!("there are more than {MAX_INTERFACES} interfaces");
            return Err(InterfaceError { field: "", what, hint: "set up what reaches the coordinator and the images" });
        }
        let shared = |other: &&Self| other.ports.iter().any(|port| self.ports.contains(port));
        let fits = |other: &Self| (&other.ports, other.bond) == (&self.ports, self.bond) && other.vlan != self.vlan;
        match before.iter().filter(shared).find(|other| !fits(other)) {
            None => Ok(()),
            Some(other) => Err(InterfaceError {
                field: "ports",
                what: format!("\"{other}\" uses the same port"),
                hint: "interfaces may share their ports, all of them and in one order, if their VLANs differ",
            }),
        }
    }

    /// Checks the fields against one another.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), InterfaceError> {
        let wrong = |field, what: String, hint| Err(InterfaceError { field, what, hint });
        let distinct = self.ports.iter().collect::<BTreeSet<_>>().len();
        if !(1..=MAX_PORTS).contains(&self.ports.len()) || distinct != self.ports.len() {
            let what = format!("there are {} ports, {distinct} of them different", self.ports.len());
            return wrong("ports", what, "name 1 to 8 ports, each once");
        }
        if self.ports.len() > 1 && self.bond.is_none() {
            let what = format!("there are {} ports and no bond", self.ports.len());
            return wrong("bond", what, "write 802.3ad or active-backup, or name one port");
        }
        if let Some(vlan) = self.vlan.filter(|vlan| !(1..=4094).contains(vlan)) {
            return wrong("vlan", format!("{vlan} is not a VLAN"), "write a number from 1 to 4094");
        }
        if let Some(mtu) = self.mtu.filter(|mtu| !(576..=65535).contains(mtu)) {
            return wrong("mtu", format!("{mtu} is not an MTU"), "write bytes, 576 to 65535");
        }
        // RFC 8200, section 5: below this the kernel takes IPv6 from the port.
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu < 1280 && self.addresses.iter().any(|a| a.addr().is_ipv6())) {
            return wrong("mtu", format!("{mtu} is too small for IPv6"), "write at least 1280, or no IPv6 address");
        }
        for (field, found) in
            [("addresses", self.addresses.iter().map(IpNet::addr).collect()), ("gateways", self.gateways.clone())]
        {
            let found: Vec<IpAddr> = found;
            if [true, false].into_iter().any(|v4| found.iter().filter(|ip| ip.is_ipv4() == v4).count() > 1) {
                return wrong(
                    field,
                    format!("there are several {field} of one kind"),
                    "keep one for IPv4 and one for IPv6",
                );
            }
        }
        let lengths = [("nameservers", self.nameservers.len()), ("routes", self.routes.len())];
        if let Some((field, many)) = lengths.into_iter().find(|(_, length)| *length > MAX_ENTRIES) {
            return wrong(field, format!("there are {many} entries"), "keep at most 16");
        }
        for address in &self.addresses {
            let ip = address.addr();
            let is_network = address.prefix_len() < address.max_prefix_len() - 1 && ip == address.network();
            if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || address.prefix_len() == 0 || is_network {
                let what = format!("{address} is not a machine's address");
                return wrong("addresses", what, "write address and prefix length, such as 192.0.2.7/24");
            }
        }
        let ways =
            self.gateways.iter().map(|via| ("gateways", via)).chain(self.routes.iter().map(|r| ("routes", &r.via)));
        for (field, via) in ways {
            if !self.addresses.iter().any(|address| address.addr().is_ipv4() == via.is_ipv4()) {
                let what = format!("{via} is a gateway, and the interface has no address of its kind");
                return wrong(field, what, "give the interface an address, or leave gateways and routes to DHCP");
            }
        }
        if let Some(route) = self.routes.iter().find(|route| route.to.addr().is_ipv4() != route.via.is_ipv4()) {
            let what = format!("the route to {} by {} mixes IPv4 and IPv6", route.to, route.via);
            return wrong("routes", what, "name a gateway of the network's kind");
        }
        Ok(())
    }
}

/// The value of `landfall.net=`: `PORT+PORT,bond=MODE,vlan=N,mtu=N,address=IP/N,gateway=IP,dns=IP,route=NET/N@IP`.
impl fmt::Display for NetworkInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ports, bond, vlan, mtu, addresses, gateways, nameservers, routes } = self;
        for (i, port) in ports.iter().enumerate() {
            write!(f, "{}{port}", if i == 0 { "" } else { "+" })?;
        }
        bond.iter().try_for_each(|bond| write!(f, ",bond={}", bond.as_str()))?;
        vlan.iter().try_for_each(|vlan| write!(f, ",vlan={vlan}"))?;
        mtu.iter().try_for_each(|mtu| write!(f, ",mtu={mtu}"))?;
        addresses.iter().try_for_each(|address| write!(f, ",address={address}"))?;
        gateways.iter().try_for_each(|gateway| write!(f, ",gateway={gateway}"))?;
        nameservers.iter().try_for_each(|server| write!(f, ",dns={server}"))?;
        routes.iter().try_for_each(|route| write!(f, ",route={}@{}", route.to, route.via))
    }
}

impl FromStr for NetworkInterface {
    type Err = InterfaceError;

    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        let mut words = text.split(',');
        let ports = words.next().unwrap_or_default().split('+').map(str::parse).collect::<Result<_, _>>()?;
        let mut out = Self { ports, ..Self::default() };
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "bond" => {
                    let mode = BondMode::ALL.into_iter().find(|mode| mode.as_str() == value);
                    out.bond = Some(mode.ok_or_else(|| bad("bond", value, "write 802.3ad or active-backup"))?);
                }
                "vlan" => out.vlan = Some(parsed("vlan", value, "write a number from 1 to 4094")?),
                "mtu" => out.mtu = Some(parsed("mtu", value, "write bytes, 576 to 65535")?),
                "address" => out.addresses.push(parsed("addresses", value, "write such as address=192.0.2.7/24")?),
                "gateway" => out.gateways.push(parsed("gateways", value, "write such as gateway=192.0.2.1")?),
                "dns" => out.nameservers.push(parsed("nameservers", value, "write such as dns=192.0.2.53")?),
                "route" => {
                    const HINT: &str = "write such as route=10.0.0.0/8@192.0.2.1";
                    let (to, via) = value.split_once('@').ok_or_else(|| bad("routes", value, HINT))?;
                    out.routes
                        .push(NetworkRoute { to: parsed("routes", to, HINT)?, via: parsed("routes", via, HINT)? });
                }
                _ => {
                    let hint = "the settings are bond, vlan, mtu, address, gateway, dns and route";
                    return Err(InterfaceError { field: "", what: format!("\"{word}\" is not a setting"), hint });
                }
            }
        }
        out.check()?;
        Ok(out)
    }
}

fn bad(field: &'static str, value: &str, hint: &'static str) -> InterfaceError {
    InterfaceError { field, what: format!("\"{value}\" is not valid"), hint }
}

fn parsed<T: FromStr>(field: &'static str, value: &str, hint: &'static str) -> Result<T, InterfaceError> {
    value.parse().map_err(|_| bad(field, value, hint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_command_line_says_what_the_document_says() {
        let line = "52:54:00:00:00:01+eth1,bond=802.3ad,vlan=20,mtu=9000,address=192.0.2.7/24,address=2001:db8::7/64,\
                    gateway=192.0.2.1,gateway=2001:db8::1,dns=192.0.2.53,route=10.0.0.0/8@192.0.2.9";
        let interface: NetworkInterface = line.parse().unwrap();
        assert_eq!(interface.to_string(), line);
        let document = json!({
            "ports": ["52:54:00:00:00:01", "eth1"], "bond": "802.3ad", "vlan": 20, "mtu": 9000,
            "addresses": ["192.0.2.7/24", "2001:db8::7/64"], "gateways": ["192.0.2.1", "2001:db8::1"],
            "nameservers": ["192.0.2.53"], "routes": [{"to": "10.0.0.0/8", "via": "192.0.2.9"}],
        });
        assert_eq!(serde_json::to_value(&interface).unwrap(), document);
        assert_eq!(serde_json::from_value::<NetworkInterface>(document).unwrap(), interface);
        let plain: NetworkInterface = "eth0".parse().unwrap();
        assert_eq!(plain, NetworkInterface { ports: vec![PortRef::Name("eth0".into())], ..Default::default() });
    }

    #[test]
    fn ports_are_shared_by_vlans_alone() {
        let of = |line: &str| line.parse::<NetworkInterface>().unwrap();
        for (first, second, fits) in [
            ("eth0", "eth1", true),
            ("eth0", "eth0,vlan=7", true),
            ("eth0+eth1,bond=802.3ad,vlan=7", "eth0+eth1,bond=802.3ad,vlan=8", true),
            ("eth0", "eth0", false),
            ("eth0,vlan=7", "eth0,vlan=7,mtu=1400", false),
            ("eth0+eth1,bond=802.3ad", "eth1", false),
            ("eth0+eth1,bond=802.3ad,vlan=7", "eth0+eth1,bond=active-backup,vlan=8", false),
        ] {
            let checked = of(second).check_beside(&[of(first)]);
            assert_eq!(checked.is_ok(), fits, "{first} {second} {checked:?}");
        }
        assert!(of("eth0").check_beside(&vec![of("eth1"); MAX_INTERFACES]).is_err());
    }

    #[test]
    fn an_error_names_the_field_and_what_to_write() {
        for (line, field, part) in [
            ("", "ports", "is not a port"),
            ("eth0 x", "ports", "is not a port"),
            ("averylongportname", "ports", "is not a port"),
            ("eth0+eth1", "bond", "2 ports and no bond"),
            ("eth0+eth0,bond=802.3ad", "ports", "1 of them different"),
            ("eth0,bond=balance-rr", "bond", "802.3ad or active-backup"),
            ("eth0,vlan=4095", "vlan", "1 to 4094"),
            ("eth0,vlan=x", "vlan", "1 to 4094"),
            ("eth0,mtu=100", "mtu", "576 to 65535"),
            ("eth0,mtu=1279,address=2001:db8::7/64", "mtu", "at least 1280"),
            ("eth0,address=192.0.2.7", "addresses", "192.0.2.7/24"),
            ("eth0,address=192.0.2.0/24", "addresses", "not a machine's address"),
            ("eth0,address=127.0.0.1/8", "addresses", "not a machine's address"),
            ("eth0,gateway=192.0.2.1", "gateways", "no address of its kind"),
            ("eth0,address=192.0.2.7/24,gateway=2001:db8::1", "gateways", "no address of its kind"),
            ("eth0,address=192.0.2.7/24,gateway=192.0.2.1,gateway=192.0.2.2", "gateways", "several"),
            ("eth0,address=192.0.2.7/24,route=10.0.0.0/8", "routes", "route=10.0.0.0/8@192.0.2.1"),
            ("eth0,address=192.0.2.7/24,route=2001:db8::/32@192.0.2.1", "routes", "mixes"),
            ("eth0,adress=192.0.2.7/24", "", "is not a setting"),
        ] {
            let error = line.parse::<NetworkInterface>().unwrap_err();
            assert!(error.field == field && error.to_string().contains(part), "{line}: {error:?}");
        }
        // A point-to-point link has no address of its own for the network (RFC 3021), nor has a single host.
        for line in [
            "eth0,mtu=576,address=192.0.2.7/24", "eth0,address=192.0.2.0/31", "eth0,address=192.0.2.0/32",
            "eth0,address=2001:db8::/127",
        ] {
            line.parse::<NetworkInterface>().unwrap();
        }
    }
}
