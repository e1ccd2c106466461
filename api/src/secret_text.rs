//! A text that must not reach a log.

use std::fmt;

/// A password, token or file that may hold one: its `Debug` says only whether it is empty.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretText(String);

impl SecretText {
    /// Keeps `text` out of logs.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
    /// The text itself, by value.
    pub fn into_exposed(self) -> String {
        self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(empty)" } else { "(secret)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_never_shows_the_text() {
        assert_eq!(format!("{:?}", SecretText::new("geheim")), "(secret)");
        assert_eq!(format!("{:?}", SecretText::default()), "(empty)");
    }
}
