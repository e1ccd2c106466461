//! User and password in a URL, which would be logged.

use reqwest::Url;

/// Whether a URL holds a user or a password.
pub(super) fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}
