//! Files that must be whole or absent, whenever the power goes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::PkiError;

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::Io { doing, path, source }
}

/// Makes `directory` with `files` in it, all at once: either all of them are there after a power cut, or the directory is
/// not. Directory 0700, files 0600.
pub(super) fn create_directory(directory: &Path, files: &[(&str, &str)]) -> Result<(), PkiError> {
    let mut staging = directory.as_os_str().to_owned();
    staging.push(".new");
    let staging = PathBuf::from(staging);
    match fs::remove_dir_all(&staging) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error("remove what is left of", &staging)(e)),
        _ => {}
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&staging).map_err(io_error("create", &staging))?;
    for (name, content) in files {
        write_new(&staging.join(name), content)?;
    }
    sync_directory(&staging)?;
    fs::rename(&staging, directory).map_err(io_error("create", directory))?;
    sync_directory(directory.parent().unwrap_or(Path::new("/")))
}

/// Replaces one file, all at once; 0600.
pub(super) fn replace(path: &Path, content: &str) -> Result<(), PkiError> {
    let staging = path.with_extension("new");
    match fs::remove_file(&staging) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error("remove what is left of", &staging)(e)),
        _ => {}
    }
    write_new(&staging, content)?;
    fs::rename(&staging, path).map_err(io_error("replace", path))?;
    sync_directory(path.parent().unwrap_or(Path::new("/")))
}

fn write_new(path: &Path, content: &str) -> Result<(), PkiError> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io_error("create", path))?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error("write", path))
}

fn sync_directory(path: &Path) -> Result<(), PkiError> {
    File::open(path).and_then(|d| d.sync_all()).map_err(io_error("flush", path))
}

/// Whether the directory is there with anything in it.
pub(super) fn populated(directory: &Path) -> Result<bool, PkiError> {
    match fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(io_error("read", directory)(e)),
    }
}

/// Reads a file that must be there.
pub(super) fn read(path: &Path) -> Result<String, PkiError> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map_err(|_| PkiError::Damaged { path: path.to_owned(), what: "it is not text".to_owned() }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(PkiError::Missing { path: path.to_owned() }),
        Err(e) => Err(io_error("read", path)(e)),
    }
}

/// Reads a private key's file, refusing one that others may read.
pub(super) fn read_secret(path: &Path) -> Result<String, PkiError> {
    let content = read(path)?;
    let mode = fs::metadata(path).map_err(io_error("look at", path))?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 { Ok(content) } else { Err(PkiError::Exposed { path: path.to_owned(), mode }) }
}
