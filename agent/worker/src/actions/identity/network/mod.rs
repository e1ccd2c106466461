//! The network of the new system, as the files of its own network service: which one it has, and what is written. The texts are
//! made by one pure file for each.

mod choice;
mod enable;
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
    /// A unit that must be started, and the links that start it.
    enabled: Option<(&'static str, Vec<(String, String)>)>,
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
    if let Some(what) = has.rival(format) {
        let message =
            format!("the new system would configure its interfaces twice: by {}, and {what}", format.as_str());
        let hint = "write the network.format of the other service, or remove the other service or its file from what is unpacked";
        return Err(refused(message, hint));
    }
    serves(&has, format, ports)?;
    let systemd = if files.has("/usr/lib/systemd/systemd-networkd") { "/usr/lib/systemd" } else { "/lib/systemd" };
    let mut texts = match format {
        NetworkFormat::Ifupdown => vec![ifupdown::text(ports)],
        NetworkFormat::Networkd => networkd::texts(ports, systemd),
        NetworkFormat::NetworkManager => network_manager::texts(ports),
        NetworkFormat::Netplan | NetworkFormat::Auto => {
            vec![netplan::text(ports, has.netplan_needs_network_manager())]
        }
    };
    texts.extend(has.needs_resolv_conf(format).then(|| resolv_conf(ports)).flatten());
    let read = |unit: &str| {
        let path = UNITS.iter().map(|folder| format!("{folder}/{unit}")).find(|path| files.has(path))?;
        let text = files.text(&path).ok()??;
        Some((path, text))
    };
    let enabled = has.must_start(format).map(|unit| (unit, enable::links(unit, read)));
    if let Some((unit, _)) = enabled.as_ref().filter(|(_, links)| links.is_empty()) {
        let hint = "enable it in what is unpacked (systemctl enable), or write the network.format of another service";
        return Err(refused(
            format!("{unit} of the new system does not start, and does not say what would start it"),
            hint,
        ));
    }
    Ok(Planned { format, texts, enabled })
}

/// The service can do what is stated of the interfaces.
fn serves(has: &Has, format: NetworkFormat, ports: &[InterfaceSpec]) -> Result<(), Failure> {
    let asks = ports.iter().any(asks);
    if format == NetworkFormat::Ifupdown {
        if asks && !has.dhcp_client {
            let message = "the new system has no DHCP client for its ifupdown, such as dhclient or dhcpcd".into();
            return Err(refused(message, "install isc-dhcp-client or dhcpcd in what is unpacked, or state addresses"));
        }
        let several = |port: &&InterfaceSpec| {
            let v4 = port.addresses.iter().filter(|address| address.ip.is_ipv4()).count();
            v4 > 1 || port.addresses.len() - v4 > 1
        };
        if let Some(port) = ports.iter().find(several).filter(|_| !has.ifupdown_patterns) {
            let name = port.name.as_deref().unwrap_or_default();
            let message = format!("the ifupdown of the new system gives {name} one address of a kind, not several");
            return Err(refused(message, "state one IPv4 and one IPv6 address, or install Debian's ifupdown"));
        }
    }
    // dhclient and its kin write the file themselves.
    let stated = ports.iter().any(|port| !port.nameservers.is_empty());
    if asks && !stated && format != NetworkFormat::Ifupdown && has.needs_resolv_conf(format) {
        let message =
            "nothing in the new system would write the name servers of DHCP to /etc/resolv.conf: systemd-resolved does not start".into();
        return Err(refused(message, "install and enable systemd-resolved in what is unpacked, or state nameservers"));
    }
    Ok(())
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
        if let Some((unit, links)) = &self.enabled {
            for (at, place) in links {
                files.link(at, place, (0, 0))?;
            }
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
        let waits = self.format == NetworkFormat::Networkd && files.has(networkd::WAIT);
        let paths = paths.chain(waits.then(|| networkd::WAIT.to_owned()));
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
    let mut servers = once(ports.iter().flat_map(|port| &port.nameservers));
    servers.truncate(MOST_NAMESERVERS);
    let domains = once(ports.iter().flat_map(|port| &port.search_domains));
    let search = if domains.is_empty() { String::new() } else { format!("search {}\n", domains.join(" ")) };
    let lines: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let content = format!("{HEADER}\n{search}{lines}");
    (!servers.is_empty()).then(|| Text { path: "/etc/resolv.conf".into(), mode: 0o644, content })
}

/// Each as text, in order, the first time that it comes.
fn once<T: ToString>(all: impl Iterator<Item = T>) -> Vec<String> {
    let mut known = std::collections::BTreeSet::new();
    all.map(|one| one.to_string()).filter(|one| known.insert(one.clone())).collect()
}

fn refused(message: String, hint: &str) -> Failure {
    Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use std::{fs, io, os::unix::fs::symlink, path::Path};

    use landfall_golden as golden;

    use super::*;
    use crate::testing::caged;

    /// By address, by name, by pattern; fixed and asked for; of both kinds.
    fn ports() -> Vec<InterfaceSpec> {
        let spec = serde_json::json!([
            {"mac": "52:54:00:12:34:56", "addresses": ["192.0.2.17/24", "192.0.2.18/32", "2001:db8::17/64"],
             "gateways": ["192.0.2.1", "2001:db8::1"], "nameservers": ["192.0.2.54", "192.0.2.53", "2001:db8::53"],
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
            ("networkd", networkd::texts(&ports, "/usr/lib/systemd")),
            ("networkd-pattern", networkd::texts(&pattern, "/usr/lib/systemd")),
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

    /// In a cage; each path with its text.
    fn system(paths: &[(&str, &str)]) -> Files {
        for (path, text) in paths {
            let path = Path::new("/root").join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Files::of(Path::new("/root")).unwrap()
    }

    fn written(files: &Files, format: NetworkFormat, ports: &[InterfaceSpec]) -> Result<NetworkFormat, Failure> {
        let network = NetworkSpec { format, interfaces: ports.to_vec() };
        let planned = planned(files, &network)?;
        planned.write(&Reporter::new(io::sink()), files)?;
        Ok(planned.format)
    }

    const NETWORKD: (&str, &str) = (
        "/usr/lib/systemd/system/systemd-networkd.service",
        "[Install]\nWantedBy=multi-user.target\nAlso=systemd-networkd-wait-online.service\n",
    );
    const WAIT_ONLINE: (&str, &str) =
        ("/usr/lib/systemd/system/systemd-networkd-wait-online.service", "[Install]\nWantedBy=network-online.target\n");
    const RESOLVED: [(&str, &str); 2] = [
        ("/usr/lib/systemd/system/systemd-resolved.service", ""),
        ("/etc/systemd/system/sysinit.target.wants/systemd-resolved.service", ""),
    ];

    #[test]
    fn netplan_has_no_other_file_afterwards() {
        caged(|| {
            let there = ["/usr/sbin/netplan", "/etc/netplan/50-cloud-init.yaml", "/etc/netplan/README"];
            let files = system(&there.map(|path| (path, "")));
            assert_eq!(written(&files, NetworkFormat::Auto, &ports()).unwrap(), NetworkFormat::Netplan);
            assert_eq!(files.names("/etc/netplan").unwrap(), ["60-landfall.yaml", "README"]);
            assert_eq!(files.attributes("/etc/netplan/60-landfall.yaml").unwrap(), Attributes::of_root(0o600));
            assert!(files.has("/etc/resolv.conf"), "no service writes it");
        });
    }

    #[test]
    fn a_service_that_does_not_start_is_enabled() {
        caged(|| {
            let files = system(&[NETWORKD, WAIT_ONLINE]);
            for count in [2, 1] {
                let format = written(&files, NetworkFormat::Auto, &ports()[..count]).unwrap();
                assert_eq!(format, NetworkFormat::Networkd);
                assert_eq!(files.names("/etc/systemd/network").unwrap().len(), count, "no file of before is left");
                let link = |path: &str| files.target(&format!("/etc/systemd/system/{path}")).unwrap_or_default();
                assert_eq!(link("multi-user.target.wants/systemd-networkd.service"), NETWORKD.0);
                assert_eq!(link("network-online.target.wants/systemd-networkd-wait-online.service"), WAIT_ONLINE.0);
            }
        });
    }

    #[test]
    fn waiting_for_any_port_ends_with_the_pattern() {
        caged(|| {
            let files = system(&[&[NETWORKD][..], &RESOLVED].concat());
            for (ports, waits) in [(pattern(), true), (ports(), false)] {
                written(&files, NetworkFormat::Auto, &ports).unwrap();
                assert_eq!(files.has(networkd::WAIT), waits);
            }
        });
    }

    #[test]
    fn what_would_leave_it_without_a_network_is_refused() {
        let ifup =
            [("/sbin/ifup", ""), ("/lib/systemd/system/networking.service", "[Install]\nWantedBy=multi-user.target\n")];
        let eth0 = ("/etc/network/interfaces", "auto lo\niface lo inet loopback\niface eth0 inet dhcp\n");
        let manager = [
            ("/usr/lib/systemd/system/NetworkManager.service", ""),
            ("/etc/systemd/system/multi-user.target.wants/NetworkManager.service", ""),
        ];
        let (auto, networkd) = (NetworkFormat::Auto, NetworkFormat::Networkd);
        let mut wrong = Vec::new();
        for (there, format, ports, said) in [
            (vec![("/usr/sbin/ifup", ""), ("/etc/sysconfig/network/config", "")], auto, ports(), "no network service"),
            (vec![NETWORKD], auto, pattern(), "name servers of DHCP"),
            (vec![("/usr/lib/systemd/system/systemd-networkd.service", "")], auto, ports(), "what would start it"),
            (ifup.to_vec(), auto, pattern(), "no DHCP client"),
            ([&ifup[..], &[eth0], &manager].concat(), auto, ports(), "/etc/network/interfaces"),
            ([&[NETWORKD][..], &manager].concat(), networkd, ports(), "NetworkManager starts"),
        ] {
            caged(|| {
                let files = system(&there);
                let problem = written(&files, format, &ports).err().map(|failure| failure.problem);
                let refused = problem.is_some_and(|it| it.message.contains(said) && !it.hint.is_empty());
                let unwritten = !files.has("/etc/systemd/network") && !files.has("/etc/NetworkManager");
                wrong.extend((!refused || !unwritten).then_some(said));
            });
        }
        assert_eq!(wrong, [""; 0], "not refused, or not unwritten");
        caged(|| {
            let files = system(&[NETWORKD]);
            fs::create_dir_all("/root/etc/systemd/system").unwrap();
            symlink("/dev/null", "/root/etc/systemd/system/systemd-networkd.service").unwrap();
            let problem = written(&files, auto, &ports()).unwrap_err().problem;
            assert!(problem.message.contains("no network service"), "masked: {problem}");
        });
    }

    #[test]
    fn what_the_system_cannot_do_is_refused_unwritten() {
        caged(|| {
            let files =
                system(&[("/etc/network/interfaces", "old"), ("/etc/init.d/networking", ""), ("/bin/busybox", "")]);
            fs::create_dir_all("/root/sbin").unwrap();
            for (format, said) in [(NetworkFormat::Netplan, "no netplan"), (NetworkFormat::Auto, "no network service")]
            {
                let problem = written(&files, format, &ports()).unwrap_err().problem;
                assert!(problem.message.contains(said), "{problem}");
            }
            for program in ["ifup", "udhcpc"] {
                symlink("/bin/busybox", format!("/root/sbin/{program}")).unwrap();
            }
            let problem = written(&files, NetworkFormat::Auto, &ports()).unwrap_err().problem;
            assert!(problem.message.contains("52:54:00:12:34:56"), "{problem}");
            let mut several = ports()[..1].to_vec();
            (several[0].mac, several[0].name) = (None, Some("eth0".into()));
            let problem = written(&files, NetworkFormat::Auto, &several).unwrap_err().problem;
            assert!(problem.message.contains("gives eth0 one address"), "{problem}");
            assert_eq!(files.text("/etc/network/interfaces").unwrap().as_deref(), Some("old"));
            assert_eq!(written(&files, NetworkFormat::Auto, &ports()[1..3]).unwrap(), NetworkFormat::Ifupdown);
            assert!(files.text("/etc/network/interfaces").unwrap().unwrap().contains("auto enp3s0"));
            assert_eq!(files.attributes("/etc/network/interfaces").unwrap(), Attributes::of_root(0o644));
        });
    }
}
