//! The first message of a session: who the agent is and what it finds.

use uuid::Uuid;

use crate::{DiskId, DiskReceipt, MacAddr};

/// What firmware and hardware say about who a machine is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// SMBIOS UUID; absent where the firmware has a placeholder.
    pub smbios_uuid: Option<Uuid>,
    /// SMBIOS serial; empty where the firmware has a placeholder.
    pub serial: String,
    /// Permanent addresses of every port.
    pub macs: Vec<MacAddr>,
}

/// The first message of a session.
#[derive(Debug, Clone, Default)]
pub struct Hello {
    /// The agent's version, SemVer.
    pub software: String,
    /// The protocol revision it speaks.
    pub protocol: u32,
    /// The run whose list it holds, also while nothing of it runs.
    pub holds: Option<Uuid>,
    /// Its address, as seen here.
    pub address: String,
    /// Who it says it is.
    pub identity: Identity,
    /// Its boot id.
    pub boot_id: String,
    /// Every disk it sees.
    pub disks: Vec<DiskId>,
    /// Every receipt it found.
    pub receipts: Vec<DiskReceipt>,
    /// The epoch this agent process last held; 0 if none.
    pub last_epoch: u64,
    /// What it runs right now.
    pub running: Option<RunningAction>,
    /// CLOCK_BOOTTIME at the Enroll answer, milliseconds; 0 if unknown.
    pub enrolled_boottime_ms: u64,
}

/// What an agent that outlived its last session runs right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningAction {
    /// The run.
    pub workflow_uid: Uuid,
    /// The action.
    pub action_index: u32,
    /// The attempt.
    pub attempt: u32,
}
