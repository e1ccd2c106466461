//! Messages to and from the wire: both conversions of a message stand in one file, and no program has another.
//!
//! From the wire a message converts whole or not at all: a field that is missing, out of range or of an unknown kind is a
//! [`ConvertError`] that names it. Nothing is guessed and nothing ignored. To the wire every message converts.

mod action;
mod assignment;
mod disk;
mod enroll;
mod error;
mod facts;
mod hello;
mod identity;
mod problem;
mod scalar;
mod selector;
mod telemetry;
mod to_agent;
mod to_coordinator;
mod worker;

pub use assignment::named_attempt;
pub use error::ConvertError;
pub use facts::MAX_FACTS_JSON;

use error::Within;
