//! Progress and log lines. They travel on a stream of their own, and may be thinned.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::ActionRef;
use crate::Progress;

/// One message of the telemetry stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Telemetry {
    /// How far an attempt got.
    Progress {
        /// The attempt.
        action: ActionRef,
        /// Its counters.
        progress: Progress,
    },
    /// A log line.
    Log {
        /// The workflow it belongs to.
        workflow_uid: Uuid,
        /// The line.
        line: LogLine,
    },
}

impl Telemetry {
    /// The workflow that the message is about.
    pub const fn workflow_uid(&self) -> Uuid {
        match self {
            Self::Progress { action, .. } => action.workflow_uid,
            Self::Log { workflow_uid, .. } => *workflow_uid,
        }
    }
}

/// One log line of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// By the agent's clock.
    pub time: Timestamp,
    /// How serious it is.
    pub level: LogLevel,
    /// Index of the action.
    pub action_index: u32,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The line.
    pub message: String,
}

/// How serious a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is wrong but goes on.
    Warn,
    /// What a person wants to follow.
    Info,
    /// Details.
    Debug,
    /// Every step.
    Trace,
}

impl LogLevel {
    /// All of them, the most serious first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// As it is written in messages and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a log level; write error, warn, info, debug or trace")]
pub struct UnknownLevel(pub String);

impl FromStr for LogLevel {
    type Err = UnknownLevel;
    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        Self::ALL.into_iter().find(|level| level.as_str() == text).ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_reads_back_and_no_other_word_does() {
        for level in LogLevel::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert!("INFO".parse::<LogLevel>().is_err());
    }
}
