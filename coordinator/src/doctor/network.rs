//! The interface: there, up, with the advertised address; and whether another DHCP server is on it.

use std::{fs, net::IpAddr};

use nix::ifaddrs::getifaddrs;

use super::{running::Running, with_causes};
use crate::config::{Config, DhcpMode};
use crate::finding::Finding;
use landfall_boot::dhcp::{DhcpError, probe::refuse_other_servers, v6};

pub(super) async fn check(config: &Config, running: &Running) -> Vec<Finding> {
    let mut findings = vec![advertised(config)];
    if let Some(interface) = &config.dhcp.interface {
        findings.push(interface_up(interface));
        findings.extend(neighbours(config, interface, running).await);
    }
    findings
}

/// Every interface with its addresses of this version of IP.
fn addresses(like: IpAddr) -> Vec<(String, IpAddr)> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    all.filter_map(|one| {
        let address = one.address?;
        let found = match like {
            IpAddr::V4(_) => address.as_sockaddr_in()?.ip().into(),
            IpAddr::V6(_) => address.as_sockaddr_in6()?.ip().into(),
        };
        Some((one.interface_name, found))
    })
    .collect()
}

fn advertised(config: &Config) -> Finding {
    const CHECK: &str = "address";
    let (own, wanted) = (addresses(config.advertise), config.advertise);
    let on = own.iter().find(|(_, address)| *address == wanted).map(|(interface, _)| interface);
    match (on, &config.dhcp.interface) {
        (Some(on), Some(served)) if on != served => Finding::warn(
            CHECK,
            format!("{wanted} (advertise) is on {on}, but machines on {served} are answered"),
            "machines must reach the address from there: correct advertise or dhcp.interface",
        ),
        (Some(on), _) => Finding::ok(CHECK, format!("{wanted} is on {on}")),
        (None, _) => {
            let all: Vec<_> = own.iter().map(|(interface, address)| format!("{address} on {interface}")).collect();
            let hint = format!("this host has {}; if a forwarder has the address, this is correct", all.join(", "));
            Finding::warn(CHECK, format!("{wanted} (advertise) is not an address of this host"), hint)
        }
    }
}

fn interface_up(interface: &str) -> Finding {
    const CHECK: &str = "interface";
    let state = fs::read_to_string(format!("/sys/class/net/{interface}/operstate"));
    match state.as_deref().map(str::trim) {
        // A bridge without ports is "down", a tap "unknown": the kernel sends all the same.
        Ok("up" | "unknown") => Finding::ok(CHECK, format!("{interface} is up")),
        Ok(state) => Finding::fail(
            CHECK,
            format!("{interface} is {state}"),
            format!("run ip link set {interface} up, and check its cable"),
        ),
        Err(_) => Finding::fail(CHECK, format!("there is no interface {interface}"), "correct dhcp.interface"),
    }
}

async fn neighbours(config: &Config, interface: &str, running: &Running) -> Option<Finding> {
    const CHECK: &str = "other DHCP servers";
    if config.dhcp.mode == DhcpMode::Off {
        return None;
    }
    let asked = match config.advertise {
        IpAddr::V4(own) => {
            let ours: Vec<_> = config.boot_services(Vec::new()).other_addresses().chain([own]).collect();
            refuse_other_servers(interface, own, &ours).await
        }
        IpAddr::V6(_) => v6::probe::refuse_other_servers(interface).await,
    };
    let (full, ours) = (config.dhcp.mode == DhcpMode::Full, running.pid.is_some());
    let other = match &asked {
        Err(DhcpError::OtherServer { server, .. }) => Some(IpAddr::from(*server)),
        Err(DhcpError::OtherServerV6 { server, .. }) => Some(IpAddr::from(*server)),
        _ => None,
    };
    Some(match (asked, other) {
        (_, Some(server)) if full => {
            let hint = "two servers conflict: stop it, or set dhcp.mode = \"proxy\"";
            Finding::fail(CHECK, format!("{server} answers on {interface}"), hint)
        }
        (_, Some(server)) => Finding::ok(CHECK, format!("{server} gives the addresses on {interface}")),
        (Err(error), None) => {
            Finding::warn(CHECK, format!("cannot check {interface}: {}", with_causes(&error)), "run as root")
        }
        (Ok(()), None) if full => Finding::ok(CHECK, if ours { "none except ours" } else { "none" }),
        (Ok(()), None) => {
            let hint = "dhcp.mode = \"proxy\" needs a server that leases addresses; without one set \"full\"";
            Finding::warn(CHECK, format!("none answers on {interface}"), hint)
        }
    })
}
