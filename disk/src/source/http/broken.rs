//! How a request goes wrong, in words.

use std::{error::Error as _, time::Duration};

use crate::WriteError;

/// How long a server may take to begin an answer, or be silent within one.
pub(super) const READ: Duration = Duration::from_secs(30);

/// How one request went wrong.
#[derive(Debug)]
pub(super) enum Broken {
    /// No response, or one that asks for a retry, perhaps at a stated time.
    NoAnswer(String, Option<Duration>),
    /// A retry cannot help.
    Final(WriteError),
}

/// An error of the client's and its causes in one line. Without its URL: that may be a redirect's, with a secret in it.
pub(super) fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
