//! Archives that mean harm, or that are broken: nothing outside of the root changes, and what is refused is named.

mod common;

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{Made, archive, difference, extended, facts, seal, tar, unpacked};
use landfall_unpack::{Fault, Limits, Manner, UnpackError, Unpacker};
use proptest::prelude::*;

/// A root with ways out of it, in a directory that must not change.
struct Arena(tempfile::TempDir);

impl Arena {
    fn new() -> Self {
        // In memory where that is possible: each of many thousand archives is brought to the disk.
        let outer = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let at = |name: &str| outer.path().join(name);
        for directory in ["outside/sub", "root/inside", "etc"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("outside/file"), "safe").unwrap();
        fs::write(at("outside/sub/file"), "safe").unwrap();
        symlink("../outside", at("root/up")).unwrap();
        symlink(at("outside"), at("root/absolute")).unwrap();
        symlink("../outside/file", at("root/file")).unwrap();
        // Of the kernel's own links, but to nothing beside the arena: a reader that is broken must not harm its machine.
        symlink(format!("/proc/self/root{}", at("outside").display()), at("root/magic")).unwrap();
        symlink("loop", at("root/loop")).unwrap();
        Self(outer)
    }
    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }
    /// What is outside, which nothing may change.
    fn outside(&self) -> std::collections::BTreeMap<PathBuf, common::Facts> {
        let mut all = facts(self.0.path());
        all.retain(|place, _| !place.starts_with("root"));
        all
    }
}

fn refused(entries: &[Made]) -> UnpackError {
    let done = unpacked(&archive(entries), &Arena::new().root());
    done.expect_err(&format!("{entries:?} are refused"))
}

fn fault(entries: &[Made]) -> (String, Fault) {
    match refused(entries) {
        UnpackError::Refused { entry, fault } => (entry, fault),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_invalid_entry_is_refused_by_name_and_fault() {
    let file = |name: &str| Made::new(b'0', name);
    let with = |records: &[(&str, &[u8])], entry: Made| vec![extended(records), entry];
    let long = "n".repeat(256);
    let deep = "d/".repeat(257);
    for (entries, name, expected) in [
        (vec![file("../x")], "../x", Fault::Upwards),
        (vec![file("a/../../x")], "a/../../x", Fault::Upwards),
        (with(&[("path", long.as_bytes())], file("x")), long.as_str(), Fault::LongPart),
        (with(&[("path", deep.as_bytes())], file("x")), deep.get(..300).unwrap(), Fault::Deep),
        (with(&[("path", b"a\0b")], file("x")), "a\\u{0}b", Fault::ZeroByte),
        (vec![file(".")], ".", Fault::Root),
        (vec![Made::new(b'2', "/").to("x")], "/", Fault::Root),
        (vec![Made::new(b'2', "x")], "x", Fault::Target),
        (vec![Made::new(b'1', "x").to("/")], "x", Fault::Target),
        (vec![Made::new(b'1', "x").to("../outside/file")], "x", Fault::OutsideLink),
        (vec![Made::new(b'5', "x").with("y")], "x", Fault::Content),
        (vec![Made::new(b'1', "x").to("inside").with("y")], "x", Fault::Content),
        (vec![Made::new(b'M', "x")], "x", Fault::Type('M')),
        (vec![Made::new(b'D', "x")], "x", Fault::Type('D')),
        (with(&[("uid", b"4294967295")], file("x")), "x", Fault::Owner(4_294_967_295)),
        (with(&[("gid", b"4294967296")], file("x")), "x", Fault::Owner(4_294_967_296)),
        (with(&[("uid", b"-1")], file("x")), "x", Fault::Record("uid")),
        (with(&[("mtime", b"soon")], file("x")), "x", Fault::Record("mtime")),
        (with(&[("SCHILY.acl.access", b"user:anna:rw")], file("x")), "x", Fault::AclName("anna".into())),
        (with(&[("SCHILY.acl.access", b"anna")], file("x")), "x", Fault::Acl("anna".into())),
        (
            with(&[("GNU.sparse.major", b"3"), ("GNU.sparse.minor", b"0")], file("x")),
            "x",
            Fault::Unsupported("GNU.sparse.major"),
        ),
        (with(&[("GNU.sparse.name", b"x")], file("y")), "x", Fault::Map("there is none")),
        (
            with(&[("GNU.sparse.map", b"8,4,0,4"), ("GNU.sparse.size", b"20")], file("x").with("12345678")),
            "x",
            Fault::Map("its pieces overlap or are out of order"),
        ),
        (
            with(&[("GNU.sparse.map", b"18,4"), ("GNU.sparse.size", b"20")], file("x").with("1234")),
            "x",
            Fault::Map("a piece ends behind the file's end"),
        ),
        (
            with(&[("GNU.sparse.map", b"0,4"), ("GNU.sparse.size", b"20")], file("x").with("12345")),
            "x",
            Fault::Map("its pieces are not as long as its content"),
        ),
        (
            with(
                &[
                    ("GNU.sparse.major", b"1"),
                    ("GNU.sparse.minor", b"0"),
                    ("GNU.sparse.realsize", b"4"),
                    ("size", b"516"),
                ],
                file("x").with([&b"1\n0\n4\n"[..], &[0; 506], b"1234"].concat()),
            ),
            "x",
            Fault::LargeMap,
        ),
        (
            vec![Made::new(b'g', "g").with(common::record("uid", "0"))],
            "for the whole archive",
            Fault::Unsupported("uid"),
        ),
    ] {
        let shown = if expected == Fault::Deep { format!("{name}…") } else { name.to_owned() };
        assert_eq!(fault(&entries), (shown, expected));
    }
}

#[test]
fn broken_records_and_headers_name_what_came_before() {
    let damaged = |bytes: &[u8], part: &str| match unpacked(bytes, &Arena::new().root()) {
        Err(UnpackError::Damaged { offset, after, reason }) => {
            assert!(reason.contains(part), "{reason}");
            (offset, after)
        }
        other => panic!("{part}: {other:?}"),
    };
    assert_eq!(damaged(b"<html>".repeat(200).as_slice(), "not a tar archive"), (0, "its start".into()));
    let mut second = archive(&[Made::new(b'0', "first").with("x"), Made::new(b'0', "second")]);
    second[1024 + 3] ^= 1;
    assert_eq!(damaged(&second, "checksum"), (1024, "first".into()));
    let twice = archive(&[extended(&[]), extended(&[]), Made::new(b'0', "x")]);
    damaged(&twice, "duplicate");
    let long = vec![b'n'; 4200];
    damaged(&archive(&[extended(&[("path", &long)]), Made::new(b'0', "x")]), "4200");
    let records = vec![b'r'; 1 << 20];
    damaged(&archive(&[extended(&[("comment", &records)]), Made::new(b'0', "x")]), "limit");
    let broken = Made::new(b'x', "x").with("9 path=x\n\n");
    assert!(unpacked(&archive(&[broken, Made::new(b'0', "x")]), &Arena::new().root()).is_err());
}

#[test]
fn what_other_readers_would_not_pass_over_is_refused() {
    let damaged = |bytes: &[u8], part: &str| match unpacked(bytes, &Arena::new().root()) {
        Err(UnpackError::Damaged { reason, .. }) => assert!(reason.contains(part), "{reason}"),
        other => panic!("{part}: {other:?}"),
    };
    let global = || Made::new(b'g', "g").with(common::record("comment", "x"));
    let file = || Made::new(b'0', "x").with("y");
    let name = || Made::new(b'L', "././@LongLink").with("name\0");
    for lost in [extended(&[("path", b"elsewhere")]), name(), Made::new(b'K', "././@LongLink").with("target\0")] {
        damaged(&archive(&[lost, global(), file()]), "before no entry");
    }
    unpacked(&archive(&[global(), name(), extended(&[("mtime", b"1")]), file()]), &Arena::new().root()).unwrap();
    let zero = vec![0; 512];
    for parts in [
        vec![zero.clone(), file().bytes()],
        vec![file().bytes(), zero.clone(), file().bytes()],
        vec![name().bytes(), zero.clone(), file().bytes()],
        vec![zero, global().bytes(), file().bytes()],
    ] {
        damaged(&[parts.concat(), vec![0; 1024]].concat(), "zeroes stands alone");
    }
    for version in [*b"01", *b"\0\0", *b"  "] {
        let mut bytes = archive(&[file()]);
        bytes[263..265].copy_from_slice(&version);
        bytes[345..349].copy_from_slice(b"etc\0");
        let mut header: [u8; 512] = bytes[..512].try_into().unwrap();
        seal(&mut header);
        bytes[..512].copy_from_slice(&header);
        damaged(&bytes, "version of ustar");
    }
}

#[test]
fn a_directory_named_again_takes_no_more_memory() {
    let value = vec![b'x'; 60_000];
    let entries: Vec<_> =
        (0..1200).flat_map(|_| [extended(&[("SCHILY.xattr.user.a", &value)]), Made::new(b'5', "again")]).collect();
    let other: Vec<_> = (0..1200)
        .flat_map(|_| [extended(&[("SCHILY.xattr.user.a", &value)]), Made::new(b'5', "gone"), Made::new(b'0', "gone")])
        .collect();
    for entries in [entries, other] {
        let root = tempfile::tempdir().unwrap();
        let mut unpacker = Unpacker::new(&common::whole(root.path()), Limits::default(), &|| true).unwrap();
        unpacker.archive(&mut Cursor::new(archive(&entries)), Manner::Archive).unwrap();
    }
    // As many with names of their own are too much.
    let many: Vec<_> = (0..1200)
        .flat_map(|n| [extended(&[("SCHILY.xattr.user.a", &value)]), Made::new(b'5', format!("{n}"))])
        .collect();
    assert!(matches!(fault(&many).1, Fault::Memory(64)));
}

#[test]
fn an_endless_map_of_holes_is_refused() {
    let version = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"9")];
    let map = Made { content: vec![b'1'; 13 << 20], ..Made::new(b'0', "x") };
    assert!(
        matches!(refused(&[extended(&version), map]), UnpackError::Damaged { reason, .. } if reason.contains("12 MiB"))
    );
}

#[test]
fn a_map_of_holes_that_the_archive_cuts_is_refused() {
    let version = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"9")];
    let map = Made { content: vec![b'1'; 3000], ..Made::new(b'0', "x") };
    let error = refused(&[extended(&version), map]);
    assert!(matches!(error, UnpackError::Truncated { .. }), "{error:?}");
}

#[test]
fn a_hard_link_to_itself_leaves_its_file() {
    let arena = Arena::new();
    let entries = [Made::new(b'0', "a").with("kept"), Made::new(b'1', "b").to("a"), Made::new(b'1', "a").to("b")];
    unpacked(&archive(&entries), &arena.root()).unwrap();
    unpacked(&archive(&[Made::new(b'1', "a").to("./a")]), &arena.root()).unwrap();
    assert_eq!(fs::read(arena.root().join("a")).unwrap(), b"kept");
}

#[test]
fn an_extended_headers_size_counts_before_the_headers() {
    // What one reader takes for a file's content another must not take for entries.
    let hidden = archive(&[Made::new(b'0', "hidden")]);
    let size = hidden.len().to_string();
    let outer = Made { size: Some(0), ..Made::new(b'0', "outer").with(&hidden) };
    for entries in [
        vec![extended(&[("size", size.as_bytes())]), outer.clone()],
        vec![extended(&[("size", size.as_bytes())]), Made::new(b'L', "././@LongLink").with("outer\0"), outer],
    ] {
        let arena = Arena::new();
        unpacked(&archive(&entries), &arena.root()).unwrap();
        assert!(fs::read(arena.root().join("outer")).unwrap() == hidden);
        assert!(!arena.root().join("hidden").exists());
    }
}

#[test]
fn data_after_the_end_mark_is_refused() {
    let one = archive(&[Made::new(b'0', "a")]);
    let joined = [&one[..], &archive(&[Made::new(b'0', "b")])].concat();
    assert!(matches!(
        unpacked(&joined, &Arena::new().root()),
        Err(UnpackError::Refused { entry, fault: Fault::Joined }) if entry == "a"
    ));
    unpacked(&[&one[..], &[0; 9216]].concat(), &Arena::new().root()).unwrap();
}

#[test]
fn an_archive_within_its_bounds_alone_is_unpacked() {
    let entries = [Made::new(b'0', "a").with([1; 600]), Made::new(b'0', "b").with([1; 600])];
    let within = |entries: &[Made], limits: Limits| {
        let root = tempfile::tempdir().unwrap();
        let mut unpacker = Unpacker::new(&common::whole(root.path()), limits, &|| true).unwrap();
        match unpacker.archive(&mut Cursor::new(archive(entries)), Manner::Archive) {
            Err(UnpackError::Refused { entry, fault }) => Some((entry, fault)),
            other => other.map(|()| None).unwrap(),
        }
    };
    assert_eq!(within(&entries, Limits { entries: 2, bytes: 1200 }), None);
    assert_eq!(within(&entries, Limits { entries: 1, bytes: 1200 }), Some(("b".into(), Fault::Many(1))));
    assert_eq!(within(&entries, Limits { entries: 2, bytes: 1199 }), Some(("b".into(), Fault::Large(1199))));
    let holes = [("GNU.sparse.map", &b"0,1"[..]), ("GNU.sparse.size", b"1201")];
    let sparse = [extended(&holes), Made::new(b'0', "s").with("x")];
    assert_eq!(within(&sparse, Limits { entries: 2, bytes: 1200 }), Some(("s".into(), Fault::Large(1200))));
}

#[test]
fn a_caller_may_end_the_work_between_two_pieces() {
    let root = tempfile::tempdir().unwrap();
    let asked = std::cell::Cell::new(0);
    let go_on = || {
        asked.set(asked.get() + 1);
        asked.get() < 4
    };
    let mut unpacker = Unpacker::new(&common::whole(root.path()), Limits::default(), &go_on).unwrap();
    let bytes = archive(&[Made::new(b'0', "a").with([1; 100_000])]);
    let mut small = std::io::BufReader::with_capacity(1024, &bytes[..]);
    let ended = unpacker.archive(&mut small, Manner::Archive);
    assert!(matches!(ended, Err(UnpackError::Stopped { entry }) if entry == "a"));
}

#[test]
fn a_directory_with_content_is_no_files_place() {
    let arena = Arena::new();
    fs::write(arena.root().join("inside/file"), "").unwrap();
    let error = unpacked(&archive(&[Made::new(b'0', "inside")]), &arena.root()).unwrap_err();
    assert!(matches!(error, UnpackError::Refused { fault: Fault::Occupied, .. }), "{error:?}");
}

#[test]
fn what_links_lead_to_is_inside_or_nowhere() {
    for name in ["up/x", "absolute/x", "magic/x", "up/sub/x", "loop/x", "file/x", "absolute/../../x"] {
        let arena = Arena::new();
        let before = arena.outside();
        // Whether it is refused or lands inside is for the kernel; it must not land outside.
        drop(unpacked(&archive(&[Made::new(b'0', name).with("evil")]), &arena.root()));
        assert_eq!(difference(&before, &arena.outside()), None, "{name}");
    }
    let arena = Arena::new();
    unpacked(&archive(&[Made::new(b'0', "file").with("new")]), &arena.root()).unwrap();
    assert_eq!(fs::read(arena.0.path().join("outside/file")).unwrap(), b"safe");
    assert_eq!(fs::read(arena.root().join("file")).unwrap(), b"new");
}

#[test]
fn a_hard_link_to_a_link_never_reaches_its_target() {
    let arena = Arena::new();
    let entries = [Made::new(b'1', "again").to("file"), Made::new(b'0', "again").with("evil")];
    unpacked(&archive(&entries), &arena.root()).unwrap();
    assert_eq!(fs::read(arena.0.path().join("outside/file")).unwrap(), b"safe");
    assert!(matches!(refused(&[Made::new(b'1', "x").to("missing")]), UnpackError::Io { entry, .. } if entry == "x"));
    let error = refused(&[Made::new(b'1', "x").to("up/file")]);
    assert_eq!(error.to_string(), "cannot link its target up/file to x");
}

/// Names that combine the ways out of the arena.
fn name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "up", "absolute", "file", "magic", "loop", "inside", "..", ".", "a", "b", "outside", "etc", ".wh.up",
        ".wh.inside", ".wh..wh..opq", ".wh...", ".wh.", "", "sub",
    ]);
    (any::<bool>(), prop::collection::vec(part, 1..5))
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

fn entry() -> impl Strategy<Value = Made> {
    let kind = prop::sample::select(b"0012256370".to_vec());
    (kind, name(), name(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(kind, name, link, content)| {
        let made = Made::new(kind, name).to(link);
        if kind == b'0' { made.with(content) } else { made }
    })
}

fn nothing_outside_changes(bytes: &[u8]) -> Result<(), TestCaseError> {
    let arena = Arena::new();
    let before = arena.outside();
    for manner in [Manner::Archive, Manner::Layer] {
        drop(common::unpacked_by(bytes, &arena.root(), manner, 900));
        prop_assert_eq!(difference(&before, &arena.outside()), None);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_archive_changes_what_is_outside(entries in prop::collection::vec(entry(), 1..6)) {
        nothing_outside_changes(&archive(&entries))?;
    }

    #[test]
    fn altered_headers_never_panic(
        entries in prop::collection::vec(entry(), 1..4), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = archive(&entries);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let block = at / 512 * 512;
        // Half of the time with a right checksum, so that what is behind it is reached.
        if byte % 2 == 0 {
            let mut header: [u8; 512] = bytes[block..block + 512].try_into().unwrap();
            seal(&mut header);
            bytes[block..block + 512].copy_from_slice(&header);
        }
        nothing_outside_changes(&bytes)?;
    }
}

#[test]
fn archives_of_gnu_tar_with_absolute_names_land_inside() {
    let (source, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = source.path().join("file");
    fs::write(&file, "x").unwrap();
    let bytes = tar(&["-P", "-c", file.to_str().unwrap()], Path::new("/"));
    unpacked(&bytes, root.path()).unwrap();
    assert_eq!(fs::read(root.path().join(file.strip_prefix("/").unwrap())).unwrap(), b"x");
}
