//! A workflow as the coordinator hands it to an agent: every default stated, every secret in place.

use std::{fmt, time::Duration};

use uuid::Uuid;

use crate::{
    ClearDisksSpec, DiskReceipt, DiskSelector, HoldSpec, ImageSource, KexecSpec, Pin, PowerOffSpec, RebootSpec,
    SecretText,
};

/// A workflow handed to a machine, under a lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The epoch of the session it is handed out in.
    pub epoch: u64,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// The workflow's name, for people and receipts.
    pub workflow_name: String,
    /// The machine it is for.
    pub machine_uid: Uuid,
    /// The machine document's generation when the workflow was rendered.
    pub generation: u64,
    /// How long the agent may act, from the arrival, without hearing from the coordinator. Never zero.
    pub lease: Duration,
    /// Every action of the workflow; never empty.
    pub actions: Vec<AssignedAction>,
    /// Actions before this index have already succeeded. May equal the length: nothing is left to do.
    pub start_index: u32,
    /// The attempt number to use for the action at `start_index`; from 1.
    pub start_attempt: u32,
    /// Every action to start at once, one a branch, that at `start_index` among them; empty if nothing is left to do. A
    /// branch of the same stage that has none has ended.
    pub starts: Vec<Start>,
    /// Workflows whose work this one takes over: disks that carry their receipts were written for this one.
    pub earlier_runs: Vec<Uuid>,
    /// Every receipt the coordinator believes is on this machine: the compare of compare-and-swap.
    pub expected_receipts: Vec<DiskReceipt>,
    /// A person asked for this workflow by name, so a disk that is not blank may be written.
    pub person_authorised: bool,
    /// A person said `--force`: write whatever receipt is found.
    pub force: bool,
}

/// One action that an agent is to begin, and the number of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Index of the action.
    pub index: u32,
    /// From 1.
    pub attempt: u32,
}

/// One action of an [`Assignment`].
#[derive(Clone, PartialEq)]
pub struct AssignedAction {
    /// Unique within its list.
    pub name: String,
    /// How long one attempt may take. Never zero.
    pub timeout: Duration,
    /// How often it is tried.
    pub retry: Retry,
    /// Consecutive actions that name a branch form one stage: its branches run at once, the actions of one in order.
    pub branch: Option<String>,
    /// What it does.
    pub kind: ActionKind,
}

/// Its name alone: secrets may stand in any of its texts.
impl fmt::Debug for AssignedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssignedAction").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How often an action is tried, and how long to wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// At least 1; 1 means no retry.
    pub max_attempts: u32,
    /// Wait before the second attempt; doubles each time. Never zero.
    pub initial_backoff: Duration,
    /// The longest wait between two attempts. Never zero.
    pub max_backoff: Duration,
}

/// What an action does. Where the agent needs nothing beyond what a template says, it is the template's own spec.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionKind {
    /// Writes a disk image.
    WriteImage(WriteImage),
    /// Puts a NoCloud seed on the installed disk.
    CloudInit(CloudInit),
    /// Waits until a person lets the workflow go on.
    Hold(HoldSpec),
    /// Restarts into the installed system.
    Reboot(RebootSpec),
    /// Turns the machine off.
    PowerOff(PowerOffSpec),
    /// Clears disks.
    ClearDisks(ClearDisksSpec),
    /// Starts the installed system's own kernel, past the firmware.
    Kexec(KexecSpec),
}

/// Writes a disk image to exactly one disk: `writeImage`.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteImage {
    /// Which disk.
    pub disk: DiskSelector,
    /// Which image, and what proves it.
    pub image: ImageSource,
    /// Labels of partitions that stay.
    pub keep: Vec<String>,
    /// Read everything back before the disk becomes bootable.
    pub read_back: bool,
}

/// A NoCloud seed for the installed disk: `cloudInit`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CloudInit {
    /// `user-data`, the whole file; may hold secrets.
    pub user_data: SecretText,
    /// `meta-data`, the whole file.
    pub meta_data: String,
    /// `network-config`, the whole file, empty if there is none; may hold secrets.
    pub network_config: SecretText,
    /// `None`: no phone-home unit is installed.
    pub phone_home: Option<PhoneHomeUnit>,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What the installed system needs to phone home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhoneHomeUnit {
    /// `https://…/phone-home`
    pub url: String,
    /// Good for one machine and one workflow.
    pub bearer_token: SecretText,
    /// Any of these CA keys may have signed the server's certificate; never empty.
    pub ca_pins: Vec<Pin>,
}
