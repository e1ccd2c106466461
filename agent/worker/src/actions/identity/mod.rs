//! `identity`: the new system becomes this machine and no copy of another. All of it is files of that system; one program of its
//! own runs, which makes its host keys. Doing it twice leaves what doing it once does.

mod accounts;
mod copies;
mod host_keys;
mod names;
mod network;
mod users;

use landfall_api::{SystemIdentity, SystemIdentityResult, message::ActionResult};

use super::files::{Attributes, Files};
use crate::{Context, Failure};

/// Writes it.
pub(super) fn perform(context: &Context<'_>, spec: &SystemIdentity) -> Result<ActionResult, Failure> {
    let (files, report) = (Files::of(context.target)?, context.report);
    // What the system lacks, and what cannot be read of it, is found before its first file changes.
    let network = spec.network.as_ref().map(|network| network::planned(&files, network)).transpose()?;
    let server = spec.new_host_keys && host_keys::wanted(&files)?;
    let hosts = names::hosts(files.text("/etc/hosts")?.as_deref(), &spec.hostname);
    let left = copies::left(&files, spec.new_host_keys)?;
    users::write(report, &files, &spec.users)?;
    if let Some(network) = &network {
        network.write(report, &files)?;
    }
    files.put("/etc/hostname", format!("{}\n", names::short(&spec.hostname)).as_bytes(), Attributes::of_root(0o644))?;
    files.put("/etc/hosts", hosts.as_bytes(), Attributes::of_root(0o644))?;
    let machine_id = spec.new_machine_id && copies::renew(&files)?;
    if server {
        host_keys::renew(report, context.target, &files, &spec.hostname)?;
    }
    for path in left {
        report.warn(format_args!("{path} stays as it is, and is the same on every copy of this image or archive"));
    }
    let names: Vec<&str> = spec.users.iter().map(|user| user.name.as_str()).collect();
    let parts = [
        Some(format!("hostname {}", spec.hostname)),
        (!names.is_empty()).then(|| format!("accounts {}", names.join(" "))),
        machine_id.then(|| "a new machine-id at its first start".to_owned()),
        server.then(|| "new SSH host keys".to_owned()),
        network.map(|network| format!("network files of {}", network.format.as_str())),
    ];
    let written = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    // The agent knows which device is mounted there.
    Ok(ActionResult::Identity(SystemIdentityResult { root_device: String::new(), written }))
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path};

    use landfall_api::message::ActionKind;

    use super::*;
    use crate::testing::put;
    use crate::{Reporter, testing};

    fn performed() -> Result<SystemIdentityResult, Failure> {
        let spec = serde_json::json!({"hostname": "node-17.example.net", "users": [{"name": "anna"}],
            "network": {"interfaces": [{"name": "eth0", "nameservers": ["192.0.2.53"]}]}});
        let spec: landfall_api::SystemIdentitySpec = serde_json::from_value(spec).unwrap();
        let spec = spec.resolved("m").unwrap();
        let job = testing::job(ActionKind::Identity(spec.clone()));
        let report = Reporter::new(io::sink());
        match perform(&Context { job: &job, report: &report, target: Path::new("/root") }, &spec)? {
            ActionResult::Identity(done) => Ok(done),
            other => panic!("{other:?}"),
        }
    }

    fn system() {
        put("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        put("etc/group", "root:x:0:\n");
        put("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        put("usr/lib/systemd/systemd", "");
        put("usr/sbin/netplan", "");
    }

    #[test]
    fn the_result_says_what_was_written() {
        testing::caged(|| {
            system();
            for _ in 0..2 {
                assert_eq!(
                    performed().unwrap().written,
                    "hostname node-17.example.net, accounts anna, a new machine-id at its first start, network files of netplan"
                );
            }
            let read = |path: &str| fs::read_to_string(Path::new("/root").join(path)).unwrap();
            assert_eq!(read("etc/hostname"), "node-17\n");
            assert!(read("etc/hosts").contains("127.0.1.1\tnode-17.example.net node-17\n"));
        });
    }

    #[test]
    fn a_file_that_cannot_be_read_stops_it_unwritten() {
        testing::caged(|| {
            system();
            fs::write("/root/etc/hosts", b"127.0.0.1 localhost\xff\n").unwrap();
            assert_eq!(performed().unwrap_err().problem.subject, "/etc/hosts");
            let passwd = fs::read_to_string("/root/etc/passwd").unwrap();
            assert!(!passwd.contains("anna") && !Path::new("/root/etc/netplan").exists(), "{passwd}");
        });
    }
}
