//! Wire types in and out: the only place that touches both them and the domain's.
//!
//! A message that does not convert is a [`ConvertError`] naming the field; nothing is guessed and nothing ignored.

#[cfg(test)]
mod golden;
mod incoming;
mod outgoing;

pub(crate) use incoming::{assignment, control, duration, problem, timestamp, uuid};
pub(crate) use outgoing::{disk_id, event_to_wire, heartbeat, identity, receipt_to_wire, telemetry_to_wire, versions};

use landfall_api::{ErrorCode, Problem};

/// A message from the coordinator that is not valid for this agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator's {field} is not valid for this agent: {what}")]
pub(crate) struct ConvertError {
    field: String,
    what: String,
}

impl ConvertError {
    pub(crate) fn new(field: impl Into<String>, what: impl ToString) -> Self {
        Self { field: field.into(), what: what.to_string() }
    }
    /// A field that must be there is not, or holds a case this version does not know.
    pub(crate) fn missing(field: impl Into<String>) -> Self {
        Self::new(field, "it is missing, or of a kind that this agent does not know")
    }
    /// As a person reads it.
    pub(crate) fn to_problem(&self) -> Problem {
        Problem::new(ErrorCode::VersionSkew, self.to_string()).at(self.field.clone()).hint(
            "agent and coordinator have different versions: build the boot image and the coordinator from one \
                release",
        )
    }
}

/// Puts the outer field's name before an inner one's.
pub(crate) trait Within<T> {
    fn within(self, outer: &str) -> Result<T, ConvertError>;
}

impl<T> Within<T> for Result<T, ConvertError> {
    fn within(self, outer: &str) -> Self {
        self.map_err(|e| ConvertError { field: format!("{outer}.{}", e.field), what: e.what })
    }
}
