//! `identity`: the new system becomes this machine and no copy of another. All of it is files of that system; one program of its
//! own runs, which makes its host keys. Doing it twice leaves what doing it once does.

mod accounts;
mod host_keys;
mod names;
mod network;
mod users;

use landfall_api::{SystemIdentity, SystemIdentityResult, message::ActionResult};
use rustix::fs::FileType;

use super::files::{Attributes, Files};
use crate::{Context, Failure};

const MACHINE_ID: &str = "/etc/machine-id";
/// Where D-Bus had it first, and what systemd makes a new one of: so it goes.
const OF_DBUS: &str = "/var/lib/dbus/machine-id";
/// What the random numbers of two copies would have in common.
const SEED: &str = "/var/lib/systemd/random-seed";

/// Writes it.
pub(super) fn perform(context: &Context<'_>, spec: &SystemIdentity) -> Result<ActionResult, Failure> {
    let files = Files::of(context.target)?;
    // What the system lacks is found before its first file changes.
    let network = spec.network.as_ref().map(|network| network::planned(&files, network)).transpose()?;
    let server = spec.new_host_keys && host_keys::wanted(&files)?;
    users::write(&files, &spec.users)?;
    if let Some(network) = &network {
        network.write(context.report, &files)?;
    }
    files.put("/etc/hostname", format!("{}\n", names::short(&spec.hostname)).as_bytes(), Attributes::of_root(0o644))?;
    let hosts = names::hosts(files.text("/etc/hosts")?.as_deref(), &spec.hostname);
    files.put("/etc/hosts", hosts.as_bytes(), Attributes::of_root(0o644))?;
    let machine_id = spec.new_machine_id && renew_machine_id(&files)?;
    if server {
        host_keys::renew(context.report, context.target, &files, &spec.hostname)?;
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

/// Takes the machine-id away, so that systemd makes one when the system starts; whether there was one.
///
/// An empty file, and not a missing one: that would be a "first boot" (machine-id(5)), which asks questions at the console and
/// enables services by their presets.
fn renew_machine_id(files: &Files) -> Result<bool, Failure> {
    let old = files.text(MACHINE_ID)?.filter(|text| !matches!(text.trim(), "" | "uninitialized"));
    let of_dbus = files.kind(OF_DBUS)? == Some(FileType::RegularFile);
    if of_dbus {
        files.remove(OF_DBUS)?;
    }
    files.remove(SEED)?;
    if old.is_some() {
        files.put(MACHINE_ID, b"", Attributes::of_root(0o444))?;
    }
    Ok(old.is_some() || of_dbus)
}

#[cfg(test)]
mod tests {
    use std::{fs, io, os::unix::fs::symlink, path::Path};

    use landfall_api::message::ActionKind;

    use super::*;
    use crate::{Reporter, testing};

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn renewed(root: &Path) -> (bool, Option<String>, bool) {
        let renewed = renew_machine_id(&Files::of(root).unwrap()).unwrap();
        let left = fs::read_to_string(root.join("etc/machine-id")).ok();
        (renewed, left, fs::symlink_metadata(root.join("var/lib/dbus/machine-id")).is_ok())
    }

    #[test]
    fn no_copy_of_a_machine_id_is_left() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        put(root.path(), "var/lib/dbus/machine-id", "0123456789abcdef0123456789abcdef\n");
        put(root.path(), "var/lib/systemd/random-seed", "x");
        assert_eq!(renewed(root.path()), (true, Some(String::new()), false));
        assert!(!root.path().join("var/lib/systemd/random-seed").exists());
        symlink("/etc/machine-id", root.path().join("var/lib/dbus/machine-id")).unwrap();
        assert_eq!(renewed(root.path()), (false, Some(String::new()), true));
    }

    #[test]
    fn a_first_boot_that_an_image_wants_stays_one() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(renewed(root.path()), (false, None, false));
        put(root.path(), "etc/machine-id", "uninitialized\n");
        assert_eq!(renewed(root.path()), (false, Some("uninitialized\n".into()), false));
    }

    #[test]
    fn the_result_says_what_was_written() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        put(root.path(), "etc/group", "root:x:0:\n");
        put(root.path(), "etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        put(root.path(), "usr/sbin/netplan", "");
        let spec = serde_json::json!({"hostname": "node-17.example.net", "users": [{"name": "anna"}],
            "network": {"interfaces": [{"name": "eth0"}]}});
        let spec: landfall_api::SystemIdentitySpec = serde_json::from_value(spec).unwrap();
        let spec = spec.resolved("m").unwrap();
        let job = testing::job(ActionKind::Identity(spec.clone()));
        let report = Reporter::new(io::sink());
        let done = perform(&Context { job: &job, report: &report, target: root.path() }, &spec).unwrap();
        let ActionResult::Identity(done) = done else { panic!("{done:?}") };
        assert_eq!(
            done.written,
            "hostname node-17.example.net, accounts anna, a new machine-id at its first start, network files of netplan"
        );
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(read("etc/hostname"), "node-17\n");
        assert!(read("etc/hosts").contains("127.0.1.1\tnode-17.example.net node-17\n"));
    }
}
