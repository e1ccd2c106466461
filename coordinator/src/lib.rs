//! The coordinator: documents, workflows, sessions, PKI and boot services, in one process.
//!
//! Read in this order to follow a machine: [`landfall_boot`] answers its firmware, [`session`] its agent, [`engine`]
//! decides and is the only writer of status, [`landfall_machine`] is the pure machine it decides by, [`landfall_store`]
//! keeps what was decided, and [`operator`] shows it to people. [`state::Coordinator`] is the handle all of them share.

#[allow(clippy::disallowed_methods, reason = "an edge: names and stamps backups")]
pub mod backup;
pub mod boot;
pub mod config;
mod dhcp_leases;
#[allow(clippy::disallowed_methods, reason = "an edge: compares the clock with what it should be")]
pub mod doctor;
pub mod engine;
pub mod finding;
#[doc(hidden)]
pub mod fuzzing;
#[allow(clippy::disallowed_methods, reason = "an edge: compares the clock with what it should be")]
pub mod health;
#[allow(clippy::disallowed_methods, reason = "an edge: stamps what it applied")]
pub mod manifest_dir;
pub mod metrics;
pub mod migrate;
pub mod notify;
#[allow(clippy::disallowed_methods, reason = "an edge: passes the time of a request on")]
pub mod operator;
pub mod ops;
#[allow(clippy::disallowed_methods, reason = "an edge: dates certificates")]
pub mod pki;
pub mod reload;
pub mod session;
pub mod sightings;
pub mod state;
pub mod tls;
pub mod tools_layer;
pub mod workflow;
