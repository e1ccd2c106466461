//! Why a PostgreSQL database cannot be opened, and what to do.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::open_error::OpenError;

/// Why the PostgreSQL store cannot be opened, or is not opened again after its connection was lost.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL does not parse.
    #[error("the store's URL is invalid: {0}; write postgresql://user@host/database")]
    Url(String),
    /// The URL has a password in it, where every list of processes and every log may show it.
    #[error(
        "the store's URL contains a password; write it into a file of mode 0600 and name that as the password file"
    )]
    PasswordInUrl,
    /// A connection over a network would be readable by others.
    #[error(
        "the connection to {host} would not be encrypted; name the CA of its certificate, or write sslmode=disable into the URL to accept that"
    )]
    Plain { host: String },
    /// A file of the configuration is not usable.
    #[error("cannot use {path}: {why}")]
    File { path: PathBuf, why: String },
    /// The host's name has no address.
    #[error("cannot resolve {host}: {why}")]
    Resolve { host: String, why: String },
    /// No connection.
    #[error("cannot connect to PostgreSQL at {at}: {why}")]
    Connect { at: String, why: String },
    /// The connection broke, or the server refused something.
    #[error("PostgreSQL: {}", spelled(.0))]
    Server(tokio_postgres::Error),
    /// The server did not answer.
    #[error("PostgreSQL did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// Every connection for reads was at work for as long as a reader waits.
    #[error("all {connections} connections to PostgreSQL at {at} for reads are busy; repeat the request in a moment")]
    Busy { at: String, connections: usize },
    /// Each try to append to a workflow found that another coordinator had just deleted its events.
    #[error("the events of a workflow are deleted again and again while others are appended; repeat the request")]
    Deleted,
    /// The server is too old.
    #[error("PostgreSQL {found} is too old; version {needed} or newer is needed")]
    TooOld { found: String, needed: u32 },
    /// A setting of the server lets acknowledged writes be lost.
    #[error(
        "the server has {setting} = {value}, which can lose acknowledged writes; set it to on, or write accept = [\"settings\"] below [store]"
    )]
    Unsafe { setting: String, value: String },
    /// A fail-over to one of these loses what it does not have.
    #[error(
        "{replicas} servers copy the database, and no commit waits for any of them: a fail-over to one loses acknowledged \
            writes; name one in synchronous_standby_names, or write accept = [\"replicas\"] below [store]"
    )]
    Unawaited { replicas: u64 },
    /// The hosts' clocks do not agree.
    #[error(
        "PostgreSQL's clock and this host's are {seconds} s apart: time limits would end too early or too late; set both by NTP, \
            or write accept = [\"clock\"] below [store]"
    )]
    Clock { seconds: u64 },
    /// The role could not keep a store in the database.
    #[error("the role {role} {what}; make it the owner of the database and of the tables in it")]
    Privileges { role: String, what: String },
    /// A pooler gives each transaction another session.
    #[error(
        "a transaction pooler stands between this coordinator and PostgreSQL: {why}; connect to the server itself, or pool by session"
    )]
    Pooled { why: String },
    /// A newer coordinator wrote it.
    #[error(
        "the database has schema {found}, but this coordinator supports only up to {known}; start the newer version"
    )]
    Newer { found: i32, known: i32 },
    /// A newer coordinator wrote a document in it.
    #[error(
        "the database contains {what} in document schema {found}, but this coordinator supports only up to {known} and \
            would lose what it does not know; start the newer version"
    )]
    NewerDocument { what: String, found: u32, known: u32 },
    /// It is not the database that was opened first.
    #[error("the database is another one than at the start; connect to that one, or restart the coordinator")]
    Another,
    /// It was put back, or a standby that did not have everything took its place.
    #[error("the database went back to revision {found}, although {seen} was stored: what came after is lost")]
    WentBack { found: u64, seen: u64 },
    /// It went back, and others have written since.
    #[error("the database went back, and others have written since: revision {seen} is another one than was stored")]
    AnotherPast { seen: u64 },
    /// It went back: another coordinator has found that first, and has marked it.
    #[error("the database went back, and another coordinator has marked it: this coordinator starts anew")]
    Held,
    /// Another coordinator leads, or has it alone.
    #[error("{by} has this database")]
    InUse { by: String },
    /// Nothing shows whether the coordinator that has it works.
    #[error(
        "the server does not show whether {by} works; use the same PostgreSQL role on every host, and set track_activities to on"
    )]
    Unwatched { by: String },
    /// `migrate-store` has copied its content into a SQLite store, which goes on.
    #[error(
        "the store in this database was moved to SQLite by migrate-store; remove [store] from this host's configuration, or name \
            an empty database to move it back"
    )]
    Moved,
    /// There is no store in it.
    #[error("the database at {at} has no store in it; correct the URL")]
    Empty { at: String },
    /// The key of the secrets is not usable.
    #[error(transparent)]
    Key(#[from] OpenError),
}

/// A server's error with its own words: the error's type keeps them in its source.
pub(super) fn spelled(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(said), _) => format!("{} ({})", said.message(), said.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl PostgresError {
    /// Whether the same may succeed later although nothing changes in this coordinator, its configuration or the server's.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Server(error) => error.code().is_none_or(|code| {
                // The server shuts down, starts, is out of something, or ended the session.
                ["08", "53", "57"].contains(&&code.code()[..2])
            }),
            Self::Resolve { .. } | Self::Connect { .. } | Self::Silent(_) | Self::Busy { .. } | Self::InUse { .. } => {
                true
            }
            _ => false,
        }
    }

    /// Whether the database is not what it was, so that this coordinator starts anew with what is there.
    pub(super) fn begins_anew(&self) -> bool {
        matches!(self, Self::WentBack { .. } | Self::AnotherPast { .. } | Self::Held | Self::Moved)
    }

    /// Whether two transactions met, so that the same one may succeed at once.
    pub(super) fn is_collision(&self) -> bool {
        let code = match self {
            Self::Server(error) => error.code(),
            _ => None,
        };
        [&SqlState::UNIQUE_VIOLATION, &SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED]
            .iter()
            .any(|collision| code == Some(collision))
    }
}
