//! Archives and layers made at random, unpacked after an attempt that ended anywhere: what they leave is what one run leaves, and
//! nothing outside changes.

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{Facts, Made, archive, difference, facts};
use landfall_unpack::{Fault, Limits, Manner, Target, UnpackError, Unpacker};
use proptest::{prelude::*, sample::Index};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};

/// A system that is unpacked to at `opt/app`, and a directory around it. The system has a link in that directory, or no such
/// directory.
fn arena(stands: bool) -> tempfile::TempDir {
    let outer = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for directory in ["outside/a", "system/a/b", "system/opt/way", "system/etc", "system/var"] {
        fs::create_dir_all(outer.path().join(directory)).unwrap();
    }
    for file in ["outside/a/b", "system/a/c", "system/etc/a", "system/b"] {
        fs::write(outer.path().join(file), "safe").unwrap();
    }
    symlink("../outside", outer.path().join("system/c")).unwrap();
    if stands {
        fs::create_dir(outer.path().join("system/opt/app")).unwrap();
        symlink("/opt/way", outer.path().join("system/opt/app/s")).unwrap();
    }
    outer
}

/// Everything but the directory, and the one that the system's link leads to.
fn outside(arena: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut all = facts(arena);
    all.retain(|place, _| !place.starts_with("system/opt"));
    all
}

fn name() -> impl Strategy<Value = String> {
    let parts =
        vec!["a", "b", "c", "a", "b", "c", "s", "s", "etc", "..", ".", ".wh.a", ".wh.b", ".wh.s", ".wh..wh..opq"];
    let parts = prop::collection::vec(prop::sample::select(parts), 1..4);
    (any::<bool>(), parts)
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

fn target() -> impl Strategy<Value = String> {
    let way = prop::sample::select(vec!["", "../", "../../", "../../../", "/", "/../", "/opt/app/"]);
    (way, prop::sample::select(vec!["a", "b", "c", "s", "etc", "a/b", "outside/a"]))
        .prop_map(|(way, to)| format!("{way}{to}"))
}

/// Entries; a hard link is to a file of the archive, if it has one before.
fn entries() -> impl Strategy<Value = Vec<Made>> {
    let entry = (prop::sample::select(b"000552216".to_vec()), name(), target(), any::<Index>(), 0..3_u8);
    prop::collection::vec(entry, 1..9).prop_map(|raw| {
        let mut files: Vec<String> = Vec::new();
        let make = |(kind, name, target, which, content): (u8, String, String, Index, u8)| {
            let whiteout = name.contains(".wh.");
            match kind {
                b'1' if files.is_empty() => Made::new(b'5', name),
                b'1' => Made::new(b'1', name).to(&files[which.index(files.len())]),
                b'0' if !whiteout => {
                    files.push(name.clone());
                    Made::new(b'0', name).with(vec![content; content.into()])
                }
                b'2' => Made::new(b'2', name).to(target),
                kind => Made::new(kind, name),
            }
        };
        raw.into_iter().map(make).collect()
    })
}

/// A place below the directory.
fn plain(name: &[u8]) -> PathBuf {
    let text = String::from_utf8_lossy(name).into_owned();
    text.split('/').filter(|part| !matches!(*part, "" | ".")).collect()
}

/// Whether an image put a link in the place of a directory that has no entry before it is needed: the page names that exception.
fn replaces_a_way(entries: &[Made], app: &Path) -> bool {
    let is_link = |place: &Path| {
        let (flags, plain) = (OFlags::PATH | OFlags::NOFOLLOW, OFlags::PATH | OFlags::DIRECTORY);
        let app = openat(CWD, app, plain, Mode::empty()).unwrap();
        let open = openat2(app, place, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        open.is_ok_and(|open| FileType::from_raw_mode(fstat(open).unwrap().st_mode) == FileType::Symlink)
    };
    entries.iter().enumerate().any(|(at, entry)| {
        let named = |place: &Path| entries[..at].iter().any(|before| plain(&before.name) == place);
        let needed = [plain(&entry.name), plain(&entry.link)];
        let needed = &needed[..if entry.kind == b'1' { 2 } else { 1 }];
        let mut ways = needed.iter().flat_map(|name| name.ancestors().skip(1));
        ways.any(|way| way != Path::new("") && !named(way) && is_link(way))
    })
}

/// What a run leaves, without times that no entry set.
fn left(arena: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut all = facts(&arena.join("system/opt"));
    for facts in all.values_mut().filter(|facts| facts.mtime != (1, 0)) {
        facts.mtime = (0, 0);
    }
    // The directory itself keeps what it has if it stood there before.
    all.remove(Path::new("app"));
    all
}

/// Unpacks until it was asked so many times whether it may go on.
fn attempt(bytes: &[u8], arena: &Path, manner: Manner, most: u32) -> Result<(), UnpackError> {
    let asked = Cell::new(0);
    let go_on = || asked.replace(asked.get() + 1) < most;
    let target = Target { system: &arena.join("system"), path: "/opt/app", hidden: &[] };
    let mut unpacker = Unpacker::new(&target, Limits::default(), &go_on)?;
    unpacker.archive(&mut Cursor::new(bytes), manner)?;
    unpacker.finish().map(drop)
}

fn stays_and_repeats(entries: &[Made], manner: Manner, stands: bool, cut: u32) -> Result<(), TestCaseError> {
    let (bytes, once, twice) = (archive(entries), arena(stands), arena(stands));
    let [before, again] = [&once, &twice].map(|arena| outside(arena.path()));
    let first = attempt(&bytes, once.path(), manner, u32::MAX);
    prop_assert_eq!(difference(&before, &outside(once.path())), None);
    drop(attempt(&bytes, twice.path(), manner, cut));
    let second = attempt(&bytes, twice.path(), manner, u32::MAX);
    prop_assert_eq!(difference(&again, &outside(twice.path())), None);
    if manner == Manner::Layer && replaces_a_way(entries, &once.path().join("system/opt/app")) {
        return Ok(());
    }
    match (first, second) {
        (Ok(()), Ok(())) => prop_assert_eq!(difference(&left(once.path()), &left(twice.path())), None),
        // A name that is first a file or a link and later a directory: the page says so.
        (Ok(()), Err(UnpackError::Refused { fault: Fault::Occupied, .. })) if manner == Manner::Archive => {}
        (Err(_), Err(_)) => {}
        (first, second) => prop_assert!(false, "{first:?}, then {second:?}"),
    }
    Ok(())
}

fn file(name: &str) -> Made {
    Made::new(b'0', name)
}

fn directory(name: &str) -> Made {
    Made::new(b'5', name)
}

fn link(name: &str, target: &str) -> Made {
    Made::new(b'2', name).to(target)
}

#[test]
fn known_archives_repeat_after_each_attempt() {
    for (manner, entries) in [
        (Manner::Archive, vec![directory("a"), link("a", "a")]),
        (Manner::Archive, vec![directory("a"), link("a", "b"), directory("b")]),
        // A joined archive, whose directory goes through its own link.
        (Manner::Archive, vec![directory("b"), link("a", "b"), directory("a"), file("a/c")]),
        (Manner::Archive, vec![file("s/a"), link("s", "/opt/way")]),
        // The name of the replaced directory is another one's through a link.
        (Manner::Layer, vec![file("etc/a/a"), link("a", "etc"), file("a/a")]),
        (Manner::Layer, vec![file("a/b"), file("a"), file("a/c")]),
    ] {
        for cut in 1..8 {
            stays_and_repeats(&entries, manner, true, cut).unwrap_or_else(|e| panic!("{entries:?}, {cut}: {e}"));
            attempt(&archive(&entries), arena(true).path(), manner, u32::MAX).unwrap();
        }
    }
}

#[test]
fn what_another_attempt_would_find_elsewhere_is_refused() {
    for (entries, expected) in [
        (vec![file("s/a"), link("s", "/etc")], Fault::Way),
        (vec![file("a"), Made::new(b'1', "b").to("s/file"), link("s", "/etc")], Fault::Way),
        (vec![file("s/a"), file("s")], Fault::Way),
        (vec![link("a", "b"), directory("a"), directory("b")], Fault::OwnLink),
        (vec![link("a", "a"), directory("a")], Fault::OwnLink),
    ] {
        let arena = arena(true);
        fs::write(arena.path().join("system/opt/way/file"), "").unwrap();
        let before = outside(arena.path());
        for _ in 0..2 {
            let fault = match attempt(&archive(&entries), arena.path(), Manner::Archive, u32::MAX) {
                Err(UnpackError::Refused { fault, .. }) => fault,
                other => panic!("{entries:?}: {other:?}"),
            };
            assert_eq!(fault, expected, "{entries:?}");
        }
        assert_eq!(difference(&before, &outside(arena.path())), None, "{entries:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn archives_change_nothing_outside_and_repeat(entries in entries(), stands in any::<bool>(), cut in 1..12_u32) {
        stays_and_repeats(&entries, Manner::Archive, stands, cut)?;
    }

    #[test]
    fn layers_change_nothing_outside_and_repeat(entries in entries(), stands in any::<bool>(), cut in 1..12_u32) {
        stays_and_repeats(&entries, Manner::Layer, stands, cut)?;
    }
}
