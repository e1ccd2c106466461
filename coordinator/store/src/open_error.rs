//! Why a database cannot be opened, and what to do.

use std::path::{Path, PathBuf};

/// Why the store cannot be opened.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{path} is in use by another process; stop that coordinator first, or give this one a data_dir of its own")]
    InUse { path: PathBuf },
    /// The data directory, or the disk under it, takes no writes.
    #[error(
        "cannot write to {path}: {why}; make the data directory writable for this user, and check that its disk is \
            neither full nor mounted read-only"
    )]
    NotWritable { path: PathBuf, why: String },
    /// The key of the secrets is not usable.
    #[error(
        "cannot use the key of the secrets {path}: {what}; restore it from a backup or, where several hosts share the store, copy it from another of them; nothing was changed"
    )]
    Key { path: PathBuf, what: &'static str },
    /// Values that a former version kept in plain could not be sealed.
    #[error("cannot encrypt the secrets in {path}: {why}; nothing was changed")]
    Seal { path: PathBuf, why: String },
    /// A restore was cut short between taking the old data away and putting the new in its place.
    #[error(
        "{path} has no data, but {found} is beside it: a restore was interrupted; run the restore again, or rename \
            the correct directory to {path}"
    )]
    HalfRestored { path: PathBuf, found: PathBuf },
    /// A file or directory cannot be made or read.
    #[error("cannot open {path}")]
    Io { path: PathBuf, source: std::io::Error },
    /// SQLite refused.
    #[error("cannot open the database {path}")]
    Database { path: PathBuf, source: rusqlite::Error },
    /// SQLite found damage.
    #[error("the database {path} is damaged: {report}; restore it from a backup, nothing was changed")]
    Damaged { path: PathBuf, report: String },
    /// A newer coordinator wrote it.
    #[error(
        "the database {path} has schema {found}, but this coordinator supports only up to {known}; start the \
        newer version"
    )]
    Newer { path: PathBuf, found: usize, known: usize },
    /// A newer coordinator wrote a document in it.
    #[error(
        "the database {path} contains {what} in document schema {found}, but this coordinator supports only up to {known} and \
            would lose what it does not know; start the newer version, or restore a backup of this one"
    )]
    NewerDocument { path: PathBuf, what: String, found: u32, known: u32 },
}

impl OpenError {
    pub(crate) fn of_path(path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
        let path = path.to_owned();
        match source.kind() {
            PermissionDenied | ReadOnlyFilesystem | StorageFull => Self::NotWritable { path, why: source.to_string() },
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn of_database(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DiskFull, ReadOnly};
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ReadOnly | DiskFull) => Self::NotWritable { path, why: source.to_string() },
            _ => Self::Database { path, source },
        }
    }
}
