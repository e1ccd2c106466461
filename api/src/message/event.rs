//! Events: what an agent reports about an action, and what the log keeps.

use jiff::Timestamp;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{DiskId, DiskReceipt, Problem};

/// One numbered fact about an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    /// The run.
    pub workflow_uid: Uuid,
    /// Index of the action in the workflow's list.
    pub action_index: u32,
    /// From 1.
    pub attempt: u32,
    /// From 1, without gaps within (workflow, action, attempt).
    pub seq: u64,
    /// By the agent's clock.
    pub time: Timestamp,
    /// What happened.
    pub body: EventBody,
}

/// What names an event: sent twice it counts once.
pub type EventKey = (Uuid, u32, u32, u64);

impl EventRecord {
    /// What names it.
    pub fn key(&self) -> EventKey {
        (self.workflow_uid, self.action_index, self.attempt, self.seq)
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum EventBody {
    /// The attempt began.
    Started,
    /// The attempt succeeded.
    Finished {
        /// What came of it.
        result: ActionResult,
    },
    /// The attempt failed.
    Failed {
        /// Why.
        problem: Problem,
        /// False: trying again cannot help, or could destroy something.
        retryable: bool,
    },
    /// The receipt on a disk changed.
    ReceiptWritten {
        /// What it says now.
        receipt: DiskReceipt,
    },
}

/// What came of an action that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "only a few exist at a time; a box would only complicate construction")]
pub enum ActionResult {
    /// Of `writeImage`.
    WriteImage {
        /// The receipt now on the disk; absent where the image's partition table has no room for one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<DiskReceipt>,
        /// False: the disk carried this very action's `done` receipt already.
        written: bool,
        /// Size of the stored image, bytes.
        stored_bytes: u64,
        /// Size decoded, bytes.
        raw_bytes: u64,
        /// Bytes that really went to the device.
        written_bytes: u64,
        /// How long it took, milliseconds.
        elapsed_ms: u64,
    },
    /// Of `cloudInit`.
    CloudInit {
        /// The installed root file system's device.
        root_device: String,
    },
    /// Of `hold`.
    Hold,
    /// Of `reboot`.
    Reboot,
    /// Of `powerOff`.
    PowerOff,
    /// Of `clearDisks`.
    ClearDisks {
        /// Disks that now carry nothing, whether it was cleared just now or before.
        disks: Vec<DiskId>,
    },
    /// Of `kexec`.
    Kexec {
        /// The installed root file system's device.
        root_device: String,
        /// The kernel's path inside the installed system.
        kernel: String,
        /// The initramfs's.
        initramfs: String,
        /// The command line, without what may be a secret.
        cmdline: String,
    },
}
