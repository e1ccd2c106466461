//! Why a request did not do what was asked.

use landfall_api::Problem;

/// A request that failed.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The coordinator refused, or answered what this library does not understand.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No answer.
    #[error("{what}{}", .causes.iter().map(|cause| format!(": {cause}")).collect::<String>())]
    Unreachable { what: String, causes: Vec<String>, hint: String },
    /// What the caller gave makes no sense together.
    #[error("{0}")]
    Usage(String),
    /// Something on this host failed, such as reading a file.
    #[error("{what}: {cause}")]
    Local { what: String, cause: String, hint: String },
}

impl From<Problem> for ClientError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl ClientError {
    pub(crate) fn local(what: impl Into<String>, cause: impl ToString, hint: impl Into<String>) -> Self {
        Self::Local { what: what.into(), cause: cause.to_string(), hint: hint.into() }
    }
}
