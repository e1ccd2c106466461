//! Where documents, events and secrets are kept: three narrow traits, and a facade that holds one of each. With them the
//! operators' grants ([`access`]) and the [`audit`] log.
//!
//! No transaction spans two of the traits; a caller that needs more replays the event log. That keeps the door open for
//! back ends that offer one-object compare-and-swap and nothing else. `conformance` says what every back end owes.

#![allow(clippy::disallowed_methods, reason = "an edge: stamps what it stores")]

pub mod access;
pub mod actor;
pub mod audit;
#[cfg(test)]
mod conformance;
mod counts;
mod error;
mod history;
mod hold;
#[cfg(test)]
mod incarnation_tests;
mod journal;
mod json;
mod limits;
mod memory;
mod migrate;
#[cfg(test)]
mod migrate_tests;
mod open_error;
mod overlay;
mod postgres;
mod rules;
mod seal;
mod sqlite;
mod store;
mod stored;
mod traits;

pub use counts::Counts;
pub use error::StoreError;
pub use history::{Change, ChangeOp, Watch, WatchError};
pub use hold::{Alone, CONFIRMED_WITHIN, Hold, Turn, Unconfirmed};
pub use journal::{HISTORY_AGE, HISTORY_PER_DOCUMENT, HISTORY_TOTAL};
pub use limits::{MAX_DOCUMENT_BYTES, MAX_EVENTS_PER_WORKFLOW};
pub use memory::MemoryStore;
pub use migrate::{MIGRATED, MigrateError, Migrated, to_postgres, to_sqlite};
pub use open_error::OpenError;
pub use postgres::{Lead, PostgresError, PostgresOptions, PostgresStore, Remarks, Risk, There};
pub use seal::KEY_FILE;
pub use sqlite::{DATABASE, REPLACED, RESTORING, SCHEMA, SqliteStore, copy_database, examine, hold};
pub use store::Store;
pub use traits::{
    ChangeSet, DocumentStore, Ended, EventLog, INCARNATION, LoggedEvent, LoggedRun, Page, SecretStore, Seen, Sizes,
    Unreadable, Upkeep,
};
