//! What GNU tar stores comes back: every kind of file, in each of its formats.

mod common;

use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use common::{difference, facts, tar, unpacked};
use landfall_unpack::{Manner, Target};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat, utimensat,
};

/// The list of `src/acl.rs`, as the kernel takes it.
const ACL: &str = "0200000001000600ffffffff02000700e803000004000400ffffffff08000500d007000010000700ffffffff\
                   20000400ffffffff";
const DEFAULT_ACL: &str = "0200000001000700ffffffff02000700e803000004000500ffffffff10000700ffffffff20000500ffffffff";

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

fn attribute(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, CString::new(name).unwrap(), value, XattrFlags::empty()).unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// Whether this machine's directory for temporary files keeps attributes: memory of an older kernel does not.
fn attributes_are_kept() -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kept = lsetxattr(file.path(), c"user.probe", b"x", XattrFlags::empty());
    if let Err(e) = &kept {
        eprintln!("SKIPPED: attributes cannot be set here: {e}");
    }
    kept.is_ok()
}

fn timed(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Everything that an archive can hold. Times are whole seconds, which every format has; `rich`: what pax alone has too.
fn make(tree: &Path, rich: bool) {
    let at = |name: &str| tree.join(name);
    for directory in ["etc", "usr/bin", "usr/lib", "var/log", "closed", "var/tmp"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    fs::write(at("etc/passwd"), "root:x:0:0::/:\n").unwrap();
    fs::write(at("etc/empty"), "").unwrap();
    let large: Vec<u8> = (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(at("usr/lib/large"), &large).unwrap();
    fs::hard_link(at("usr/lib/large"), at("usr/lib/again")).unwrap();
    symlink("usr/lib", at("lib")).unwrap();
    symlink("/nowhere/at/all", at("etc/dangling")).unwrap();
    fs::hard_link(at("etc/dangling"), at("etc/same-link")).unwrap();
    let (part, name) = ("d".repeat(80), "n".repeat(200));
    let deep = format!("usr/{part}/{part}/{part}");
    fs::create_dir_all(at(&deep)).unwrap();
    fs::write(at(&deep).join(&name), "deep").unwrap();
    symlink(format!("../{}", "t".repeat(250)), at("etc/long-link")).unwrap();
    fs::hard_link(at(&deep).join(&name), at("etc/long-hard-link")).unwrap();
    let sparse = File::create(at("var/sparse")).unwrap();
    for n in 0..40_u64 {
        sparse.write_all_at(format!("piece {n}").as_bytes(), n * 300_000).unwrap();
    }
    sparse.set_len(40 * 300_000).unwrap();
    File::create(at("var/hole")).unwrap().set_len(5_000_000).unwrap();
    mknodat(CWD, at("var/pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    if root() {
        mknodat(CWD, at("var/null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 3)).unwrap();
        mknodat(CWD, at("var/disk"), FileType::BlockDevice, Mode::from_raw_mode(0o660), makedev(259, 70_000)).unwrap();
        chown(at("etc/passwd"), Some(4321), Some(54_321)).unwrap();
        chown(at("usr/lib"), Some(7), Some(2_000_000_000)).unwrap();
        lchown(at("lib"), Some(5), Some(6)).unwrap();
        chown(at("var/pipe"), Some(8), Some(9)).unwrap();
    }
    fs::write(at("usr/bin/tool"), "#!").unwrap();
    for (name, mode) in
        [("usr/bin/tool", 0o6755), ("var/tmp", 0o1777), ("closed", 0o000), ("etc/passwd", 0o640), ("usr/lib", 0o2755)]
    {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    if rich {
        attribute(&at("etc/passwd"), "user.binary", b"\n\0=\xff");
        attribute(&at("etc"), "user.of-directory", b"x");
        attribute(&at("etc/passwd"), "system.posix_acl_access", &bytes(ACL));
        attribute(&at("var/log"), "system.posix_acl_default", &bytes(DEFAULT_ACL));
        fs::write(at("var/log/of-default"), "").unwrap();
        if root() {
            attribute(&at("usr/bin/tool"), "security.capability", &bytes("0100000200200000000000000000000000000000"));
            attribute(&at("lib"), "trusted.of-link", b"y");
        }
        timed(&at("etc/empty"), -86_400, 250_000_000);
        timed(&at("lib"), 1_500_000_000, 123_456_789);
    }
    // Last, of the innermost first: what is made in a directory changes its time.
    let all = facts(tree);
    for (n, (place, _)) in
        all.iter().enumerate().rev().filter(|(_, (place, _))| !rich || place != &Path::new("etc/empty"))
    {
        timed(&tree.join(place), 1_600_000_000 + n as i64, if rich { n as i64 * 1001 } else { 0 });
    }
}

fn back(arguments: &[&str], rich: bool, piece: usize) {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(source.path(), rich);
    let archive = tar(&[arguments, &["-c", "."]].concat(), source.path());
    let new = Target { system: target.path(), path: "/new", hidden: &[] };
    let tally = common::by(&archive, &new, Manner::Archive, piece).unwrap();
    let (mut expected, found) = (facts(source.path()), facts(&target.path().join("new")));
    if !arguments.contains(&"-S") {
        expected.values_mut().for_each(|facts| facts.holes = false);
    }
    assert_eq!(difference(&expected, &found), None, "{arguments:?}, {piece}");
    assert_eq!(tally.entries, expected.len() as u64);
}

#[test]
fn every_format_of_gnu_tar_comes_back() {
    for format in ["gnu", "oldgnu", "pax"] {
        back(&[&format!("--format={format}")], false, 64 * 1024);
    }
}

#[test]
fn files_with_holes_come_back_with_them() {
    for format in [
        &["--format=gnu", "-S"][..],
        &["--format=pax", "-S", "--sparse-version=0.0"],
        &["--format=pax", "-S", "--sparse-version=0.1"],
        &["--format=pax", "-S", "--sparse-version=1.0"],
    ] {
        for piece in [512, 700, 64 * 1024] {
            back(format, false, piece);
        }
    }
}

#[test]
fn attributes_lists_capabilities_and_nanoseconds_come_back() {
    if !attributes_are_kept() {
        return;
    }
    let all = ["--format=pax", "-S", "--acls", "--xattrs", "--xattrs-include=*", "--selinux"];
    for piece in [1, 513, 64 * 1024] {
        back(&all, true, piece);
    }
}

#[test]
fn an_archive_unpacked_again_leaves_what_once_leaves() {
    if !attributes_are_kept() {
        return;
    }
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(source.path(), true);
    let archive = tar(&["--format=pax", "-S", "--xattrs", "--xattrs-include=*", "-c", "."], source.path());
    for _ in 0..2 {
        unpacked(&archive, target.path()).unwrap();
        let (mut expected, mut found) = (facts(source.path()), facts(target.path()));
        // It stood there before.
        for all in [&mut expected, &mut found] {
            all.remove(Path::new(""));
        }
        assert_eq!(difference(&expected, &found), None);
    }
}

#[test]
fn a_cut_archive_is_never_a_success() {
    let source = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::write(source.path().join(name), vec![b'x'; 700]).unwrap();
    }
    fs::create_dir(source.path().join("c".repeat(150))).unwrap();
    let whole = tar(&["--format=pax", "-b", "1", "-c", "."], source.path());
    for cut in (0..whole.len()).step_by(100).chain([whole.len() - 512]) {
        let target = tempfile::tempdir().unwrap();
        let refused = unpacked(&whole[..cut], target.path());
        assert!(refused.is_err(), "cut at {cut} of {}: {refused:?}", whole.len());
    }
    let target = tempfile::tempdir().unwrap();
    unpacked(&whole, target.path()).unwrap();
}

#[test]
fn later_entries_replace_earlier_ones_and_follow_no_link() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| source.path().join(name);
    fs::write(at("file"), "old").unwrap();
    fs::write(at("victim"), "safe").unwrap();
    symlink("victim", at("link")).unwrap();
    let old = tar(&["-c", "file", "victim", "link"], source.path());
    fs::write(at("file"), "new").unwrap();
    fs::remove_file(at("link")).unwrap();
    fs::write(at("link"), "no link").unwrap();
    let new = tar(&["-c", "file", "link"], source.path());
    unpacked(&old, target.path()).unwrap();
    unpacked(&new, target.path()).unwrap();
    let read = |name: &str| fs::read_to_string(target.path().join(name)).unwrap();
    assert_eq!((read("file"), read("victim"), read("link")), ("new".into(), "safe".into(), "no link".into()));
}

#[test]
fn a_directory_entry_goes_through_a_link_to_a_directory() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(source.path().join("lib/modules")).unwrap();
    fs::write(source.path().join("lib/modules/a.ko"), "module").unwrap();
    fs::create_dir_all(target.path().join("usr/lib")).unwrap();
    fs::set_permissions(target.path().join("usr/lib"), fs::Permissions::from_mode(0o711)).unwrap();
    symlink("/usr/lib", target.path().join("lib")).unwrap();
    unpacked(&tar(&["-c", "lib"], source.path()), target.path()).unwrap();
    assert_eq!(fs::read_to_string(target.path().join("usr/lib/modules/a.ko")).unwrap(), "module");
    assert!(fs::symlink_metadata(target.path().join("lib")).unwrap().is_symlink());
    assert_eq!(fs::metadata(target.path().join("usr/lib")).unwrap().mode() & 0o7777, 0o711);
}
