//! Recorded behaviour. A test produces something, and [`same`] compares it with the file that an earlier version of the
//! code left in this directory. A difference is a change that operators, agents or stored data would see.
//!
//! `LANDFALL_BLESS=1 cargo test …` writes the files anew instead of comparing. The store and the backup below `store/` are
//! not written by that: later versions must go on reading what an earlier one wrote.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a recorded file is; `name` is a path below this crate's directory. It is looked for from the crate whose tests run,
/// not where this crate was compiled: clones share one build, and a test of one clone must not read another.
///
/// # Panics
/// If that crate is not in a clone of this repository.
pub fn path(name: &str) -> PathBuf {
    let tested = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).expect("cargo test sets CARGO_MANIFEST_DIR");
    let recorded = |folder: &Path| Some(folder.join("tests/golden")).filter(|golden| golden.is_dir());
    tested.ancestors().find_map(recorded).expect("tests/golden is in the repository of the tested crate").join(name)
}

/// Whether files are to be written instead of compared.
pub fn blessing() -> bool {
    std::env::var_os("LANDFALL_BLESS").is_some_and(|value| value == "1")
}

/// A recorded text.
///
/// # Panics
/// If there is no such file.
pub fn text(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// A recorded message, from its hexadecimal text.
///
/// # Panics
/// If there is no such file, or it is not hexadecimal.
pub fn bytes(name: &str) -> Vec<u8> {
    let digits: String = text(name).split_whitespace().collect();
    hex::decode(digits).unwrap_or_else(|error| panic!("{name} is not hexadecimal: {error}"))
}

/// Compares `now` with the recorded text.
///
/// # Panics
/// If they differ, with the first line that does.
#[track_caller]
pub fn same(name: &str, now: &str) {
    if blessing() {
        let path = path(name);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, now));
        return written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
    let recorded = text(name);
    if recorded == now {
        return;
    }
    let mut lines = recorded.lines().zip(now.lines()).enumerate();
    match lines.find(|(_, (old, new))| old != new) {
        Some((at, (old, new))) => panic!("{name}, line {}:\nrecorded: {old}\nnow:      {new}", at + 1),
        None => {
            panic!("{name}: {} lines are recorded, now there are {}", recorded.lines().count(), now.lines().count())
        }
    }
}

/// Compares `now` with the recorded message, which is kept as hexadecimal text.
///
/// # Panics
/// As [`same`].
#[track_caller]
pub fn same_bytes(name: &str, now: &[u8]) {
    let digits = hex::encode(now);
    let lines: Vec<&str> =
        (0..digits.len()).step_by(96).filter_map(|at| digits.get(at..digits.len().min(at + 96))).collect();
    same(name, &format!("{}\n", lines.join("\n")));
}
