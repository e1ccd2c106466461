//! What came of each action, beyond its success.

use serde::{Deserialize, Serialize};

use crate::{DiskId, DiskReceipt};

/// How a write ended. Counters are bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteImageResult {
    /// The receipt now on the disk; absent where the image's partition table has no room for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<DiskReceipt>,
    /// False: the disk carried this very action's `done` receipt already.
    pub written: bool,
    /// Stored bytes taken in.
    pub stored_bytes: u64,
    /// Decoded bytes.
    pub raw_bytes: u64,
    /// Bytes that really went to the device.
    pub written_bytes: u64,
    /// From the first request to the commit, milliseconds.
    pub elapsed_ms: u64,
}

/// How a seed was put on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitResult {
    /// The installed root file system's device.
    pub root_device: String,
}

/// What was wiped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WipeResult {
    /// The disks. How each was wiped is in its [`super::EventBody::DiskWiped`].
    pub disks: Vec<DiskId>,
}

/// What a layout was given to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageResult {
    /// Disks that carry the layout, in the order of its selectors.
    pub disks: Vec<DiskId>,
    /// False: they carried this very action's `done` receipt already.
    pub written: bool,
}

/// A kernel that is loaded and waits for the jump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KexecResult {
    /// The installed root file system's device.
    pub root_device: String,
    /// The kernel's path inside the installed system, links resolved.
    pub kernel: String,
    /// The initramfs's, likewise.
    pub initramfs: String,
    /// The command line, without what may be a secret.
    pub cmdline: String,
}
