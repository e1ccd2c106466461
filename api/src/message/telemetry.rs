//! Progress and log lines. They travel on a stream of their own, and may be thinned.

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

words! {
    /// How serious a log line is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    LogLevel {
        /// Something failed.
        Error = "error",
        /// Something is wrong but goes on.
        Warn = "warn",
        /// What a person wants to follow.
        Info = "info",
        /// Details.
        Debug = "debug",
        /// Every step.
        Trace = "trace",
    } else UnknownLevel "\"{0}\" is not a log level; write error, warn, info, debug or trace"
}
