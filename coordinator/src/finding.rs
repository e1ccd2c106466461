//! One thing that was looked at, and what was found: the shape of `/readyz` and of `doctor`.

use serde::Serialize;

/// How good it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and will not for ever, or not for everybody.
    Warn,
    /// It does not work.
    Fail,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked at: a word or two, the same each time.
    pub check: &'static str,
    /// How good it is.
    pub level: Level,
    /// What was found.
    pub message: String,
    /// What to do about it; empty if nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), hint: String::new() }
    }
    /// It works for now.
    pub fn warn(check: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, message: message.into(), hint: hint.into() }
    }
    /// It does not work.
    pub fn fail(check: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, message: message.into(), hint: hint.into() }
    }
}

/// The worst of them; `Ok` of none.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}
