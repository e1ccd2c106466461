//! The first message of every session, and the coordinator's answer to it.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::{ActionRef, Identity, UnreadableDisk};
use crate::{DiskId, DiskReceipt, ErrorCode, Problem};

/// The first message of a session, from the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// The agent's version, SemVer; empty if it was not said.
    pub software: String,
    /// The protocol revision that the agent speaks; 0 if it was not said.
    pub protocol: u32,
    /// Which computer it says it runs on.
    pub identity: Identity,
    /// `/proc/sys/kernel/random/boot_id`
    pub boot_id: String,
    /// Every disk, so that "the same computer booted again" and "another computer" can be distinguished.
    pub disks: Vec<DiskId>,
    /// Every receipt found on them.
    pub receipts: Vec<DiskReceipt>,
    /// The disks of which the receipt could not be read.
    pub unreadable: Vec<UnreadableDisk>,
    /// The agent still scans its buses: more disks may appear, and receipts were not read yet. A report of the disks
    /// follows.
    pub scanning: bool,
    /// The epoch that this agent process last held; 0 if none.
    pub last_epoch: u64,
    /// What the agent runs right now, if it outlived its last session.
    pub running: Option<ActionRef>,
    /// CLOCK_BOOTTIME when the Enroll answer arrived, milliseconds; 0 if unknown.
    pub enrolled_boottime_ms: u64,
    /// The workflow whose list this agent process holds, also while nothing of it runs.
    pub holds: Option<Uuid>,
    /// CLOCK_BOOTTIME when this hello was made; whole milliseconds count. Zero if it was not said.
    pub boottime: Duration,
}

/// The coordinator accepts the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The session's epoch.
    pub epoch: u64,
    /// The coordinator's time.
    pub time: Timestamp,
    /// How often the agent is to send a heartbeat; never zero.
    pub heartbeat_interval: Duration,
    /// The coordinator's version, SemVer; empty if it was not said.
    pub software: String,
    /// The protocol revision that the coordinator speaks; 0 if it was not said.
    pub protocol: u32,
    /// The coordinators that take its place, `https://host:port`.
    pub others: Vec<String>,
}

/// The coordinator does not accept the session. The stream ends after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Why.
    pub problem: Problem,
    /// Ask again after this, never zero; `None`: do not ask again.
    pub retry_after: Option<Duration>,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        // A store that is out of reach is back in seconds, or another coordinator has it. The agent asks less often the longer it lasts.
        let seconds = if problem.code == ErrorCode::StoreUnavailable { 1 } else { 10 };
        Self { problem, retry_after: Some(Duration::from_secs(seconds)) }
    }
}
