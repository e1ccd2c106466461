//! Which network services a system has, and which of them it starts.

use landfall_api::NetworkFormat;
use rustix::fs::FileType;

use super::super::super::files::Files;
use crate::Failure;

/// Where units are.
pub(super) const UNITS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];
const ENABLED: &str = "/etc/systemd/system";
const NETWORK_MANAGER: &str = "NetworkManager.service";
const NETWORKD: &str = "systemd-networkd.service";
const RESOLVED: &str = "systemd-resolved.service";

/// What it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Has {
    pub(super) netplan: bool,
    /// Installed, and started.
    pub(super) network_manager: (bool, bool),
    /// Likewise.
    pub(super) networkd: (bool, bool),
    pub(super) ifupdown: bool,
    /// It is Debian's ifupdown, which knows interfaces by address and pattern; busybox and ifupdown-ng do not.
    pub(super) ifupdown_patterns: bool,
    /// A program that keeps `/etc/resolv.conf`.
    pub(super) resolver: bool,
}

impl Has {
    /// What the new system has.
    pub(super) fn of(files: &Files) -> Result<Self, Failure> {
        let program =
            |name: &str| ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|at| files.has(&format!("{at}/{name}")));
        let wants: Vec<String> = files.names(ENABLED)?.into_iter().filter(|name| name.ends_with(".wants")).collect();
        let service = |unit: &str| -> Result<(bool, bool), Failure> {
            let mut started = false;
            for folder in &wants {
                // A link, which leads nowhere if its unit is gone.
                started |= files.kind(&format!("{ENABLED}/{folder}/{unit}"))?.is_some();
            }
            let installed = UNITS.iter().any(|folder| files.has(&format!("{folder}/{unit}")));
            Ok((installed, installed && started))
        };
        let ifup = |path: &str| files.kind(path).map(|kind| kind == Some(FileType::RegularFile));
        Ok(Self {
            netplan: program("netplan"),
            network_manager: service(NETWORK_MANAGER)?,
            networkd: service(NETWORKD)?,
            ifupdown: program("ifup"),
            ifupdown_patterns: ifup("/sbin/ifup")? || ifup("/usr/sbin/ifup")?,
            resolver: program("resolvconf") || service(RESOLVED)?.1,
        })
    }

    /// Netplan writes the files of another; else what the system starts; else what it could start.
    pub(super) const fn choose(&self) -> Option<NetworkFormat> {
        let format = if self.netplan {
            NetworkFormat::Netplan
        } else if self.network_manager.1 {
            NetworkFormat::NetworkManager
        } else if self.networkd.1 {
            NetworkFormat::Networkd
        } else if self.ifupdown {
            NetworkFormat::Ifupdown
        } else if self.network_manager.0 {
            NetworkFormat::NetworkManager
        } else if self.networkd.0 {
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
            NetworkFormat::NetworkManager => self.network_manager.0,
            NetworkFormat::Networkd => self.networkd.0,
            NetworkFormat::Ifupdown => self.ifupdown,
        }
    }

    /// Netplan hands its work to systemd-networkd unless a file says otherwise.
    pub(super) const fn netplan_needs_network_manager(&self) -> bool {
        self.network_manager.1 && !self.networkd.1
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
            NetworkFormat::NetworkManager if !self.network_manager.1 => Some(NETWORK_MANAGER),
            NetworkFormat::Networkd if !self.networkd.1 => Some(NETWORKD),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_starts_comes_before_what_it_has() {
        use NetworkFormat::{Ifupdown, Netplan, NetworkManager, Networkd};
        let none = Has::default();
        let (there, started) = ((true, false), (true, true));
        for (has, chosen, enabled) in [
            (none, None, None),
            (Has { networkd: there, ..none }, Some(Networkd), Some(NETWORKD)),
            (Has { networkd: there, network_manager: there, ..none }, Some(NetworkManager), Some(NETWORK_MANAGER)),
            (Has { networkd: there, ifupdown: true, ..none }, Some(Ifupdown), None),
            (Has { networkd: started, ifupdown: true, ..none }, Some(Networkd), None),
            (Has { networkd: started, network_manager: started, ..none }, Some(NetworkManager), None),
            (Has { networkd: started, network_manager: there, ..none }, Some(Networkd), None),
            (Has { netplan: true, network_manager: started, ifupdown: true, ..none }, Some(Netplan), None),
        ] {
            assert_eq!(has.choose(), chosen, "{has:?}");
            assert_eq!(chosen.and_then(|chosen| has.must_start(chosen)), enabled, "{has:?}");
        }
    }

    #[test]
    fn only_a_system_without_resolver_gets_resolv_conf() {
        let none = Has::default();
        assert!(none.needs_resolv_conf(NetworkFormat::Ifupdown) && none.needs_resolv_conf(NetworkFormat::Netplan));
        assert!(!none.needs_resolv_conf(NetworkFormat::NetworkManager));
        assert!(!Has { resolver: true, ..none }.needs_resolv_conf(NetworkFormat::Networkd));
        let desktop = Has { netplan: true, network_manager: (true, true), ..none };
        assert!(desktop.netplan_needs_network_manager() && !desktop.needs_resolv_conf(NetworkFormat::Netplan));
    }
}
