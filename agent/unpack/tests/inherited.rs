//! What files take from the directory that they are made in: its SELinux label, and not its default access control list.

mod common;

use std::{fs, os::unix::fs::symlink, path::Path};

use common::{Made, archive, extended, facts, unpacked};
use rustix::fs::{XattrFlags, lsetxattr};

const SYSTEM: &str = "system_u:object_r:root_t:s0\0";
/// Of the owner, user 1000, the group, the mask and others: what is made there inherits a list of five entries.
const DEFAULT_LIST: &str = "0200000001000700ffffffff02000700e803000004000500ffffffff10000700ffffffff20000500ffffffff";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

/// Whether it could be set; skipped, loudly, where it cannot.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let set = lsetxattr(path, name, value, XattrFlags::empty());
    if let Err(e) = &set {
        eprintln!("SKIPPED: {name} cannot be set here: {e}");
    }
    set.is_ok()
}

fn entries() -> Vec<Made> {
    vec![
        Made::new(b'5', "dir"),
        Made::new(b'0', "dir/file").with("x"),
        Made::new(b'2', "dir/link").to("file"),
        Made::new(b'1', "dir/again").to("dir/file"),
        Made::new(b'6', "dir/pipe"),
        Made::new(b'0', "implied/deep/file").with("x"),
    ]
}

/// The label of each place below `root`.
fn label(root: &Path, place: &str) -> String {
    let all = facts(root);
    let label = all[Path::new(place)].attributes.get("security.selinux");
    label.map_or_else(String::new, |label| String::from_utf8_lossy(label).into_owned())
}

#[test]
fn what_the_archive_does_not_label_gets_its_directorys_label() {
    let root = tempfile::tempdir().unwrap();
    if !set(root.path(), "security.selinux", SYSTEM.as_bytes()) {
        return;
    }
    for _ in 0..2 {
        unpacked(&archive(&entries()), root.path()).unwrap();
        for place in facts(root.path()).keys() {
            assert_eq!(label(root.path(), place.to_str().unwrap()), SYSTEM, "{}", place.display());
        }
    }
}

#[test]
fn a_label_of_the_archive_comes_before_the_directorys() {
    let root = tempfile::tempdir().unwrap();
    if !set(root.path(), "security.selinux", SYSTEM.as_bytes()) {
        return;
    }
    fs::write(root.path().join("shadow"), "old").unwrap();
    set(&root.path().join("shadow"), "security.selinux", b"u:r:shadow_t\0");
    symlink("nowhere", root.path().join("way")).unwrap();
    set(&root.path().join("way"), "security.selinux", b"u:r:way_t\0");
    let entries = [
        Made::new(b'0', "shadow").with("new"),
        Made::new(b'5', "way"),
        extended(&[("RHT.security.selinux", b"u:r:own_t")]),
        Made::new(b'5', "own"),
        Made::new(b'0', "own/file"),
    ];
    for _ in 0..2 {
        unpacked(&archive(&entries), root.path()).unwrap();
        let labels = ["shadow", "way", "own", "own/file"].map(|place| label(root.path(), place));
        assert_eq!(labels, ["u:r:shadow_t\0", "u:r:way_t\0", "u:r:own_t\0", "u:r:own_t\0"]);
    }
}

#[test]
fn a_system_without_labels_gets_none() {
    let root = tempfile::tempdir().unwrap();
    unpacked(&archive(&entries()), root.path()).unwrap();
    assert!(facts(root.path()).values().all(|facts| facts.attributes.is_empty()));
}

#[test]
fn default_lists_of_a_directory_are_not_inherited() {
    let root = tempfile::tempdir().unwrap();
    if !set(root.path(), "system.posix_acl_default", &bytes(DEFAULT_LIST)) {
        return;
    }
    let own = [
        extended(&[("SCHILY.acl.access", b"user::rw-,user:7:rwx,group::r--,mask::rwx,other::---")]),
        Made::new(b'0', "own"),
    ];
    for _ in 0..2 {
        unpacked(&archive(&[entries(), own.to_vec()].concat()), root.path()).unwrap();
        for (place, facts) in facts(root.path()).into_iter().filter(|(place, _)| place != Path::new("")) {
            let (lists, mode) = if place == Path::new("own") { (1, 0o670) } else { (0, 0o644) };
            let mode = if place.starts_with("implied") && facts.kind == 'd' { 0o755 } else { mode };
            assert_eq!(facts.attributes.len(), lists, "{}: {:?}", place.display(), facts.attributes);
            assert!(facts.kind == 'l' || facts.mode == mode, "{}: {:o}", place.display(), facts.mode);
        }
    }
}
