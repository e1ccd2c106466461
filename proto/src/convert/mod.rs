//! Messages to and from the wire: both conversions of a message stand in one file, and no program has another.
//!
//! From the wire a message converts whole or not at all: a field that is missing, out of range or of an unknown kind is a
//! [`ConvertError`] that names it. Nothing is guessed and nothing ignored. To the wire every message converts.
//!
//! Most messages are one list of fields for both ways: `wire.rs` says how to read it.

#[macro_use]
mod wire;
#[macro_use]
mod codec;

mod action;
mod assignment;
mod disk;
mod enroll;
mod error;
mod facts;
mod hello;
mod identity;
mod problem;
mod telemetry;
#[cfg(test)]
mod testing;
mod to_agent;
mod to_coordinator;
mod word;
mod worker;

pub use assignment::named_attempt;
pub use error::ConvertError;
pub use facts::MAX_FACTS_JSON;

use error::Within;
