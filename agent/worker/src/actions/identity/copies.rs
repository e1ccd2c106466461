//! What two machines with one image would have in common: the machine-id and what is made of it, and names on the network of disks.

use rustix::fs::FileType;

use super::super::files::{Attributes, Files};
use super::host_keys;
use crate::Failure;

const MACHINE_ID: &str = "/etc/machine-id";
/// Where D-Bus had it first, and what systemd makes a new one of: so it goes.
const OF_DBUS: &str = "/var/lib/dbus/machine-id";
/// The seed of random numbers, and what NetworkManager makes stable addresses of. Both are made anew where they are missing.
const REMADE: [&str; 2] = ["/var/lib/systemd/random-seed", "/var/lib/NetworkManager/secret_key"];
/// What no program makes anew by itself: names by which a storage server knows the machine.
const NAMES: [&str; 3] = ["/etc/iscsi/initiatorname.iscsi", "/etc/nvme/hostid", "/etc/nvme/hostnqn"];
const SYSTEMD: [&str; 2] = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];

/// Takes the machine-id away, so that one is made when the system starts; whether it has none now that it had.
///
/// For systemd an empty file, and not a missing one: that would be a "first boot" (machine-id(5)), which asks questions at the
/// console and enables services by their presets. D-Bus without systemd makes a missing one, and refuses an empty one.
///
/// # Errors
/// The file system's.
pub(super) fn renew(files: &Files) -> Result<bool, Failure> {
    let there = files.text(MACHINE_ID)?;
    let of_dbus = files.kind(OF_DBUS)? == Some(FileType::RegularFile);
    if of_dbus {
        files.remove(OF_DBUS)?;
    }
    for path in REMADE {
        files.remove(path)?;
    }
    let Some(there) = there.filter(|text| text.trim() != "uninitialized") else { return Ok(of_dbus) };
    if !SYSTEMD.iter().any(|path| files.has(path)) {
        files.remove(MACHINE_ID)?;
    } else if !there.is_empty() {
        files.put(MACHINE_ID, b"", Attributes::of_root(0o444))?;
    }
    Ok(true)
}

/// Files that stay the same on every copy, by their paths; `host_keys`: those of SSH servers, too.
///
/// # Errors
/// The file system's.
pub(super) fn left(files: &Files, host_keys: bool) -> Result<Vec<String>, Failure> {
    let mut left = if host_keys { host_keys::others(files)? } else { Vec::new() };
    left.extend(NAMES.iter().filter(|path| files.has(path)).map(|path| (*path).to_owned()));
    Ok(left)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;
    use crate::testing::{caged, put};

    const ID: &str = "0123456789abcdef0123456789abcdef\n";

    fn renewed() -> (bool, Option<String>, bool) {
        let renewed = renew(&Files::of(Path::new("/root")).unwrap()).unwrap();
        let left = fs::read_to_string("/root/etc/machine-id").ok();
        (renewed, left, fs::symlink_metadata("/root/var/lib/dbus/machine-id").is_ok())
    }

    #[test]
    fn no_copy_of_a_machine_id_is_left() {
        caged(|| {
            put("usr/lib/systemd/systemd", "");
            put("etc/machine-id", ID);
            put("var/lib/dbus/machine-id", ID);
            for path in REMADE {
                put(path.trim_start_matches('/'), "x");
            }
            assert_eq!(renewed(), (true, Some(String::new()), false));
            assert!(REMADE.iter().all(|path| !Path::new("/root").join(path.trim_start_matches('/')).exists()));
            symlink("/etc/machine-id", "/root/var/lib/dbus/machine-id").unwrap();
            assert_eq!(renewed(), (true, Some(String::new()), true), "a retry");
        });
    }

    #[test]
    fn a_first_boot_that_an_image_wants_stays_one() {
        caged(|| {
            put("usr/lib/systemd/systemd", "");
            assert_eq!(renewed(), (false, None, false));
            put("etc/machine-id", "uninitialized\n");
            assert_eq!(renewed(), (false, Some("uninitialized\n".into()), false));
        });
    }

    #[test]
    fn without_systemd_the_machine_id_is_missing() {
        caged(|| {
            put("etc/machine-id", ID);
            assert_eq!(renewed(), (true, None, false));
        });
    }

    #[test]
    fn names_that_nothing_makes_anew_are_named() {
        caged(|| {
            put("etc/nvme/hostid", "x");
            put("etc/dropbear/dropbear_rsa_host_key", "x");
            let files = Files::of(Path::new("/root")).unwrap();
            assert_eq!(left(&files, true).unwrap(), ["/etc/dropbear/dropbear_rsa_host_key", "/etc/nvme/hostid"]);
            assert_eq!(left(&files, false).unwrap(), ["/etc/nvme/hostid"]);
        });
    }
}
