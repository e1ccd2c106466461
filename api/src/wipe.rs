//! How thoroughly a disk is wiped, and the report that stays of it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DiskId;

words! {
    /// How thoroughly a disk is wiped.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    WipeLevel {
        /// Boot sectors, partition tables, signatures and receipts are cleared; other data is not erased.
        #[default]
        Signatures = "signatures",
        /// The disk learns that none of its sectors is needed any more. What it returns for them afterwards is its own matter.
        Discard = "discard",
        /// Every sector reads as zeroes: the disk makes them itself if it can, otherwise they are written.
        Zero = "zero",
        /// The disk erases its medium itself: sanitize or format of NVMe, security erase or sanitize of ATA, sanitize of SCSI. All but
        /// a plain ATA security erase also reach sectors that the disk has replaced.
        Secure = "secure",
        /// The disk forgets the key of its encryption.
        Cryptographic = "cryptographic",
    }
}

impl WipeLevel {
    /// Whether it is the default: left out of requests, so that a coordinator that knows no levels takes them.
    // Serde gives a reference.
    #[expect(clippy::trivially_copy_pass_by_ref)]
    pub(crate) const fn is_default(&self) -> bool {
        matches!(self, Self::Signatures)
    }
}

/// How a disk was wiped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WipeReport {
    /// The disk.
    pub disk: DiskId,
    /// The level that was asked for.
    pub asked: WipeLevel,
    /// The level that was reached: the one asked for, or a fallback that the action names.
    pub level: WipeLevel,
    /// By which command, in words, such as `NVMe sanitize: block erase`.
    pub method: String,
    /// When it began, by the machine's clock.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Places of 4096 bytes that were read back afterwards and decided: after level `zero` each was zero; after `secure` and
    /// `cryptographic` none returned the mark that was written there before. 0: nothing was proven.
    pub samples: u32,
    /// Why the level that was asked for was not reached, in words; empty if it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// The workflow that did it; in a machine's status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workflow: String,
}
