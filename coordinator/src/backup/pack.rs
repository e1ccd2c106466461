//! Writing a backup.

use std::fs::File;
use std::io;
use std::io::{Read as _, Seek as _, Write};
use std::path::Path;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{BackupError, FORMAT, MANIFEST, MANIFEST_DIGEST, Manifest, Member, files, io_error};
use landfall_store::{DATABASE, SCHEMA};

/// A backup ready to be written: the copied database, open, and everything else in memory.
pub(super) struct Packed {
    manifest: Manifest,
    database: File,
    others: Vec<(String, Vec<u8>)>,
}

impl Packed {
    /// Reads and hashes everything. `database` is a copy without writers.
    pub(super) fn of(data_dir: &Path, mut database: File) -> Result<Self, BackupError> {
        let path = data_dir.join(DATABASE);
        let (bytes, sha256) = digest(&mut database).map_err(io_error("read the copy of", &path))?;
        database.rewind().map_err(io_error("read the copy of", &path))?;
        let others = files::read_all(data_dir)?;
        let mut members = vec![Member { path: DATABASE.to_owned(), bytes, sha256 }];
        members.extend(others.iter().map(|(path, content)| Member {
            path: path.clone(),
            bytes: content.len() as u64,
            sha256: hex::encode(Sha256::digest(content)),
        }));
        let manifest = Manifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            time: Timestamp::now(),
            files: members,
        };
        Ok(Self { manifest, database, others })
    }

    /// Writes the file.
    pub(super) fn write(self, to: impl Write) -> io::Result<Manifest> {
        let Self { manifest, database, others } = self;
        let mut tar = tar::Builder::new(to);
        let seconds = manifest.time.as_second().unsigned_abs();
        let header = |bytes: u64| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes);
            header.set_mode(0o600);
            header.set_mtime(seconds);
            header
        };
        let json = serde_json::to_vec_pretty(&manifest)?;
        tar.append_data(&mut header(json.len() as u64), MANIFEST, &json[..])?;
        if let Some(copy) = manifest.files.first() {
            // Of the size that was digested, so that a reader finds the next member.
            tar.append_data(&mut header(copy.bytes), DATABASE, database.take(copy.bytes))?;
        }
        for (path, content) in &others {
            tar.append_data(&mut header(content.len() as u64), path, &content[..])?;
        }
        let digest = format!("{}\n", hex::encode(Sha256::digest(&json)));
        tar.append_data(&mut header(digest.len() as u64), MANIFEST_DIGEST, digest.as_bytes())?;
        tar.into_inner()?.flush()?;
        Ok(manifest)
    }
}

/// Size and SHA-256 of what is left to read.
fn digest(from: &mut impl io::Read) -> io::Result<(u64, String)> {
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok((bytes, hex::encode(hash.finalize()))),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}
