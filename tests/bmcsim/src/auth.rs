//! Logins: sessions, and name and password in a request.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::quirks::Quirks;
use crate::{PASSWORD, USERNAME};

/// What logins came to.
#[derive(Debug, Clone)]
pub struct Accounts {
    /// The password that is right.
    pub password: String,
    /// Sessions that are open, by token.
    pub sessions: Vec<String>,
    /// Sessions so far.
    pub opened: u32,
    /// Logins with a wrong name or password.
    pub failed: u32,
    /// Too many have failed: none succeeds any more.
    pub is_locked: bool,
}

impl Default for Accounts {
    fn default() -> Self {
        Self { password: PASSWORD.into(), sessions: Vec::new(), opened: 0, failed: 0, is_locked: false }
    }
}

impl Accounts {
    /// Whether an account is right; a wrong one counts.
    pub(crate) fn accepts(&mut self, username: &str, password: &str, quirks: &Quirks) -> bool {
        if !self.is_locked && username == USERNAME && password == self.password {
            return true;
        }
        self.fails(quirks);
        false
    }

    /// Counts a failed login.
    pub(crate) fn fails(&mut self, quirks: &Quirks) {
        self.failed += 1;
        self.is_locked |= quirks.lockout_after.is_some_and(|most| self.failed >= most);
    }

    /// Opens a session: its token.
    pub(crate) fn open(&mut self) -> String {
        self.opened += 1;
        let token = format!("token-{}", self.opened);
        self.sessions.push(token.clone());
        token
    }

    /// Whether a request may pass.
    pub(crate) fn admits(&mut self, headers: &HeaderMap, quirks: &Quirks) -> bool {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(token) = header("x-auth-token") {
            return self.sessions.iter().any(|open| open == token);
        }
        let Some(basic) = header("authorization").and_then(|value| value.strip_prefix("Basic ")) else { return false };
        let account = STANDARD.decode(basic).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let (username, password) = account.split_once(':').unwrap_or_default();
        self.accepts(username, password, quirks)
    }
}
