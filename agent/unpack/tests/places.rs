//! A directory of an installed system as the place of an archive: what leads there, and what stays as it was.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{Made, archive, facts, tar, unpacked_to};
use landfall_api::{ErrorCode, message::HiddenPoint};
use landfall_unpack::{Fault, Target, UnpackError};

/// A system with links of its own, in a directory that must not change.
struct System(tempfile::TempDir);

impl System {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        for directory in ["run", "etc", "root/run", "root/var/log", "root/etc"] {
            fs::create_dir_all(outer.path().join(directory)).unwrap();
        }
        symlink("/run", outer.path().join("root/var/run")).unwrap();
        symlink("../run", outer.path().join("root/var/lock")).unwrap();
        Self(outer)
    }
    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }
    fn unpack(&self, entries: &[Made], path: &str) -> Result<(), UnpackError> {
        unpacked_to(&archive(entries), &Target { system: &self.root(), path, hidden: &[] }).map(drop)
    }
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }
}

fn file(name: &str) -> Made {
    Made::new(b'0', name).with(name)
}

#[test]
fn links_of_the_system_lead_where_the_system_has_them() {
    for path in ["/var", "var/", "/./var"] {
        let system = System::new();
        for _ in 0..2 {
            let entries =
                [Made::new(b'5', "run"), file("run/a"), file("lock/b"), Made::new(b'1', "run/c").to("lock/b")];
            system.unpack(&entries, path).unwrap();
        }
        assert!(fs::symlink_metadata(system.root().join("var/run")).unwrap().is_symlink());
        assert_eq!(
            (system.read("run/a"), system.read("run/b"), system.read("run/c")),
            ("run/a".into(), "lock/b".into(), "lock/b".into())
        );
    }
    let system = System::new();
    system.unpack(&[file("x")], "/var/run/new").unwrap();
    assert_eq!(system.read("run/new/x"), "x");
}

#[test]
fn links_of_the_archive_never_lead_out_of_its_directory() {
    for (links, evil) in [
        (vec![("out", "/etc")], "out/passwd"),
        (vec![("out", "../../etc")], "out/passwd"),
        (vec![("out", "../etc"), ("again", "out")], "again/passwd"),
        // Through the system's link, under which the archive's own stands by another name.
        (vec![("run/out", "/etc")], "lock/out/passwd"),
        (vec![("run/out", "../etc")], "lock/out/passwd"),
        (vec![("out", "run/../etc")], "out/passwd"),
    ] {
        let system = System::new();
        let mut entries: Vec<_> = links.iter().map(|(name, target)| Made::new(b'2', name).to(target)).collect();
        entries.push(file(evil));
        for _ in 0..2 {
            // Whether it is refused or lands inside is for the kernel.
            drop(system.unpack(&entries, "/var"));
            assert!(!system.root().join("etc/passwd").exists(), "{links:?}");
            assert!(!system.0.path().join("etc/passwd").exists(), "{links:?}");
        }
    }
    // Inside, they lead where they say.
    let system = System::new();
    let entries = [Made::new(b'5', "real"), Made::new(b'2', "way").to("/real"), file("way/x")];
    system.unpack(&entries, "/var").unwrap();
    assert_eq!(system.read("var/real/x"), "way/x");
}

#[test]
fn only_a_link_to_no_directory_is_replaced() {
    let system = System::new();
    symlink("/nowhere", system.root().join("var/gone")).unwrap();
    symlink("/etc/file", system.root().join("var/file")).unwrap();
    fs::write(system.root().join("etc/file"), "").unwrap();
    symlink("circle", system.root().join("var/circle")).unwrap();
    for name in ["gone", "file", "circle"] {
        let within = format!("{name}/x");
        system.unpack(&[Made::new(b'5', name), file(&within)], "/var").unwrap();
        assert_eq!(system.read(&format!("var/{within}")), within);
    }
}

#[test]
fn a_directory_that_stood_before_keeps_its_attributes() {
    let source = tempfile::tempdir().unwrap();
    fs::set_permissions(source.path(), fs::Permissions::from_mode(0o710)).unwrap();
    fs::write(source.path().join("x"), "").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789);
    fs::File::open(source.path()).unwrap().set_modified(long_ago).unwrap();
    let archive = tar(&["--format=pax", "-c", "."], source.path());
    for path in ["/", "/var/log"] {
        let system = System::new();
        let at = system.root().join(path.trim_start_matches('/'));
        fs::set_permissions(&at, fs::Permissions::from_mode(0o751)).unwrap();
        let before = facts(&at)[Path::new("")].owner;
        unpacked_to(&archive, &Target { system: &system.root(), path, hidden: &[] }).unwrap();
        let after = fs::metadata(&at).unwrap();
        assert_eq!((after.mode() & 0o7777, (after.uid(), after.gid())), (0o751, before), "{path}");
        assert_ne!(after.modified().unwrap(), long_ago, "{path}");
    }
    let system = System::new();
    let target = Target { system: &system.root(), path: "/opt/app", hidden: &[] };
    unpacked_to(&archive, &target).unwrap();
    let (made, source) = (fs::metadata(system.root().join("opt/app")).unwrap(), fs::metadata(source.path()).unwrap());
    assert_eq!((made.mode(), made.mtime(), made.mtime_nsec()), (source.mode(), source.mtime(), source.mtime_nsec()));
    assert_eq!(fs::metadata(system.root().join("opt")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn looking_makes_nothing_and_names_what_is_wrong() {
    let system = System::new();
    fs::write(system.root().join("etc/file"), "").unwrap();
    symlink("/nowhere", system.root().join("opt")).unwrap();
    let before = facts(system.0.path()).len();
    let look = |path: &'static str| Target { system: &system.root(), path, hidden: &[] }.look().map(drop);
    for path in ["/", "/srv/a/b", "/var/run/x"] {
        look(path).unwrap();
    }
    let parts = [("/etc/file", "/etc/file"), ("/etc/file/x", "/etc/file"), ("/opt/app", "/opt"), ("/../x", "")];
    for (path, part) in parts {
        let text = look(path).unwrap_err().to_string();
        assert!(text.contains(&format!("the directory {part}")) && text.ends_with(path), "{text}");
    }
    assert_eq!(facts(system.0.path()).len(), before);
}

#[test]
fn an_entry_without_a_directory_names_the_part_at_fault() {
    let system = System::new();
    fs::write(system.root().join("etc/file"), "").unwrap();
    let error = system.unpack(&[file("etc/file/deep/x")], "/").unwrap_err();
    assert!(error.to_string().contains("the directory etc/file of etc/file/deep/x"), "{error}");
}

#[test]
fn what_the_running_system_would_hide_is_refused() {
    let hidden = ["/tmp", "/home", "/var/lock"]
        .map(|point| HiddenPoint { point: point.into(), why: format!("/etc/fstab mounts it on {point}") });
    let of = |system: &System, path: &str, entries: &[Made]| {
        let target = Target { system: &system.root(), path, hidden: &hidden };
        unpacked_to(&archive(entries), &target).map(drop)
    };
    let directory = Made::new(b'5', "tmp");
    for (path, entry, point) in [
        ("/", file("tmp/x"), "/tmp"),
        ("/", file("home/anna/.profile"), "/home"),
        // As links of the system lead there.
        ("/", file("run/x"), "/var/lock"),
        ("/", file("var/run/x"), "/var/lock"),
        ("/var", file("run/deep/x"), "/var/lock"),
        ("/home", file("x"), "/home"),
        ("/tmp/new", file("x"), "/tmp"),
        ("/var/run/new", file("x"), "/var/lock"),
    ] {
        let system = System::new();
        let error = of(&system, path, &[directory.clone(), entry]).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, UnpackError::Refused { fault: Fault::Hidden(_), .. }) && text.contains(point),
            "{text}"
        );
        assert_eq!(error.problem().code, ErrorCode::NoRootFilesystem);
        assert!(fs::read_dir(system.root().join("run")).unwrap().next().is_none(), "{path}");
    }
    // The directory itself is what something is mounted on.
    let system = System::new();
    of(&system, "/", &[directory, file("homely/x"), file("var/x")]).unwrap();
    of(&system, "/opt", &[file("tmp/x")]).unwrap();
}
