//! Wire types in and out: the only place in the coordinator that touches both them and the domain's.
//!
//! A message that does not convert is a [`ConvertError`] naming the field; nothing is guessed and nothing ignored.

#[cfg(test)]
mod golden;
mod incoming;
mod outgoing;

pub(crate) use incoming::{Asker, Telemetry, enroll, event, facts, hello, telemetry};
pub(crate) use outgoing::{enrolment, problem_to_wire, refused, response, welcome};

use landfall_api::{ErrorCode, Problem};

/// A message from an agent that makes no sense to this coordinator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent's {field} is not valid: {what}")]
pub(crate) struct ConvertError {
    field: &'static str,
    what: String,
}

impl ConvertError {
    pub(super) fn new(field: &'static str, what: impl ToString) -> Self {
        Self { field, what: what.to_string() }
    }
    /// A field that must be there is not, or holds a case this version does not know.
    pub(super) fn missing(field: &'static str) -> Self {
        Self::new(field, "it is missing, or of a kind that this coordinator does not know")
    }
}

impl From<ConvertError> for Problem {
    fn from(error: ConvertError) -> Self {
        Self::new(ErrorCode::VersionSkew, error.to_string())
            .at(error.field)
            .hint("build the boot image and the coordinator from one release")
    }
}
