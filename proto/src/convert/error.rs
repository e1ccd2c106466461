//! What does not convert.

/// What is wrong with a field that must be there.
pub(super) const MISSING: &str = "it is missing, or of a kind this version does not know";

/// A message from the wire that is no message of `landfall-api`: which field, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct ConvertError {
    field: String,
    what: String,
}

impl ConvertError {
    /// `field` is wrong in the way that `what` says.
    pub fn new(field: impl Into<String>, what: impl ToString) -> Self {
        Self { field: field.into(), what: what.to_string() }
    }
    /// A field that must be there is not, or holds a case that this version does not know.
    pub fn missing(field: impl Into<String>) -> Self {
        Self::new(field, MISSING)
    }
    /// The field's path from the message on, such as `assignment.actions[0].kind`.
    pub fn field(&self) -> &str {
        &self.field
    }
    /// What is wrong with it: a sentence, or a parser's own words.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// So that one codec serves messages that never fail as well.
impl From<std::convert::Infallible> for ConvertError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// Puts the outer field's name before an inner one's.
pub(super) trait Within<T> {
    fn within(self, outer: &str) -> Result<T, ConvertError>;
}

impl<T> Within<T> for Result<T, ConvertError> {
    fn within(self, outer: &str) -> Self {
        self.map_err(|e| ConvertError { field: format!("{outer}.{}", e.field), what: e.what })
    }
}
