//! Reading a backup: its content is used only after its digest matches.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path};

use sha2::{Digest as _, Sha256};

use super::{BackupError, FORMAT, MANIFEST, MANIFEST_DIGEST, MAX_MANIFEST, Manifest, io_error};
use landfall_store::{DATABASE, SCHEMA};

/// Reads the whole file and compares it with its manifest; writes nothing.
pub(super) fn verify(path: &Path) -> Result<Manifest, BackupError> {
    walk(path, |_| Ok(Box::new(io::sink())))
}

/// Writes the members below `directory`, flushed; compares them again on the way.
pub(super) fn extract(path: &Path, directory: &Path) -> Result<Manifest, BackupError> {
    let manifest = walk(path, |member| {
        let target = directory.join(member);
        if let Some(parent) = target.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?))
    })?;
    let mut directories = std::collections::BTreeSet::from([directory.to_owned()]);
    for member in &manifest.files {
        let target = directory.join(&member.path);
        File::open(&target).and_then(|file| file.sync_all()).map_err(io_error("flush", &target))?;
        directories.extend(target.parent().map(Path::to_owned));
    }
    for directory in directories {
        File::open(&directory).and_then(|file| file.sync_all()).map_err(io_error("flush", &directory))?;
    }
    Ok(manifest)
}

fn walk(path: &Path, mut sink: impl FnMut(&str) -> io::Result<Box<dyn Write>>) -> Result<Manifest, BackupError> {
    let damaged = |what: &str| BackupError::Damaged { path: path.to_owned(), what: what.to_owned() };
    // Of a truncated or garbled tar the library says what it missed.
    let broken = |error: io::Error| BackupError::Damaged { path: path.to_owned(), what: error.to_string() };
    let file = File::open(path).map_err(io_error("open", path))?;
    let mut archive = tar::Archive::new(io::BufReader::new(file));
    let mut entries = archive.entries().map_err(broken)?;
    let mut next = |wanted: &str| {
        let entry = entries.next().ok_or_else(|| damaged(&format!("it ends before {wanted}")))?.map_err(broken)?;
        let named = entry.path().is_ok_and(|path| path.as_ref() == Path::new(wanted));
        if named && entry.header().entry_type().is_file() {
            Ok(entry)
        } else {
            Err(damaged(&format!("{wanted} is not at its place")))
        }
    };
    let mut json = Vec::new();
    next(MANIFEST)?.take(MAX_MANIFEST).read_to_end(&mut json).map_err(broken)?;
    let manifest: Manifest = serde_json::from_slice(&json).map_err(|_| damaged("its manifest does not parse"))?;
    if manifest.format != FORMAT || manifest.schema > SCHEMA {
        return Err(BackupError::Newer { path: path.to_owned(), version: manifest.version });
    }
    if manifest.files.first().is_none_or(|first| first.path != DATABASE) {
        return Err(damaged("it contains no database"));
    }
    for member in &manifest.files {
        let inside = Path::new(&member.path).components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || member.path.is_empty() {
            return Err(damaged("its manifest names a file outside the data directory"));
        }
        let mut entry = next(&member.path)?;
        let mut out = sink(&member.path).map_err(io_error("write", Path::new(&member.path)))?;
        let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
        loop {
            let read = entry.read(&mut buffer).map_err(broken)?;
            let part = buffer.get(..read).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            hash.update(part);
            bytes += read as u64;
            out.write_all(part).map_err(io_error("write", Path::new(&member.path)))?;
        }
        if bytes != member.bytes || hex::encode(hash.finalize()) != member.sha256 {
            return Err(damaged(&format!("{} does not match the manifest", member.path)));
        }
    }
    let mut stated = String::new();
    next(MANIFEST_DIGEST)?.take(128).read_to_string(&mut stated).map_err(broken)?;
    if stated != format!("{}\n", hex::encode(Sha256::digest(&json))) {
        return Err(damaged("its manifest was altered"));
    }
    Ok(manifest)
}
