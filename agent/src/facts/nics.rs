//! The network ports that identify a machine.

use std::fs;
use std::path::Path;

use landfall_api::{MacAddr, NicFacts};

use super::{children, ethtool, link_name, name_of, read as text};

/// Every Ethernet port with a device behind it, by name. `or_virtual`: where there is none, as in a container or a network
/// namespace, the virtual ports (veth, macvlan and similar) count in their place. They never stand beside hardware: their
/// addresses change with every restart, and some, such as a container bridge's, are the same on many hosts. `permanent`: the address
/// that a port was made with, which its driver may know.
pub(super) fn read(root: &Path, or_virtual: bool, permanent: impl Fn(&str) -> Option<MacAddr>) -> Vec<NicFacts> {
    let ports = children(root);
    let found = |wanted: fn(&Path) -> bool| {
        let wanted = ports.iter().filter(|port| wanted(port));
        wanted.filter_map(|port| nic(port, permanent(&name_of(port)))).collect()
    };
    let hardware: Vec<NicFacts> = found(is_hardware);
    if hardware.is_empty() && or_virtual { found(leads_out) } else { hardware }
}

fn is_hardware(port: &Path) -> bool {
    port.join("device").exists()
}

/// A virtual port that is neither a bridge nor plugged into one: those connect guests of this host.
fn leads_out(port: &Path) -> bool {
    !port.join("bridge").exists() && !port.join("brport").exists()
}

fn nic(port: &Path, permanent: Option<MacAddr>) -> Option<NicFacts> {
    // ARPHRD_ETHER (include/uapi/linux/if_arp.h).
    if text(&port.join("type")) != "1" {
        return None;
    }
    // In a bond every port has the bond's address.
    let own = permanent.or_else(|| text(&port.join("bonding_slave/perm_hwaddr")).parse().ok());
    let mac: MacAddr = own.or_else(|| text(&port.join("address")).parse().ok())?;
    Some(NicFacts {
        firmware: ethtool::firmware(&name_of(port)),
        name: name_of(port),
        mac,
        driver: link_name(&port.join("device/driver")),
        // -1 without carrier, and with drivers that do not report it.
        speed_mbit: text(&port.join("speed")).parse().ok().filter(|s| *s > 0),
        carrier: text(&port.join("carrier")) == "1",
        address: on_bus(port),
        neighbour: None,
    })
}

/// Where the port's device is on PCI or USB. What virtio puts in between is no place.
fn on_bus(port: &Path) -> String {
    let Ok(device) = fs::canonicalize(port.join("device")) else { return String::new() };
    let on_bus = |path: &&Path| ["pci", "usb"].contains(&link_name(&path.join("subsystem")).as_str());
    device.ancestors().find(on_bus).map(name_of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// Ports as sysfs shows them: name, the file or directory that tells what kind it is, ARP type.
    fn sysfs(ports: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let net = tempfile::tempdir().unwrap();
        for (name, kind, arp) in ports {
            let port = net.path().join(name);
            fs::create_dir_all(port.join(kind)).unwrap();
            fs::write(port.join("type"), arp).unwrap();
            fs::write(port.join("address"), "52:54:00:00:00:01\n").unwrap();
            fs::write(port.join("carrier"), "1\n").unwrap();
            fs::write(port.join("speed"), "-1\n").unwrap();
        }
        net
    }

    fn names(found: &[NicFacts]) -> Vec<&str> {
        found.iter().map(|n| n.name.as_str()).collect()
    }

    #[test]
    fn virtual_ports_do_not_count_beside_hardware() {
        let net =
            sysfs(&[("eth0", "device", "1"), ("br0", "bridge", "1"), ("ib0", "device", "32"), ("veth1", "", "1")]);
        for or_virtual in [false, true] {
            let found = read(net.path(), or_virtual, |_| None);
            assert_eq!(names(&found), ["eth0"]);
            assert!(found[0].carrier && found[0].speed_mbit.is_none());
        }
    }

    #[test]
    fn a_port_keeps_the_address_that_it_was_made_with() {
        let net = sysfs(&[("eth0", "device", "1"), ("eth1", "device", "1"), ("eth2", "device", "1")]);
        fs::create_dir(net.path().join("eth1/bonding_slave")).unwrap();
        fs::write(net.path().join("eth1/bonding_slave/perm_hwaddr"), "52:54:00:00:00:02\n").unwrap();
        let permanent = |port: &str| (port == "eth2").then_some(MacAddr([0x52, 0x54, 0, 0, 0, 3]));
        let found = read(net.path(), false, permanent);
        assert_eq!(found.iter().map(|n| n.mac.0[5]).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn virtual_ports_count_where_there_is_no_hardware() {
        let ports = [("docker0", "bridge", "1"), ("eth0", "", "1"), ("lo", "", "772"), ("veth1", "brport", "1")];
        let net = sysfs(&ports);
        assert_eq!(names(&read(net.path(), true, |_| None)), ["eth0"]);
        assert!(read(net.path(), false, |_| None).is_empty());
    }

    #[test]
    fn a_veth_pair_in_a_network_namespace_counts() {
        let have_ip = Command::new("ip").arg("-V").output().is_ok();
        if !nix::unistd::geteuid().is_root() || !have_ip {
            eprintln!("SKIPPED: needs root and ip");
            return;
        }
        // A thread of its own: its namespaces end with it.
        let seen = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            // sysfs shows the ports of the namespace that mounted it.
            let sys = tempfile::tempdir().unwrap();
            mount(Some("sysfs"), sys.path(), Some("sysfs"), MsFlags::empty(), none).unwrap();
            let made = Command::new("ip").args("link add up0 type veth peer name far0".split(' ')).status().unwrap();
            assert!(made.success());
            let seen = read(&sys.path().join("class/net"), true, ethtool::permanent_address);
            nix::mount::umount(sys.path()).unwrap();
            seen
        })
        .join()
        .unwrap();
        assert_eq!(names(&seen), ["far0", "up0"]);
        assert_ne!(seen[0].mac, seen[1].mac);
    }
}
