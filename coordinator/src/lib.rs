//! The coordinator: documents, workflows, sessions, PKI and boot services, in one process.
//!
//! Read in this order to follow a machine: [`boot`] answers its firmware, [`session`] its agent, [`engine`] decides and
//! is the only writer of status, [`landfall_machine`] is the pure machine it decides by, [`store`] keeps what was decided, and
//! [`operator`] shows it to people. [`state::Coordinator`] is the handle all of them share.

pub mod access;
pub mod audit;
pub mod backup;
pub mod boot;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod finding;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod gate;
pub mod health;
pub mod manifest_dir;
pub mod metrics;
pub mod notify;
pub mod operator;
pub mod ops;
pub mod pki;
pub mod reload;
pub mod session;
pub mod state;
pub mod store;
pub mod tls;
pub mod workflow;
