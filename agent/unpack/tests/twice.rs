//! Archives made at random, beside a tree that must not change: what they leave, and that a second run leaves the same.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use common::{Facts, Made, archive, difference, facts};
use landfall_unpack::{Fault, Manner, Target, UnpackError};
use proptest::{prelude::*, test_runner::RngSeed};

/// A system that is unpacked to at `opt/app`, and a directory around it.
fn arena() -> tempfile::TempDir {
    let outer = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for directory in ["outside/a", "system/a/b", "system/opt", "system/etc", "system/var"] {
        fs::create_dir_all(outer.path().join(directory)).unwrap();
    }
    for file in ["outside/a/b", "system/a/c", "system/etc/a", "system/b"] {
        fs::write(outer.path().join(file), "safe").unwrap();
    }
    symlink("../outside", outer.path().join("system/c")).unwrap();
    outer
}

fn outside(arena: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut all = facts(arena);
    // The directory itself is made in it.
    all.retain(|place, _| !place.starts_with("system/opt"));
    all
}

fn name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c", "a", "b", "..", ".", "etc", ".wh.a", ".wh..wh..opq"]);
    let parts = prop::collection::vec(part, 1..4);
    (any::<bool>(), parts)
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

fn target() -> impl Strategy<Value = String> {
    let way = prop::sample::select(vec!["", "../", "../../", "../../../", "/", "/../", "/opt/app/"]);
    (way, prop::sample::select(vec!["a", "b", "c", "etc", "a/b", "outside/a"]))
        .prop_map(|(way, to)| format!("{way}{to}"))
}

/// Entries; a hard link is to a file of the archive, if it has one before.
fn entries() -> impl Strategy<Value = Vec<Made>> {
    let entry = (prop::sample::select(b"000552216".to_vec()), name(), target(), any::<prop::sample::Index>(), 0..3_u8);
    prop::collection::vec(entry, 1..9).prop_map(|raw| {
        let mut files: Vec<String> = Vec::new();
        let make = |(kind, name, target, which, content): (u8, String, String, prop::sample::Index, u8)| {
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

/// Whether nothing takes the place of a directory that an entry before it goes through: on a second run it stands there before.
fn ways_stay(entries: &Vec<Made>) -> bool {
    let later = |at: usize, place: &Path| {
        entries[at..].iter().any(|entry| entry.kind != b'5' && place.starts_with(plain(&entry.name)))
    };
    entries.iter().enumerate().all(|(at, entry)| plain(&entry.name).parent().is_none_or(|way| !later(at, way)))
}

fn is_whiteout(name: &Path) -> bool {
    name.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".wh."))
}

/// Below the place of the archive.
fn plain(name: &[u8]) -> PathBuf {
    let text = String::from_utf8_lossy(name).into_owned();
    Path::new("app").join(text.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<PathBuf>())
}

/// What a run leaves, without the times of directories that no entry names.
fn left(arena: &Path, entries: &[Made]) -> BTreeMap<PathBuf, Facts> {
    let mut all = facts(&arena.join("system/opt"));
    // A whiteout is no directory's entry.
    let named: BTreeSet<_> = entries.iter().map(|entry| plain(&entry.name)).filter(|name| !is_whiteout(name)).collect();
    for (place, facts) in &mut all {
        if facts.kind == 'd' && (place.components().count() < 2 || !named.contains(place)) {
            facts.mtime = (0, 0);
        }
    }
    all
}

fn stays_and_repeats(entries: &[Made], manner: Manner, path: &str) -> Result<(), TestCaseError> {
    let arena = arena();
    let (system, bytes) = (arena.path().join("system"), archive(entries));
    let target = Target { system: &system, path, hidden: &[] };
    let before = outside(arena.path());
    let first = common::by(&bytes, &target, manner, 700);
    prop_assert_eq!(difference(&before, &outside(arena.path())), None);
    let once = left(arena.path(), entries);
    let second = common::by(&bytes, &target, manner, 700);
    prop_assert_eq!(difference(&before, &outside(arena.path())), None);
    match (first, second) {
        (Ok(_), Ok(_)) => prop_assert_eq!(difference(&once, &left(arena.path(), entries)), None),
        // A name that is first a file and later a directory: the page says so.
        (Ok(_), Err(UnpackError::Refused { fault: Fault::Occupied, .. })) | (Err(_), Err(_)) => {}
        (first, second) => prop_assert!(false, "{first:?}, then {second:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn archives_change_nothing_outside_and_repeat(entries in entries()) {
        stays_and_repeats(&entries, Manner::Archive, "/opt/app")?;
    }

    #[test]
    fn layers_change_nothing_outside_and_repeat(entries in entries().prop_filter("replaces a way", ways_stay)) {
        stays_and_repeats(&entries, Manner::Layer, "/opt/app")?;
    }
}
