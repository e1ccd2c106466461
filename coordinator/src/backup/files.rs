//! Which files of a data directory a backup holds, beside the database.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BackupError, io_error};
use landfall_store::DATABASE;

/// No file that the coordinator keeps beside its database comes near this, bytes.
const MAX_FILE: u64 = 16 << 20;
/// Files in a data directory at most.
const MAX_FILES: usize = 10_000;

/// Where copies of the database wait to be packed: `backup-….tmp`.
const STAGING_PREFIX: &str = "backup-";
const STAGING_SUFFIX: &str = ".tmp";

/// A new name for a copy of the database.
pub(super) fn staging(data_dir: &Path) -> PathBuf {
    data_dir.join(format!("{STAGING_PREFIX}{}{STAGING_SUFFIX}", uuid::Uuid::new_v4().simple()))
}

/// Removes copies that a crash left behind.
pub(super) fn remove_stale(data_dir: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(data_dir).map_err(io_error("read", data_dir))? {
        let entry = entry.map_err(io_error("read", data_dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(STAGING_PREFIX) && (name.ends_with(STAGING_SUFFIX) || name.contains(".tmp-")) {
            fs::remove_file(entry.path()).map_err(io_error("remove what is left of", &entry.path()))?;
        }
    }
    Ok(())
}

/// What is of this process and this instant, or half made.
fn passing(name: &str) -> bool {
    name == "lock"
        || name.starts_with("api.sock")
        || name.starts_with(DATABASE)
        || name.ends_with(STAGING_SUFFIX)
        || name.ends_with(".new")
        || name == "lost+found"
}

/// Every file that belongs into a backup with its content, by path, the database apart. Read once: what is digested is
/// what is packed, whatever happens to the file meanwhile.
pub(super) fn read_all(data_dir: &Path) -> Result<Vec<(String, Vec<u8>)>, BackupError> {
    let mut found = Vec::new();
    let mut directories = vec![(data_dir.to_owned(), String::new())];
    while let Some((directory, prefix)) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(io_error("read", &directory))? {
            let entry = entry.map_err(io_error("read", &directory))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(io_error("look at", &entry.path()))?);
            let Ok(name) = entry.file_name().into_string() else { continue };
            if passing(&name) {
                continue;
            }
            let inner = format!("{prefix}{name}");
            if kind.is_dir() {
                directories.push((path, format!("{inner}/")));
            } else if kind.is_file() {
                let bytes = entry.metadata().map_err(io_error("look at", &path))?.len();
                if bytes > MAX_FILE || found.len() >= MAX_FILES {
                    return Err(BackupError::Foreign { path, bytes });
                }
                found.push((inner, fs::read(&path).map_err(io_error("read", &path))?));
            }
        }
    }
    found.sort();
    Ok(found)
}
