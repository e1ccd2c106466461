//! Layers of an OCI image, one over the other.

mod common;

use std::{collections::BTreeSet, fs, io::Cursor, path::Path};

use common::{Made, archive};
use landfall_unpack::{Fault, Limits, Manner, UnpackError, Unpacker};

fn file(name: &str, content: &str) -> Made {
    Made::new(b'0', name).with(content)
}

fn gone(name: &str) -> Made {
    Made::new(b'0', name)
}

fn unpack(layers: &[Vec<Made>], root: &Path) -> Result<(), UnpackError> {
    let mut unpacker = Unpacker::new(&common::whole(root), Limits::default(), &|| true)?;
    for layer in layers {
        unpacker.archive(&mut Cursor::new(archive(layer)), Manner::Layer)?;
    }
    unpacker.finish().map(drop)
}

/// What files there are after these layers: `place=content`.
fn files(layers: &[Vec<Made>]) -> BTreeSet<String> {
    let root = tempfile::tempdir().unwrap();
    unpack(layers, root.path()).unwrap();
    let all = common::facts(root.path());
    let files = all.iter().filter(|(_, facts)| facts.kind != 'd');
    files.map(|(place, facts)| format!("{}={}", place.display(), String::from_utf8_lossy(&facts.content))).collect()
}

fn set(files: &[&str]) -> BTreeSet<String> {
    files.iter().map(|file| (*file).to_owned()).collect()
}

fn lower() -> Vec<Made> {
    vec![
        file("etc/a", "1"),
        file("etc/b", "1"),
        Made::new(b'5', "var/lib"),
        file("var/lib/c", "1"),
        file("var/lib/deep/d", "1"),
        Made::new(b'2', "link").to("etc/a"),
    ]
}

#[test]
fn whiteouts_remove_what_lies_below() {
    let upper = vec![gone("etc/.wh.a"), gone("var/.wh.lib"), gone(".wh.link"), gone("none/.wh.x"), gone(".wh.nothing")];
    assert_eq!(files(&[lower(), upper]), set(&["etc/b=1"]));
}

#[test]
fn an_opaque_directory_keeps_what_its_own_layer_has() {
    for opaque_first in [true, false] {
        let mut upper = vec![file("var/lib/new", "2"), file("var/lib/deep/e", "2"), file("var/lib/c", "2")];
        upper.insert(if opaque_first { 0 } else { 3 }, gone("var/lib/.wh..wh..opq"));
        let expected = ["etc/a=1", "etc/b=1", "link=etc/a", "var/lib/c=2", "var/lib/deep/e=2", "var/lib/new=2"];
        assert_eq!(files(&[lower(), upper]), set(&expected), "{opaque_first}");
    }
}

#[test]
fn a_whiteout_leaves_what_its_own_layer_has() {
    for order in [[file("etc/a", "2"), gone("etc/.wh.a")], [gone("etc/.wh.a"), file("etc/a", "2")]] {
        assert!(files(&[lower(), order.into()]).contains("etc/a=2"));
    }
}

#[test]
fn a_whiteout_of_an_own_directory_removes_what_lies_below() {
    let own = || vec![file("var/lib/new", "2"), Made::new(b'5', "var/lib/deep"), file("var/lib/deep/e", "2")];
    for at in [0, 3] {
        let mut upper = own();
        upper.insert(at, gone("var/.wh.lib"));
        let expected = ["etc/a=1", "etc/b=1", "link=etc/a", "var/lib/deep/e=2", "var/lib/new=2"];
        assert_eq!(files(&[lower(), upper]), set(&expected), "{at}");
    }
    // What takes a directory's place has nothing below.
    let upper = vec![Made::new(b'2', "var/lib").to("../etc"), gone("var/.wh.lib")];
    assert!(files(&[lower(), upper]).contains("etc/a=1"));
}

#[test]
fn a_removed_directorys_attributes_are_forgotten() {
    let root = tempfile::tempdir().unwrap();
    let mode = |name: &str| common::facts(root.path())[Path::new(name)].mode;
    // Made by hand, they are 0644 everywhere.
    let lower = vec![Made::new(b'5', "a"), Made::new(b'5', "a/b"), Made::new(b'5', "ab")];
    unpack(&[lower, vec![gone("a/.wh..wh..opq"), file("a/b/x", "2")]], root.path()).unwrap();
    assert_eq!([mode("a"), mode("a/b"), mode("ab")], [0o644, 0o755, 0o644]);
}

#[test]
fn an_image_is_a_root_of_its_own() {
    let system = tempfile::tempdir().unwrap();
    fs::create_dir(system.path().join("etc")).unwrap();
    let target = landfall_unpack::Target { system: system.path(), path: "/opt/image", hidden: &[] };
    // On the second run the link stands there before what goes through it.
    let link = Made::new(b'2', "a").to("/etc");
    let layer = archive(&[Made::new(b'5', "etc"), Made::new(b'5', "a"), file("a/x", "1"), link, file("a/y", "1")]);
    for _ in 0..2 {
        common::by(&layer, &target, Manner::Layer, 4096).unwrap();
        assert_eq!(fs::read_dir(system.path().join("etc")).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(system.path().join("opt/image/etc/y")).unwrap(), "1");
    }
}

#[test]
fn anything_is_replaced_by_a_later_layers_entry() {
    let upper = vec![
        file("var", "now a file"),
        Made::new(b'5', "link"),
        file("link/x", "2"),
        Made::new(b'2', "etc").to("link"),
    ];
    assert_eq!(files(&[lower(), upper]), set(&["etc=link", "link/x=2", "var=now a file"]));
}

#[test]
fn whiteouts_leave_what_no_layer_made() {
    let kept = ["etc/kept", "var/lib/kept", "var/lib/deep/kept", "home/ann/thesis"];
    for whiteout in ["etc/.wh.kept", "var/.wh.lib", "var/lib/.wh..wh..opq", ".wh..wh..opq", ".wh.home", "home/.wh.ann"]
    {
        let root = tempfile::tempdir().unwrap();
        for place in kept {
            let place = root.path().join(place);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, "old").unwrap();
        }
        unpack(&[lower(), vec![gone(whiteout)]], root.path()).unwrap();
        for place in kept {
            assert_eq!(fs::read(root.path().join(place)).ok().as_deref(), Some(&b"old"[..]), "{whiteout}: {place}");
        }
    }
}

/// Another file system below a directory, for as long as this lives.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn at(place: std::path::PathBuf) -> Self {
        fs::create_dir_all(&place).unwrap();
        let done = std::process::Command::new("mount").args(["-t", "tmpfs", "kept"]).arg(&place).status().unwrap();
        assert!(done.success(), "tests of mounts need root, as scripts/test has it");
        Self(place)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Left behind only where the kernel refuses it.
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn no_layer_replaces_directories_of_a_kept_file_system() {
    // A file in the place of the mount, of what it is in, and of a directory on it.
    for evil in ["srv/data", "srv", "srv/data/ann"] {
        let root = tempfile::tempdir().unwrap();
        let mounted = Mounted::at(root.path().join("srv/data"));
        fs::create_dir_all(mounted.0.join("ann")).unwrap();
        fs::write(mounted.0.join("ann/thesis"), "old").unwrap();
        let refused = unpack(&[lower(), vec![file(evil, "2")]], root.path());
        assert!(
            matches!(&refused, Err(UnpackError::Refused { entry, fault: Fault::Occupied }) if entry == evil),
            "{evil}: {refused:?}"
        );
        assert_eq!(fs::read(mounted.0.join("ann/thesis")).unwrap(), b"old", "{evil}");
        // What the image itself put there it may replace.
        let own = [vec![file("srv/data/own/x", "1")], vec![file("srv/data/own", "2")]];
        unpack(&own, root.path()).unwrap();
        assert_eq!(fs::read(mounted.0.join("own")).unwrap(), b"2");
    }
}

#[test]
fn whiteouts_remove_links_and_never_what_they_lead_to() {
    let outer = tempfile::tempdir().unwrap();
    fs::create_dir_all(outer.path().join("root")).unwrap();
    fs::create_dir_all(outer.path().join("outside/sub")).unwrap();
    fs::write(outer.path().join("outside/sub/file"), "safe").unwrap();
    let lower = vec![Made::new(b'2', "up").to("../outside"), Made::new(b'2', "in/side").to("../../outside")];
    for evil in
        ["up/.wh.sub", "up/.wh..wh..opq", ".wh.up", "up/sub/.wh.file", ".wh.in", "in/.wh..wh..opq", "in/side/.wh.sub"]
    {
        drop(unpack(&[lower.clone(), vec![gone(evil)]], &outer.path().join("root")));
        assert_eq!(fs::read(outer.path().join("outside/sub/file")).unwrap(), b"safe", "{evil}");
    }
}

#[test]
fn whiteouts_without_a_name_are_refused_and_aufs_records_skipped() {
    let root = tempfile::tempdir().unwrap();
    for name in ["etc/.wh.", "etc/.wh..", "etc/.wh..."] {
        let refused = unpack(&[vec![gone(name)]], root.path());
        assert!(
            matches!(&refused, Err(UnpackError::Refused { entry, fault: Fault::Whiteout }) if entry == name),
            "{refused:?}"
        );
    }
    assert_eq!(files(&[vec![file(".wh..wh.plnk", ""), file("x", "1")]]), set(&["x=1"]));
}
