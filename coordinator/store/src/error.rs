//! Why a store refuses or fails, and what of it passes by itself.

use std::{io, path::PathBuf, sync::Arc};

use landfall_api::{ErrorCode, Kind, Problem};
use uuid::Uuid;

use super::{MAX_DOCUMENT_BYTES, MAX_EVENTS_PER_WORKFLOW, PostgresError};

/// Why a store refused or could not do something.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No such document.
    #[error("there is no {kind} \"{name}\"")]
    NotFound { kind: Kind, name: String },
    /// A document of that kind and name is there already.
    #[error("the {kind} \"{name}\" already exists")]
    AlreadyExists { kind: Kind, name: String },
    /// A document of that kind and name is stored that this version cannot read.
    #[error("a stored {kind} \"{name}\" cannot be read by this version, and is not overwritten")]
    Unreadable { kind: Kind, name: String },
    /// The document changed since the caller read it.
    #[error("the {kind} \"{name}\" changed meanwhile: it is at resourceVersion {stored}, but the write states {given}")]
    Conflict { kind: Kind, name: String, stored: u64, given: u64 },
    /// The document is too large.
    #[error("the {kind} \"{name}\" has {bytes} bytes; the limit is {MAX_DOCUMENT_BYTES}")]
    TooLarge { kind: Kind, name: String, bytes: usize },
    /// An event skips numbers: one before it is missing.
    #[error("event {got} of workflow {workflow_uid}, action {action_index}, attempt {attempt} skips {expected}")]
    EventGap { workflow_uid: Uuid, action_index: u32, attempt: u32, expected: u64, got: u64 },
    /// The machine's agent has come to another coordinator, or again: what an older session reports is not stored any more.
    #[error(
        "the machine of workflow {workflow_uid} is in session {newest} by now; what session {given} reports is refused"
    )]
    NewerEpoch { workflow_uid: Uuid, newest: u64, given: u64 },
    /// The workflow has as many events as are kept.
    #[error("workflow {workflow_uid} has reached the limit of {MAX_EVENTS_PER_WORKFLOW} events")]
    TooManyEvents { workflow_uid: Uuid },
    /// The database failed.
    #[error("the database failed")]
    Database(#[from] rusqlite::Error),
    /// The transaction was not committed, so nothing of it was acknowledged.
    #[error("the database did not commit")]
    Commit(#[source] Arc<rusqlite::Error>),
    /// PostgreSQL failed or is not reachable. A commit whose answer was lost may have been done all the same.
    #[error("the database failed")]
    Postgres(#[source] Arc<PostgresError>),
    /// Another program keeps the write-ahead log from being folded back, and it has reached its bound.
    #[error("the write-ahead log {path} has reached {bytes} bytes: another program reads the database continuously")]
    WalFull { path: PathBuf, bytes: u64 },
    /// A file beside the database failed.
    #[error("cannot write {path}")]
    File { path: PathBuf, source: io::Error },
    /// A secret's ciphertext does not open: it was altered, or sealed with another key or under another name.
    #[error("cannot decrypt the secret \"{name}\" with this coordinator's key")]
    Sealed { name: String },
    /// The system gave no random numbers.
    #[error("the system gave no random numbers")]
    NoRandom,
    /// What is stored does not parse.
    #[error("stored data does not parse: {what}")]
    Corrupt { what: String, source: serde_json::Error },
    /// See [`crate::Hold::during`].
    #[error("another coordinator had its turn first: this one, or its connection to the database, hung for too long")]
    NotAlone,
    /// The store was shut down.
    #[error("the store is shut down")]
    Closed,
}

/// Whether it is the disk that failed, and not the database: no space, no permission, no device, or a busy file.
/// Refused requests may be repeated once the disk works again; no restart is needed.
fn of_the_disk(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Sqlite;
    matches!(
        error.sqlite_error_code(),
        Some(
            Sqlite::DiskFull
                | Sqlite::SystemIoFailure
                | Sqlite::ReadOnly
                | Sqlite::CannotOpen
                | Sqlite::PermissionDenied
                | Sqlite::DatabaseBusy
                | Sqlite::DatabaseLocked
                | Sqlite::OutOfMemory
                | Sqlite::FileLockingProtocolFailed
        )
    )
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        Self::Postgres(Arc::new(error))
    }
}

impl StoreError {
    /// The stable code of it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            Self::Conflict { .. } | Self::Unreadable { .. } => ErrorCode::Conflict,
            Self::TooLarge { .. } | Self::EventGap { .. } => ErrorCode::InvalidDocument,
            Self::NewerEpoch { .. } => ErrorCode::Fenced,
            Self::TooManyEvents { .. } => ErrorCode::LimitReached,
            Self::Database(error) if of_the_disk(error) => ErrorCode::StoreUnavailable,
            Self::Commit(error) if of_the_disk(error) => ErrorCode::StoreUnavailable,
            Self::Postgres(_) | Self::WalFull { .. } | Self::File { .. } | Self::NotAlone | Self::Closed => {
                ErrorCode::StoreUnavailable
            }
            Self::Database(_) | Self::Commit(_) | Self::Corrupt { .. } | Self::Sealed { .. } | Self::NoRandom => {
                ErrorCode::Internal
            }
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = error.code();
        let problem = Problem::new(code, error.to_string()).caused_by(&error);
        match error {
            StoreError::Unreadable { .. } => problem.hint("landfall-coordinator doctor says why"),
            _ if code != ErrorCode::StoreUnavailable => problem,
            StoreError::WalFull { .. } => {
                problem.hint("end the program that has landfall.db open, then repeat the request; nothing is lost")
            }
            StoreError::Postgres(_) => problem.hint(
                "check that PostgreSQL runs and is reachable from this host, then repeat the request; the coordinator connects \
                    again by itself",
            ),
            StoreError::NotAlone => problem.hint("repeat the request"),
            StoreError::Closed => problem.hint("the coordinator is stopping; repeat the request in a moment"),
            _ => problem.hint(
                "nothing was stored; check the data directory's disk (space, mount, kernel log), then repeat the \
                    request",
            ),
        }
    }
}
