//! Backup and restore: everything the coordinator has, as one file.
//!
//! The file is a tar: `manifest.json`, which names every other member with its size and digest, then the members in
//! that order, then `manifest.sha256`. The database in it is one instant's, taken by SQLite's own backup while writers
//! go on; the certificate authority and the key of the secrets are in it, otherwise the machines would not know a
//! restored coordinator, and it could not read its own secrets. The file contains all of that, so its mode is 0600.

mod files;
mod pack;
mod read;
mod restore;
mod serve;
mod take;

use std::{io, path::PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use landfall_store::{OpenError, StoreError};

pub use restore::{
    AccessAfter, Incarnation, Restored, begin_incarnation, hold_what_is_old, incarnation, mark_database, restore,
};
pub use serve::{Stream, stream};
pub use take::{Taken, take};

/// Name of the manifest in the file.
const MANIFEST: &str = "manifest.json";
/// Name of the manifest's digest in the file.
const MANIFEST_DIGEST: &str = "manifest.sha256";
/// How the file is laid out. A reader refuses any other.
const FORMAT: u32 = 1;
/// A manifest larger than this is none, bytes.
const MAX_MANIFEST: u64 = 1 << 20;

/// What is in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// How the file is laid out.
    pub format: u32,
    /// The version of the coordinator that made it.
    pub version: String,
    /// The database's schema.
    pub schema: usize,
    /// When it was made, by the coordinator's clock.
    pub time: Timestamp,
    /// Every other member, in order.
    pub files: Vec<Member>,
}

/// One file of the data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// Where in the data directory.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of it, hex.
    pub sha256: String,
}

/// Why a backup could not be made or restored.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file failed.
    #[error("cannot {what} {path}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// There is nothing to back up.
    #[error("{0} contains no coordinator's data; use the configuration of a coordinator that has run")]
    Nothing(PathBuf),
    /// The output is there already.
    #[error("{0} already exists; a backup never replaces a file, so name another one")]
    Exists(PathBuf),
    /// A file is too large to be one of the coordinator's own.
    #[error("{path} has {bytes} bytes, more than any file of the coordinator; move it out of the data directory")]
    Foreign { path: PathBuf, bytes: u64 },
    /// The running coordinator refused, or its answer broke off.
    #[error("the running coordinator made no backup: {0}")]
    Refused(String),
    /// The file is not a whole backup.
    #[error("{path} is not a complete backup: {what}; nothing was changed, use another one")]
    Damaged { path: PathBuf, what: String },
    /// A newer coordinator made it.
    #[error(
        "{path} was made by version {version}, whose database this version cannot read; nothing was changed, restore \
            with that version"
    )]
    Newer { path: PathBuf, version: String },
    /// What is in the file does not make a coordinator.
    #[error("cannot restore {path}: {why}; nothing was changed")]
    Unusable { path: PathBuf, why: String },
    /// There is data where the backup is to go.
    #[error("{0} is not empty; use --replace to rename and keep it")]
    NotEmpty(PathBuf),
    /// Another process has the data directory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database could not be copied.
    #[error("cannot copy the database")]
    Store(#[from] StoreError),
}

fn io_error(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { what, path, source }
}
