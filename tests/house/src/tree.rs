//! The files of the repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Names of folders that hold nothing written by people.
const SKIPPED: [&str; 4] = [".git", "target", "artifacts", "corpus"];

/// This crate's folder, as cargo names it when it runs a test. Not where it was compiled: clones share one build, and a test
/// of one clone must not read another.
pub(crate) fn home() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).expect("cargo test sets CARGO_MANIFEST_DIR")
}

/// The repository's root.
pub fn root() -> PathBuf {
    home().join("../..").canonicalize().expect("this crate lies in tests/house")
}

/// Every file below `root` whose name ends in one of `extensions`: path relative to `root`, and text; sorted.
///
/// # Errors
/// A folder or file cannot be read, or is no UTF-8.
pub fn texts(root: &Path, extensions: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if !SKIPPED.contains(&&*name) {
                    folders.push(path);
                }
            } else if extensions.iter().any(|extension| path.extension().is_some_and(|e| e == *extension)) {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                found.insert(relative, text);
            }
        }
    }
    Ok(found)
}

/// The top folder of a path relative to the root, "." for a file in the root itself.
pub fn folder(path: &str) -> &str {
    path.split_once('/').map_or(".", |(folder, _)| folder)
}
