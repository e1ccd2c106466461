//! The receipt: what an install leaves on the machine's own disk.

use std::ops::Range;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Digest, DiskId};

/// Where receipts are, bytes from the disk's start: the 4 KiB that end at 1 MiB. Whole sectors at both sector sizes.
pub const RECEIPT_PLACE: Range<u64> = (1 << 20) - 4096..1 << 20;

/// Partition type of the receipt's entry in a GPT, made for this purpose.
pub const RECEIPT_PARTITION: Uuid = Uuid::from_u128(0xb7a0d3a4_5c1e_4f5e_9d0b_1a6c6f2e8d71);

/// The name of the receipt's entry in a GPT.
pub const RECEIPT_NAME: &str = "landfall-receipt";

/// The state of an install, according to its receipt on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReceiptState {
    /// It had begun; the disk is not bootable.
    Intent,
    /// It was committed: the disk holds the verified image.
    Done,
}

/// The record that an install leaves on the machine's own disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The machine it was written for.
    pub machine_uid: Uuid,
    /// The workflow that wrote it.
    pub workflow_uid: Uuid,
    /// The workflow's name, for people.
    pub workflow_name: String,
    /// The machine document's generation when the workflow was rendered.
    pub generation: u64,
    /// Index of the action in the workflow's list.
    pub action_index: u32,
    /// Digest of the image as stated in the template; absent if it was waived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<Digest>,
    /// Its state.
    pub state: ReceiptState,
    /// By the agent's clock.
    pub written_at: Timestamp,
}

/// A receipt and the disk it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskReceipt {
    /// The disk.
    pub disk: DiskId,
    /// The receipt on it.
    pub receipt: Receipt,
}
