//! The network of the new system, as the files of its own network service: which one it has, and what is written. The texts are
//! made by one pure file for each.

mod choice;
mod ifupdown;
mod netplan;
mod network_manager;
mod networkd;

use landfall_api::{ErrorCode, InterfaceSpec, NetworkFormat, NetworkSpec, Problem};

use self::choice::{Has, UNITS};
use super::super::files::{Attributes, Files};
use crate::{Failure, Reporter};

/// The first line of every file.
const HEADER: &str = "# Written by Landfall from the workflow's identity action.";
/// What a resolver reads (resolv.conf(5), `MAXNS`).
const MOST_NAMESERVERS: usize = 3;

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Text {
    path: String,
    mode: u32,
    content: String,
}

/// What is to be written.
#[derive(Debug)]
pub(super) struct Planned {
    /// Whose files.
    pub(super) format: NetworkFormat,
    texts: Vec<Text>,
    /// A unit that must be started: its name and where it is.
    enabled: Option<(&'static str, String)>,
}

/// Chooses the service and makes its files' texts.
///
/// # Errors
/// The system has no network service, or one that cannot do what is stated.
pub(super) fn planned(files: &Files, network: &NetworkSpec) -> Result<Planned, Failure> {
    let has = Has::of(files)?;
    let format = match network.format {
        NetworkFormat::Auto => has.choose().ok_or_else(|| {
            let message =
                "the new system has no network service that is known: netplan, NetworkManager, systemd-networkd, ifupdown";
            refused(message.into(), "install one of them in what is unpacked")
        })?,
        stated if has.installed(stated) => stated,
        stated => {
            let message = format!("the new system has no {}", stated.as_str());
            return Err(refused(message, "correct network.format in the template, or leave it out"));
        }
    };
    let ports = &network.interfaces;
    let unnamed = ports.iter().find(|port| name(port).is_none());
    if let Some(port) = unnamed.filter(|_| format == NetworkFormat::Ifupdown && !has.ifupdown_patterns) {
        let what = port.mac.map_or_else(|| port.name.clone().unwrap_or_default(), |mac| mac.to_string());
        let message = format!("the ifupdown of the new system finds no interface by address or pattern: {what}");
        return Err(refused(message, "write name: with the interface's whole name"));
    }
    let mut texts = match format {
        NetworkFormat::Ifupdown => vec![ifupdown::text(ports)],
        NetworkFormat::Networkd => networkd::texts(ports),
        NetworkFormat::NetworkManager => network_manager::texts(ports),
        NetworkFormat::Netplan | NetworkFormat::Auto => {
            vec![netplan::text(ports, has.netplan_needs_network_manager())]
        }
    };
    texts.extend(has.needs_resolv_conf(format).then(|| resolv_conf(ports)).flatten());
    let enabled = has.must_start(format).map(|unit| {
        let place = UNITS.iter().map(|folder| format!("{folder}/{unit}")).find(|path| files.has(path));
        (unit, place.unwrap_or_default())
    });
    Ok(Planned { format, texts, enabled })
}

impl Planned {
    /// Writes it.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn write(&self, report: &Reporter, files: &Files) -> Result<(), Failure> {
        for path in self.stale(files)? {
            report.info(format_args!("{path} goes: the workflow states the whole network"));
            files.remove(&path)?;
        }
        for text in &self.texts {
            files.put(&text.path, text.content.as_bytes(), Attributes::of_root(text.mode))?;
            report.info(format_args!("{} is written", text.path));
        }
        if let Some((unit, place)) = &self.enabled {
            files.link(&format!("/etc/systemd/system/multi-user.target.wants/{unit}"), place)?;
            report.info(format_args!("{unit} is enabled"));
        }
        if files.has("/usr/bin/cloud-init") && !files.has("/etc/cloud/cloud-init.disabled") {
            report.warn(
                "the new system has cloud-init, which may write another network when it starts: use cloudInit for it",
            );
        }
        Ok(())
    }

    /// Files that would add to what is written: all of netplan's, and those that an earlier attempt wrote.
    fn stale(&self, files: &Files) -> Result<Vec<String>, Failure> {
        let (folder, is_stale): (_, fn(&str) -> bool) = match self.format {
            NetworkFormat::Netplan | NetworkFormat::Auto => ("/etc/netplan", |name| name.ends_with(".yaml")),
            NetworkFormat::Networkd => ("/etc/systemd/network", |name| name.contains("-landfall-")),
            NetworkFormat::NetworkManager => {
                ("/etc/NetworkManager/system-connections", |name| name.starts_with("landfall-"))
            }
            NetworkFormat::Ifupdown => return Ok(Vec::new()),
        };
        let names = files.names(folder)?.into_iter().filter(|name| is_stale(name));
        let paths = names.map(|name| format!("{folder}/{name}"));
        Ok(paths.filter(|path| self.texts.iter().all(|text| text.path != *path)).collect())
    }
}

/// Its whole name, where it is stated so.
fn name(port: &InterfaceSpec) -> Option<&str> {
    port.name.as_deref().filter(|name| !name.contains(['*', '?']))
}

/// Whether it asks for its addresses.
fn asks(port: &InterfaceSpec) -> bool {
    port.dhcp.unwrap_or(port.addresses.is_empty())
}

/// What every interface is called in files that need a name of their own.
fn label(n: usize) -> String {
    format!("landfall{n}")
}

/// For systems in which no service writes it; `None`: no name servers are stated.
fn resolv_conf(ports: &[InterfaceSpec]) -> Option<Text> {
    let mut servers: Vec<_> = ports.iter().flat_map(|port| &port.nameservers).map(ToString::to_string).collect();
    servers.dedup();
    servers.truncate(MOST_NAMESERVERS);
    let mut domains: Vec<&str> = ports.iter().flat_map(|port| &port.search_domains).map(String::as_str).collect();
    domains.dedup();
    let search = if domains.is_empty() { String::new() } else { format!("search {}\n", domains.join(" ")) };
    let lines: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let content = format!("{HEADER}\n{search}{lines}");
    (!servers.is_empty()).then(|| Text { path: "/etc/resolv.conf".into(), mode: 0o644, content })
}

fn refused(message: String, hint: &str) -> Failure {
    Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use std::{
        fs, io,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::Path,
    };

    use landfall_golden as golden;

    use super::*;

    /// By address, by name, by pattern; fixed and asked for; of both kinds.
    fn ports() -> Vec<InterfaceSpec> {
        let spec = serde_json::json!([
            {"mac": "52:54:00:12:34:56", "addresses": ["192.0.2.17/24", "192.0.2.18/32", "2001:db8::17/64"],
             "gateways": ["192.0.2.1", "2001:db8::1"], "nameservers": ["192.0.2.53", "2001:db8::53"],
             "searchDomains": ["example.net", "lab.example.net"], "mtu": 9000},
            {"name": "enp3s0", "mtu": 1400, "nameservers": ["192.0.2.54"]},
            {"name": "enp4s0", "addresses": ["2001:db8:1::17/64"]},
        ]);
        serde_json::from_value(spec).unwrap()
    }

    fn pattern() -> Vec<InterfaceSpec> {
        vec![InterfaceSpec { name: Some("e*".into()), ..InterfaceSpec::default() }]
    }

    /// Files as one text.
    fn shown(texts: &[Text]) -> String {
        texts.iter().map(|text| format!("== {} {:o}\n{}", text.path, text.mode, text.content)).collect()
    }

    #[test]
    fn every_service_gets_the_recorded_files() {
        let (ports, pattern) = (ports(), pattern());
        for (name, texts) in [
            ("ifupdown", vec![ifupdown::text(&ports)]),
            ("ifupdown-pattern", vec![ifupdown::text(&pattern)]),
            ("networkd", networkd::texts(&ports)),
            ("networkd-pattern", networkd::texts(&pattern)),
            ("network-manager", network_manager::texts(&ports)),
            ("network-manager-pattern", network_manager::texts(&pattern)),
            ("netplan", vec![netplan::text(&ports, false)]),
            ("netplan-pattern", vec![netplan::text(&pattern, false)]),
            ("netplan-network-manager", vec![netplan::text(&ports[1..2], true)]),
            ("resolv-conf", resolv_conf(&ports).into_iter().collect()),
        ] {
            golden::same(&format!("network/{name}.txt"), &shown(&texts));
        }
    }

    fn system(paths: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for path in paths {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "old").unwrap();
        }
        root
    }

    fn written(root: &Path, format: NetworkFormat, interfaces: Vec<InterfaceSpec>) -> Result<NetworkFormat, Failure> {
        let network = NetworkSpec { format, interfaces };
        let files = Files::of(root).unwrap();
        let planned = planned(&files, &network)?;
        planned.write(&Reporter::new(io::sink()), &files)?;
        Ok(planned.format)
    }

    #[test]
    fn netplan_has_no_other_file_afterwards() {
        let root = system(&["/usr/sbin/netplan", "/etc/netplan/50-cloud-init.yaml", "/etc/netplan/README"]);
        assert_eq!(written(root.path(), NetworkFormat::Auto, ports()).unwrap(), NetworkFormat::Netplan);
        let files = Files::of(root.path()).unwrap();
        assert_eq!(files.names("/etc/netplan").unwrap(), ["60-landfall.yaml", "README"]);
        assert_eq!(files.attributes("/etc/netplan/60-landfall.yaml").unwrap(), Attributes::of_root(0o600));
        assert!(files.has("/etc/resolv.conf"), "no service writes it");
    }

    #[test]
    fn a_service_that_does_not_start_is_enabled() {
        let root = system(&["/usr/lib/systemd/system/systemd-networkd.service", "/usr/lib/systemd/systemd-networkd"]);
        for count in [2, 1] {
            assert_eq!(
                written(root.path(), NetworkFormat::Auto, ports()[..count].to_vec()).unwrap(),
                NetworkFormat::Networkd
            );
            let files = Files::of(root.path()).unwrap();
            assert_eq!(files.names("/etc/systemd/network").unwrap().len(), count, "no file of before is left");
            let link = files.target("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service");
            assert_eq!(link.as_deref(), Some("/usr/lib/systemd/system/systemd-networkd.service"));
        }
    }

    #[test]
    fn what_the_system_cannot_do_is_refused_unwritten() {
        let root = system(&["/etc/network/interfaces"]);
        fs::create_dir_all(root.path().join("sbin")).unwrap();
        for (format, said) in [(NetworkFormat::Netplan, "no netplan"), (NetworkFormat::Auto, "no network service")] {
            let problem = written(root.path(), format, ports()).unwrap_err().problem;
            assert!(problem.message.contains(said), "{problem}");
        }
        symlink("/bin/busybox", root.path().join("sbin/ifup")).unwrap();
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::write(root.path().join("bin/busybox"), "").unwrap();
        let problem = written(root.path(), NetworkFormat::Auto, ports()).unwrap_err().problem;
        assert!(problem.message.contains("52:54:00:12:34:56"), "{problem}");
        let old = root.path().join("etc/network/interfaces");
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        assert_eq!(written(root.path(), NetworkFormat::Auto, ports()[1..3].to_vec()).unwrap(), NetworkFormat::Ifupdown);
        assert!(fs::read_to_string(&old).unwrap().contains("auto enp3s0"));
        assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o644);
    }
}
