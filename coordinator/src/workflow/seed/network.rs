//! The network of the installed system, made of the network that the machine's document states for its agent.

use std::collections::BTreeMap;

use landfall_api::{BondMode, InterfaceError, MacAddr, NetworkInterface, NicFacts, PortRef};
use serde_json::{Map, Value, json};

/// Bytes of a packet that every Ethernet port takes without a setting (IEEE 802.3).
const ETHERNET_MTU: u32 = 1500;

/// The document's network cannot be the installed system's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It names a port as the agent's kernel does, and the machine has not reported one of that name.
    #[error("spec.network names the port {0}, which the machine has not reported; name it by its MAC address")]
    UnknownPort(String),
    /// Interfaces that name a port once by its name and once by its address exclude each other.
    #[error("spec.network[{0}]: {1}")]
    SharedPort(usize, InterfaceError),
}

/// Network configuration of version 2 with these interfaces alone; `nics` tells the addresses of ports that are stated by name.
///
/// A port of a bond or below a VLAN is found by its MAC address and renamed: bond and VLAN have the same address, and would be found by
/// it too.
///
/// # Errors
/// [`NetworkError`]
pub(super) fn of_interfaces(interfaces: &[NetworkInterface], nics: &[NicFacts]) -> Result<Value, NetworkError> {
    let (mut ethernets, mut bonds, mut vlans) = (Map::new(), Map::new(), Map::new());
    // A port may be stated by name here and by address there.
    let ports = |interface: &NetworkInterface| interface.ports.iter().map(|port| address(port, nics)).collect();
    let ports = interfaces.iter().map(ports).collect::<Result<Vec<Vec<MacAddr>>, _>>()?;
    let all = || interfaces.iter().zip(&ports);
    let by_address = all().map(|(interface, ports)| {
        let ports = ports.iter().copied().map(PortRef::Mac).collect();
        NetworkInterface { ports, ..interface.clone() }
    });
    let by_address: Vec<_> = by_address.collect();
    for (n, interface) in by_address.iter().enumerate() {
        interface.check_beside(&by_address[..n]).map_err(|error| NetworkError::SharedPort(n, error))?;
    }
    // The interface below VLANs, by its ports.
    let mut bases: BTreeMap<&[MacAddr], String> = BTreeMap::new();
    for (interface, ports) in all() {
        if bases.contains_key(ports.as_slice()) {
            continue;
        }
        let mut names = Vec::new();
        for mac in ports {
            let name = format!("port{}", ethernets.len());
            ethernets.insert(name.clone(), json!({ "match": { "macaddress": mac.to_string() }, "optional": true }));
            names.push(name);
        }
        let tagged = || all().filter(|(other, theirs)| *theirs == ports && other.vlan.is_some());
        let carries = tagged().filter_map(|(other, _)| other.mtu).max();
        let base = match interface.bond {
            None => names.first().cloned().unwrap_or_default(),
            Some(mode) => {
                let name = format!("bond{}", bonds.len());
                let mut bond = json!({ "interfaces": names, "parameters": parameters(mode), "optional": true });
                // As the kernel does in the agent; systemd-networkd would make one up, which no DHCP server knows.
                bond["macaddress"] = ports.first().map(ToString::to_string).into();
                bonds.insert(name.clone(), bond);
                name
            }
        };
        if interface.bond.is_some() || tagged().next().is_some() {
            for name in names {
                ethernets[&name]["set-name"] = name.clone().into();
            }
        }
        if let Some(mtu) = carries.filter(|mtu| *mtu > ETHERNET_MTU) {
            of(&mut ethernets, &mut bonds, &base)["mtu"] = mtu.into();
        }
        bases.insert(ports, base);
    }
    for (interface, ports) in all() {
        let base = &bases[ports.as_slice()];
        let settings = match interface.vlan {
            None => of(&mut ethernets, &mut bonds, base),
            Some(id) => {
                let name = format!("{base}.{id}");
                vlans.insert(name.clone(), json!({ "id": id, "link": base, "optional": true }));
                &mut vlans[&name]
            }
        };
        state(settings, interface);
    }
    let mut document = json!({ "version": 2, "ethernets": ethernets });
    for (kind, some) in [("bonds", bonds), ("vlans", vlans)] {
        if !some.is_empty() {
            document[kind] = some.into();
        }
    }
    Ok(document)
}

fn of<'a>(ethernets: &'a mut Map<String, Value>, bonds: &'a mut Map<String, Value>, name: &str) -> &'a mut Value {
    if bonds.contains_key(name) { &mut bonds[name] } else { &mut ethernets[name] }
}

fn address(port: &PortRef, nics: &[NicFacts]) -> Result<MacAddr, NetworkError> {
    match port {
        PortRef::Mac(mac) => Ok(*mac),
        PortRef::Name(name) => {
            let reported = nics.iter().find(|nic| nic.name == *name);
            reported.map(|nic| nic.mac).ok_or_else(|| NetworkError::UnknownPort(name.clone()))
        }
    }
}

/// As the agent makes its bonds (`agent/src/net/netlink.rs`).
fn parameters(mode: BondMode) -> Value {
    match mode {
        BondMode::Lacp => json!({ "mode": mode.as_str(), "lacp-rate": "fast", "mii-monitor-interval": 100 }),
        BondMode::ActiveBackup => json!({ "mode": mode.as_str(), "mii-monitor-interval": 100 }),
    }
}

fn state(settings: &mut Value, interface: &NetworkInterface) {
    let NetworkInterface { mtu, addresses, gateways, nameservers, routes, .. } = interface;
    if let Some(mtu) = mtu {
        settings["mtu"] = (*mtu).max(settings["mtu"].as_u64().and_then(|m| m.try_into().ok()).unwrap_or(0)).into();
    }
    if addresses.is_empty() {
        settings["dhcp4"] = true.into();
    } else {
        settings["addresses"] = addresses.iter().map(ToString::to_string).collect();
    }
    if addresses.iter().any(|address| address.addr().is_ipv6()) {
        // Like the agent: a stated address is the only one.
        settings["accept-ra"] = false.into();
    }
    let default = gateways.iter().map(|via| (if via.is_ipv4() { "0.0.0.0/0" } else { "::/0" }.to_owned(), via));
    let others = routes.iter().map(|route| (route.to.trunc().to_string(), &route.via));
    let ways = default.chain(others).map(|(to, via)| {
        let mut way = json!({ "to": to, "via": via });
        // Like the agent: some clouds lend a /32 whose gateway is outside it.
        if !addresses.is_empty() && !addresses.iter().any(|address| address.contains(via)) {
            way["on-link"] = true.into();
        }
        way
    });
    let ways: Vec<Value> = ways.collect();
    if !ways.is_empty() {
        settings["routes"] = ways.into();
    }
    if !nameservers.is_empty() {
        settings["nameservers"] = json!({ "addresses": nameservers });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_documents(interfaces: Value) -> Result<Value, NetworkError> {
        let nic = json!({ "name": "eth7", "mac": "52:54:00:00:00:07", "driver": "virtio_net", "carrier": true });
        let nics = [serde_json::from_value(nic).unwrap()];
        of_interfaces(&serde_json::from_value::<Vec<NetworkInterface>>(interfaces).unwrap(), &nics)
    }

    #[test]
    fn a_fixed_address_needs_no_new_name() {
        let made = of_documents(json!([{
            "ports": ["52:54:00:00:00:01"], "addresses": ["192.0.2.7/24", "2001:db8::7/64"],
            "gateways": ["192.0.2.1", "2001:db8::1"], "nameservers": ["192.0.2.53"], "mtu": 9000,
            "routes": [{ "to": "10.0.0.0/8", "via": "192.0.2.9" }],
        }]));
        let port = json!({
            "match": { "macaddress": "52:54:00:00:00:01" }, "optional": true, "mtu": 9000,
            "addresses": ["192.0.2.7/24", "2001:db8::7/64"], "accept-ra": false,
            "routes": [{ "to": "0.0.0.0/0", "via": "192.0.2.1" }, { "to": "::/0", "via": "2001:db8::1" },
                { "to": "10.0.0.0/8", "via": "192.0.2.9" }],
            "nameservers": { "addresses": ["192.0.2.53"] },
        });
        assert_eq!(made, Ok(json!({ "version": 2, "ethernets": { "port0": port } })));
    }

    #[test]
    fn vlans_share_a_bond_whose_ports_are_renamed() {
        let ports = json!(["52:54:00:00:00:01", "52:54:00:00:00:02"]);
        let made = of_documents(json!([
            { "ports": ports, "bond": "802.3ad", "vlan": 20, "mtu": 9000, "addresses": ["192.0.2.7/24"] },
            { "ports": ports, "bond": "802.3ad", "nameservers": ["192.0.2.53"] },
            { "ports": ["eth7"], "vlan": 30 },
            { "ports": ["52:54:00:00:00:07"], "vlan": 31 },
        ]));
        let port = |name: &str, mac: u8| json!({ "match": { "macaddress": format!("52:54:00:00:00:0{mac}") }, "set-name": name, "optional": true });
        let bond = json!({
            "interfaces": ["port0", "port1"], "optional": true, "mtu": 9000, "dhcp4": true, "macaddress": "52:54:00:00:00:01",
            "parameters": { "mode": "802.3ad", "lacp-rate": "fast", "mii-monitor-interval": 100 },
            "nameservers": { "addresses": ["192.0.2.53"] },
        });
        let expected = json!({
            "version": 2,
            "ethernets": { "port0": port("port0", 1), "port1": port("port1", 2), "port2": port("port2", 7) },
            "bonds": { "bond0": bond },
            "vlans": {
                "bond0.20": { "id": 20, "link": "bond0", "optional": true, "mtu": 9000, "addresses": ["192.0.2.7/24"] },
                "port2.30": { "id": 30, "link": "port2", "optional": true, "dhcp4": true },
                "port2.31": { "id": 31, "link": "port2", "optional": true, "dhcp4": true },
            },
        });
        assert_eq!(made, Ok(expected));
    }

    #[test]
    fn a_gateway_outside_of_the_prefix_is_reached_directly() {
        let made = of_documents(json!([{
            "ports": ["52:54:00:00:00:01"], "addresses": ["192.0.2.7/32"], "gateways": ["192.0.2.1"],
            "routes": [{ "to": "10.1.2.3/8", "via": "192.0.2.7" }],
        }]));
        let routes = &made.unwrap()["ethernets"]["port0"]["routes"];
        let expected = json!([{ "to": "0.0.0.0/0", "via": "192.0.2.1", "on-link": true }, { "to": "10.0.0.0/8", "via": "192.0.2.7" }]);
        assert_eq!(*routes, expected);
    }

    #[test]
    fn one_port_by_name_and_address_is_one_port() {
        let error = of_documents(json!([{ "ports": ["eth7"] }, { "ports": ["52:54:00:00:00:07"] }])).unwrap_err();
        assert!(
            error.to_string().starts_with("spec.network[1]: ") && error.to_string().contains("same port"),
            "{error}"
        );
    }

    #[test]
    fn a_name_that_was_not_reported_is_refused() {
        let error = of_documents(json!([{ "ports": ["eth1"] }])).unwrap_err();
        assert!(error.to_string().contains("port eth1, which the machine has not reported"), "{error}");
    }
}
