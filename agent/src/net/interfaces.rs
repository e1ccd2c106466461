//! Which bonds and VLANs are to be made, and what each port is for: the interfaces of the command line against the ports there are.
//!
//! Pure: the caller makes what is missing and asks again, as it does whenever a port appears.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use landfall_api::{BondMode, NetworkInterface, PortRef};

use super::netlink::Link;
use super::setup::{Route, Setup};

/// What is missing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Make a bond.
    Bond { name: String, mode: BondMode },
    /// Put a port into a bond.
    Join { port: u32, name: String, bond: u32 },
    /// Make a VLAN on a port or a bond.
    Vlan { name: String, base: u32, id: u16 },
    /// Set the MTU of an interface, or of what lies below it.
    Mtu { port: u32, name: String, mtu: u32 },
}

/// What a port is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    /// It has an address of its own.
    Interface(Addressing),
    /// It is in a bond, or carries a VLAN.
    Part,
}

/// How an interface gets its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Addressing {
    /// As the command line says, for IPv4 and IPv6 one each; none: by DHCP.
    pub(super) fixed: Vec<Setup>,
    /// Name servers of the command line.
    pub(super) nameservers: Vec<IpAddr>,
    /// The MTU of the command line.
    pub(super) mtu: Option<u32>,
}

/// What to make, and what each port is for. Ports that no interface names, and that are not parts, use DHCP; those made here
/// alone count of what has no device behind it, unless `with_virtual`.
pub(super) fn plan(
    wanted: &[NetworkInterface], links: &[Link], with_virtual: bool,
) -> (Vec<Step>, BTreeMap<u32, Role>) {
    let mut steps = Vec::new();
    let mut roles = BTreeMap::new();
    let named = |name: &str| links.iter().find(|link| link.name == name);
    let mut mtus: BTreeMap<u32, Mtu> = BTreeMap::new();
    for interface in wanted {
        let mut ports = interface.ports.iter().filter_map(|port| links.iter().find(|link| is(link, port)));
        let base = match interface.bond {
            None => ports.next(),
            Some(mode) => {
                let ports: Vec<&Link> = ports.collect();
                // Interfaces with the same ports are VLANs of one bond.
                let first = wanted.iter().position(|other| other.ports == interface.ports).unwrap_or_default();
                let name = format!("bond{first}");
                let bond = named(&name);
                if bond.is_none() && !ports.is_empty() {
                    steps.push(Step::Bond { name, mode });
                }
                for port in ports {
                    roles.insert(port.index, Role::Part);
                    if let Some(bond) = bond.filter(|bond| port.controller != Some(bond.index)) {
                        steps.push(Step::Join { port: port.index, name: port.name.clone(), bond: bond.index });
                    }
                }
                bond
            }
        };
        let Some(base) = base else { continue };
        let top = match interface.vlan {
            None => Some(base),
            Some(id) => {
                roles.entry(base.index).or_insert(Role::Part);
                let of_base = mtus.entry(base.index).or_default();
                of_base.least = of_base.least.max(interface.mtu.unwrap_or_default());
                let name = vlan_name(base, id);
                let vlan = named(&name);
                if vlan.is_none() {
                    steps.push(Step::Vlan { name, base: base.index, id });
                }
                vlan
            }
        };
        if let Some(top) = top {
            // Not only with an address of DHCP: one of a router brings no MTU.
            mtus.entry(top.index).or_default().own = interface.mtu;
            roles.insert(top.index, Role::Interface(addressing(interface)));
        }
    }
    for link in links.iter().filter(|link| link.real || with_virtual) {
        roles.entry(link.index).or_insert_with(|| Role::Interface(Addressing::default()));
    }
    for link in links {
        let Some(Mtu { own, least }) = mtus.get(&link.index) else { continue };
        let mtu = own.unwrap_or(link.mtu).max(*least);
        if mtu != link.mtu {
            steps.push(Step::Mtu { port: link.index, name: link.name.clone(), mtu });
        }
    }
    steps.sort();
    steps.dedup();
    (steps, roles)
}

/// The MTU of an interface.
#[derive(Default)]
struct Mtu {
    /// Its own setting.
    own: Option<u32>,
    /// What the VLANs on it need.
    least: u32,
}

/// The ports that interfaces name and that are not there, each with its interface.
pub(super) fn missing<'w>(
    wanted: &'w [NetworkInterface], links: &[Link],
) -> impl Iterator<Item = (&'w PortRef, &'w NetworkInterface)> {
    let is_here = |port: &PortRef| links.iter().any(|link| is(link, port));
    let all = wanted.iter().flat_map(|interface| interface.ports.iter().map(move |port| (port, interface)));
    all.filter(move |(port, _)| !is_here(port))
}

/// A bond and its ports may share one address; what is made here is never meant by it.
fn is(link: &Link, port: &PortRef) -> bool {
    match port {
        PortRef::Mac(mac) => link.real && link.permanent_mac == *mac,
        PortRef::Name(name) => link.name == *name,
    }
}

/// The kernel takes 15 characters.
fn vlan_name(base: &Link, id: u16) -> String {
    match format!("{}.{id}", base.name) {
        name if name.len() <= 15 => name,
        _ => format!("vlan{}.{id}", base.index),
    }
}

fn addressing(interface: &NetworkInterface) -> Addressing {
    let setups = interface.addresses.iter().map(|address| {
        let same = |ip: &IpAddr| ip.is_ipv4() == address.addr().is_ipv4();
        let default =
            if address.addr().is_ipv4() { IpNet::V4(Ipv4Net::default()) } else { IpNet::V6(Ipv6Net::default()) };
        let gateways = interface.gateways.iter().copied().filter(same).map(|via| Route { to: default, via: Some(via) });
        let routes = interface.routes.iter().filter(|route| same(&route.via));
        let routes = routes.map(|route| Route { to: route.to.trunc(), via: Some(route.via) });
        Setup {
            address: *address,
            routes: gateways.chain(routes).collect(),
            nameservers: interface.nameservers.clone(),
            mtu: interface.mtu,
        }
    });
    Addressing { fixed: setups.collect(), nameservers: interface.nameservers.clone(), mtu: interface.mtu }
}

#[cfg(test)]
mod tests {
    use landfall_api::MacAddr;

    use super::*;

    fn link(index: u32, name: &str, controller: Option<u32>) -> Link {
        let mac = MacAddr([2, 0, 0, 0, 0, u8::try_from(index).unwrap()]);
        let real = name.starts_with("eth");
        Link {
            index,
            name: name.into(),
            mac,
            permanent_mac: mac,
            up: true,
            carrier: true,
            controller,
            mtu: 1500,
            real,
            usb: false,
        }
    }

    fn wanted(lines: &[&str]) -> Vec<NetworkInterface> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    fn dhcp() -> Role {
        Role::Interface(Addressing::default())
    }

    #[test]
    fn without_settings_every_port_uses_dhcp() {
        let links = [link(2, "eth0", None), link(3, "eth1", None), link(4, "docker0", None)];
        let (steps, roles) = plan(&[], &links, false);
        assert_eq!((steps, roles), (vec![], BTreeMap::from([(2, dhcp()), (3, dhcp())])));
        assert_eq!(plan(&[], &links, true).1.len(), 3);
    }

    #[test]
    fn a_fixed_address_comes_with_its_own_routes() {
        let lines = ["02:00:00:00:00:03,mtu=9000,address=192.0.2.7/24,address=2001:db8::7/64,gateway=192.0.2.1,\
                      gateway=2001:db8::1,dns=192.0.2.53,route=10.9.9.9/8@192.0.2.9"];
        let (steps, roles) = plan(&wanted(&lines), &[link(2, "eth0", None), link(3, "eth1", None)], false);
        assert_eq!(steps, [Step::Mtu { port: 3, name: "eth1".into(), mtu: 9000 }]);
        assert!(roles[&2] == dhcp());
        let Role::Interface(addressing) = &roles[&3] else { panic!("{roles:?}") };
        let [v4, v6] = &addressing.fixed[..] else { panic!("{addressing:?}") };
        let routes =
            |setup: &Setup| setup.routes.iter().map(|r| format!("{} {}", r.to, r.via.unwrap())).collect::<Vec<_>>();
        assert_eq!((v4.address.to_string().as_str(), v4.mtu), ("192.0.2.7/24", Some(9000)));
        assert_eq!(routes(v4), ["0.0.0.0/0 192.0.2.1", "10.0.0.0/8 192.0.2.9"]);
        assert_eq!(v6.address.to_string(), "2001:db8::7/64");
        assert_eq!(routes(v6), ["::/0 2001:db8::1"]);
        assert_eq!([&v4.nameservers, &v6.nameservers], [&addressing.nameservers; 2]);
    }

    /// Each scan makes what the one before made possible.
    #[test]
    fn bond_and_vlan_are_made_one_after_the_other() {
        let wanted = wanted(&["eth0+eth1,bond=802.3ad,vlan=20,mtu=9000", "eth0+eth1,bond=802.3ad,vlan=30"]);
        let (steps, roles) = plan(&wanted, &[], false);
        assert!(steps.is_empty() && roles.is_empty());

        let mut links = vec![link(2, "eth0", None), link(3, "eth1", None)];
        let (steps, roles) = plan(&wanted, &links, false);
        assert_eq!(steps, [Step::Bond { name: "bond0".into(), mode: BondMode::Lacp }]);
        assert_eq!(roles, BTreeMap::from([(2, Role::Part), (3, Role::Part)]));

        links.push(link(4, "bond0", None));
        let (steps, roles) = plan(&wanted, &links, false);
        assert_eq!(
            steps,
            [
                Step::Join { port: 2, name: "eth0".into(), bond: 4 },
                Step::Join { port: 3, name: "eth1".into(), bond: 4 },
                Step::Vlan { name: "bond0.20".into(), base: 4, id: 20 },
                Step::Vlan { name: "bond0.30".into(), base: 4, id: 30 },
                Step::Mtu { port: 4, name: "bond0".into(), mtu: 9000 },
            ]
        );
        assert_eq!(roles, BTreeMap::from([(2, Role::Part), (3, Role::Part), (4, Role::Part)]));

        links = vec![link(2, "eth0", Some(4)), link(3, "eth1", Some(4)), link(4, "bond0", None)];
        links[2].mtu = 9000;
        links.extend([link(5, "bond0.20", None), link(6, "bond0.30", None)]);
        assert_eq!(plan(&wanted, &links, false).0, [Step::Mtu { port: 5, name: "bond0.20".into(), mtu: 9000 }]);
        links[3].mtu = 9000;
        let (steps, roles) = plan(&wanted, &links, false);
        assert!(steps.is_empty(), "{steps:?}");
        let jumbo = Role::Interface(Addressing { mtu: Some(9000), ..Addressing::default() });
        let expected = [(2, Role::Part), (3, Role::Part), (4, Role::Part), (5, jumbo), (6, dhcp())];
        assert_eq!(roles, BTreeMap::from(expected));
    }

    #[test]
    fn a_port_may_be_used_with_and_without_a_tag() {
        let wanted = wanted(&["eth0,vlan=7", "eth0,address=192.0.2.7/24"]);
        let links = [link(2, "eth0", None), link(9, "eth0.7", None)];
        let (steps, roles) = plan(&wanted, &links, false);
        assert!(steps.is_empty() && roles[&9] == dhcp());
        assert!(matches!(&roles[&2], Role::Interface(Addressing { fixed, .. }) if fixed.len() == 1));
    }

    #[test]
    fn a_vlan_of_large_frames_leaves_its_port_at_rest() {
        let wanted = wanted(&["eth0,vlan=7,mtu=9000", "eth0,mtu=1600"]);
        let mut links = [link(2, "eth0", None), link(9, "eth0.7", None)];
        let larger = |port, name: &str| Step::Mtu { port, name: name.into(), mtu: 9000 };
        assert_eq!(plan(&wanted, &links, false).0, [larger(2, "eth0"), larger(9, "eth0.7")]);
        links.iter_mut().for_each(|link| link.mtu = 9000);
        assert_eq!(plan(&wanted, &links, false).0, []);
    }

    #[test]
    fn ports_that_are_not_there_are_named() {
        let wanted = wanted(&["eth0+02:00:00:00:00:0b,bond=802.3ad", "02:00:00:00:00:03,vlan=7"]);
        let links = [link(2, "eth0", None), link(3, "eth1", None)];
        let missing: Vec<_> = missing(&wanted, &links).map(|(port, _)| port.to_string()).collect();
        assert_eq!(missing, ["02:00:00:00:00:0b"]);
    }

    #[test]
    fn a_long_name_leaves_room_for_the_vlan() {
        assert_eq!(vlan_name(&link(7, "enp129s0f1np1", None), 4000), "vlan7.4000");
    }
}
