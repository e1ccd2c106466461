//! Which network services a system has, and which of them it starts.

use landfall_api::NetworkFormat;
use rustix::fs::FileType;

use super::super::super::files::Files;
use crate::Failure;

/// Where units are.
pub(super) const UNITS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];
/// Where those that start are.
pub(super) const ENABLED: &str = "/etc/systemd/system";
const NETWORK_MANAGER: &str = "NetworkManager.service";
const NETWORKD: &str = "systemd-networkd.service";
const NETWORKING: &str = "networking.service";
const RESOLVED: &str = "systemd-resolved.service";
/// Those that ifupdown runs for `inet dhcp`.
const DHCP_CLIENTS: [&str; 4] = ["dhclient", "dhcpcd", "udhcpc", "pump"];

/// A service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) installed: bool,
    pub(super) started: bool,
}

/// What it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Has {
    pub(super) netplan: bool,
    pub(super) network_manager: Service,
    pub(super) networkd: Service,
    pub(super) ifupdown: Service,
    /// It is Debian's ifupdown, which knows interfaces by address and pattern; busybox and ifupdown-ng do not.
    pub(super) ifupdown_patterns: bool,
    /// A program that keeps `/etc/resolv.conf`.
    pub(super) resolver: bool,
    /// A program that asks for an address, which ifupdown does not do itself.
    pub(super) dhcp_client: bool,
    /// Files of each service that configure interfaces and are none of Landfall's.
    pub(super) own: Vec<(NetworkFormat, String)>,
}

impl Has {
    /// What the new system has.
    pub(super) fn of(files: &Files) -> Result<Self, Failure> {
        let program =
            |name: &str| ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|at| files.has(&format!("{at}/{name}")));
        let service = |unit: &str| service(files, unit);
        let ifup = |path: &str| files.kind(path).map(|kind| kind == Some(FileType::RegularFile));
        // A program of this name is also wicked's and that of Red Hat's old scripts, which read other files.
        let by_script = files.has("/etc/init.d/networking");
        let networking = service(NETWORKING)?;
        let there = program("ifup") && (networking.installed || by_script);
        Ok(Self {
            netplan: program("netplan"),
            network_manager: service(NETWORK_MANAGER)?,
            networkd: service(NETWORKD)?,
            ifupdown: Service { installed: there, started: there && (networking.started || !networking.installed) },
            ifupdown_patterns: ifup("/sbin/ifup")? || ifup("/usr/sbin/ifup")?,
            resolver: program("resolvconf") || service(RESOLVED)?.started,
            dhcp_client: DHCP_CLIENTS.into_iter().any(program),
            own: own(files)?,
        })
    }

    /// What would configure the interfaces beside the service of this format, as a sentence; `None`: nothing.
    pub(super) fn rival(&self, format: NetworkFormat) -> Option<String> {
        use NetworkFormat::{Ifupdown, Netplan, NetworkManager, Networkd};
        if self.network_manager.started && matches!(format, Networkd | Ifupdown) {
            return Some("NetworkManager starts too".into());
        }
        let reads = |other: NetworkFormat| match other {
            Netplan => self.netplan,
            // NetworkManager leaves to it whatever its file has, whether it starts or not.
            Ifupdown => self.ifupdown.installed,
            Networkd => self.networkd.started,
            NetworkManager | NetworkFormat::Auto => false,
        };
        // Netplan's work is done by networkd: a bond or a bridge beside it may be in networkd's own files.
        let beside = |other| format == Netplan && other == Networkd;
        let rival = self.own.iter().find(|(other, _)| *other != format && !beside(*other) && reads(*other));
        rival.map(|(other, path)| format!("its {} would use {path} too", other.as_str()))
    }

    /// Netplan writes the files of another; else what the system starts; else what it could start.
    pub(super) const fn choose(&self) -> Option<NetworkFormat> {
        let format = if self.netplan {
            NetworkFormat::Netplan
        } else if self.network_manager.started {
            NetworkFormat::NetworkManager
        } else if self.networkd.started {
            NetworkFormat::Networkd
        } else if self.ifupdown.installed {
            NetworkFormat::Ifupdown
        } else if self.network_manager.installed {
            NetworkFormat::NetworkManager
        } else if self.networkd.installed {
            NetworkFormat::Networkd
        } else {
            return None;
        };
        Some(format)
    }

    /// Whether it can be used at all.
    pub(super) const fn installed(&self, format: NetworkFormat) -> bool {
        match format {
            NetworkFormat::Auto => true,
            NetworkFormat::Netplan => self.netplan,
            NetworkFormat::NetworkManager => self.network_manager.installed,
            NetworkFormat::Networkd => self.networkd.installed,
            NetworkFormat::Ifupdown => self.ifupdown.installed,
        }
    }

    /// Netplan hands its work to systemd-networkd unless a file says otherwise.
    pub(super) const fn netplan_needs_network_manager(&self) -> bool {
        self.network_manager.started && !self.networkd.started
    }

    /// Whether no service of the system would write `/etc/resolv.conf`.
    pub(super) const fn needs_resolv_conf(&self, format: NetworkFormat) -> bool {
        let manager = match format {
            NetworkFormat::NetworkManager => true,
            NetworkFormat::Netplan => self.netplan_needs_network_manager(),
            _ => false,
        };
        !manager && !self.resolver
    }

    /// The service that must be made to start, so that the files have an effect. Netplan starts its own.
    pub(super) const fn must_start(&self, format: NetworkFormat) -> Option<&'static str> {
        match format {
            NetworkFormat::NetworkManager if !self.network_manager.started => Some(NETWORK_MANAGER),
            NetworkFormat::Networkd if !self.networkd.started => Some(NETWORKD),
            NetworkFormat::Ifupdown if !self.ifupdown.started => Some(NETWORKING),
            _ => None,
        }
    }
}

/// A unit: whether it is there, and whether something starts it. A masked one is not there.
fn service(files: &Files, unit: &str) -> Result<Service, Failure> {
    let masked = files.target(&format!("{ENABLED}/{unit}")).as_deref() == Some("/dev/null");
    let installed = !masked && UNITS.iter().any(|folder| files.has(&format!("{folder}/{unit}")));
    let mut started = false;
    for base in [ENABLED].iter().chain(&UNITS) {
        let folders = files.names(base)?;
        for folder in folders.iter().filter(|name| name.ends_with(".wants") || name.ends_with(".requires")) {
            // A link, which leads nowhere if its unit is gone.
            started |= files.kind(&format!("{base}/{folder}/{unit}"))?.is_some();
        }
    }
    Ok(Service { installed, started: installed && started })
}

/// Files that configure interfaces, of services that others may stand beside.
fn own(files: &Files) -> Result<Vec<(NetworkFormat, String)>, Failure> {
    let mut all = Vec::new();
    let of = |folder: &str, end: &str| -> Result<Vec<String>, Failure> {
        let names = files.names(folder)?.into_iter().filter(|name| name.ends_with(end) && !name.contains("landfall"));
        Ok(names.map(|name| format!("{folder}/{name}")).collect())
    };
    all.extend(of("/etc/netplan", ".yaml")?.into_iter().map(|path| (NetworkFormat::Netplan, path)));
    all.extend(of("/etc/systemd/network", ".network")?.into_iter().map(|path| (NetworkFormat::Networkd, path)));
    let interfaces = of("/etc/network/interfaces.d", "")?;
    for path in ["/etc/network/interfaces".to_owned()].into_iter().chain(interfaces) {
        let text = files.text(&path)?.unwrap_or_default();
        let configures = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some("iface") && words.next().is_some_and(|name| name != "lo")
        };
        if !text.starts_with(super::HEADER) && text.lines().any(configures) {
            all.push((NetworkFormat::Ifupdown, path));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use NetworkFormat::{Ifupdown, Netplan, NetworkManager, Networkd};

    use super::*;

    const THERE: Service = Service { installed: true, started: false };
    const STARTED: Service = Service { installed: true, started: true };

    #[test]
    fn what_the_system_starts_comes_before_what_it_has() {
        let none = Has::default;
        for (has, chosen, enabled) in [
            (none(), None, None),
            (Has { networkd: THERE, ..none() }, Some(Networkd), Some(NETWORKD)),
            (Has { networkd: THERE, network_manager: THERE, ..none() }, Some(NetworkManager), Some(NETWORK_MANAGER)),
            (Has { networkd: THERE, ifupdown: THERE, ..none() }, Some(Ifupdown), Some(NETWORKING)),
            (Has { networkd: STARTED, ifupdown: STARTED, ..none() }, Some(Networkd), None),
            (Has { networkd: THERE, ifupdown: STARTED, ..none() }, Some(Ifupdown), None),
            (Has { networkd: STARTED, network_manager: STARTED, ..none() }, Some(NetworkManager), None),
            (Has { networkd: STARTED, network_manager: THERE, ..none() }, Some(Networkd), None),
            (Has { netplan: true, network_manager: STARTED, ifupdown: STARTED, ..none() }, Some(Netplan), None),
        ] {
            assert_eq!(has.choose(), chosen, "{has:?}");
            assert_eq!(chosen.and_then(|chosen| has.must_start(chosen)), enabled, "{has:?}");
        }
    }

    #[test]
    fn only_a_system_without_resolver_gets_resolv_conf() {
        let none = Has::default();
        assert!(none.needs_resolv_conf(Ifupdown) && none.needs_resolv_conf(Netplan));
        assert!(!none.needs_resolv_conf(NetworkManager));
        assert!(!Has { resolver: true, ..none.clone() }.needs_resolv_conf(Networkd));
        let desktop = Has { netplan: true, network_manager: STARTED, ..none };
        assert!(desktop.netplan_needs_network_manager() && !desktop.needs_resolv_conf(Netplan));
    }

    #[test]
    fn a_second_service_for_the_same_ports_is_seen() {
        let has = |network_manager, networkd, ifupdown, own: &[(NetworkFormat, &str)]| {
            let own = own.iter().map(|(format, path)| (*format, (*path).to_owned())).collect();
            Has { netplan: true, network_manager, networkd, ifupdown, own, ..Has::default() }
        };
        let none = Service::default();
        let (interfaces, network) = ((Ifupdown, "/etc/network/interfaces"), (Networkd, "/etc/systemd/network/x"));
        for (has, format, said) in [
            (has(STARTED, none, none, &[]), Networkd, "NetworkManager starts"),
            (has(STARTED, none, none, &[]), Ifupdown, "NetworkManager starts"),
            (has(THERE, none, none, &[]), Networkd, ""),
            (has(STARTED, none, THERE, &[interfaces]), NetworkManager, "interfaces"),
            (has(STARTED, none, THERE, &[interfaces]), Netplan, "interfaces"),
            (has(STARTED, none, none, &[interfaces]), NetworkManager, ""),
            (has(none, none, STARTED, &[interfaces]), Ifupdown, ""),
            (has(none, STARTED, STARTED, &[network]), Ifupdown, "/etc/systemd/network/x"),
            (has(none, THERE, STARTED, &[network]), Ifupdown, ""),
            (has(none, STARTED, none, &[network]), Networkd, ""),
            (has(none, none, STARTED, &[(Netplan, "/etc/netplan/y")]), Ifupdown, "/etc/netplan/y"),
        ] {
            let rival = has.rival(format).unwrap_or_default();
            assert!(rival.contains(said) && rival.is_empty() == said.is_empty(), "{format:?} {has:?}: {rival}");
        }
    }
}
