//! Disks, and what is on them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DiskId;

/// Partitions of one disk that facts name; the others are counted.
pub const MAX_PARTITIONS: usize = 32;
/// Volumes that facts name of a disk, and of each partition.
pub const MAX_VOLUMES: usize = 8;

/// One whole disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskFacts {
    /// What names it.
    pub id: DiskId,
    /// Vendor, where the transport has one.
    #[serde(default)]
    pub vendor: String,
    /// `virtio`, `nvme`, `sata`, `scsi`, `usb`, `mmc` or `unknown`.
    pub transport: String,
    /// Whether it spins.
    pub rotational: bool,
    /// Host, channel, target and LUN, `0:0:0:0`; empty if it is not SCSI.
    #[serde(default)]
    pub hctl: String,
    /// Its names in a Linux system's `/dev/disk/by-id`, as far as they are made of a serial number or a world-wide name, such as
    /// `ata-MODEL_SERIAL`, `nvme-MODEL_SERIAL` and `wwn-0x…`; the one that says most comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_id: Vec<String>,
    /// Logical sector size, bytes.
    pub logical_sector_bytes: u32,
    /// Physical sector size, bytes.
    pub physical_sector_bytes: u32,
    /// The hardware or the kernel refuses writes.
    pub read_only: bool,
    /// What it says of its own health; absent where it says nothing, as a virtual disk, or did not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<DiskHealth>,
    /// What is on it; absent where the agent could not read it in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<DiskContents>,
}

/// What a disk says of its own health.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskHealth {
    /// The disk itself says that it fails, or soon will.
    pub failing: bool,
    /// Why it fails, in words; empty if it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How much of the writes that it is made for it has taken, per cent; may exceed 100. NVMe alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_percent: Option<u8>,
    /// Its temperature, degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<i16>,
    /// Hours for which it was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_on_hours: Option<u64>,
    /// NVMe: reads that failed for good. ATA: sectors that could not be read, and wait to be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_errors: Option<u64>,
}

/// What is on a disk, by its partition table and the signatures on it. A volume that is encrypted or striped over several
/// disks is named, and what is inside it is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskContents {
    /// When the agent looked, by its clock.
    pub seen_at: Timestamp,
    /// `gpt`, `mbr`, or empty without a partition table.
    #[serde(default)]
    pub table: String,
    /// What is outside of every partition, 8 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeFacts>,
    /// The first 32 partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionFacts>,
    /// How many partitions there are beyond these.
    #[serde(default)]
    pub more_partitions: u32,
    /// No table and no signature, but bytes other than zero in the first MiB.
    #[serde(default)]
    pub unknown_data: bool,
}

impl DiskContents {
    /// Whether nothing was found.
    pub fn is_blank(&self) -> bool {
        self.table.is_empty() && self.volumes.is_empty() && self.partitions.is_empty() && !self.unknown_data
    }
}

/// One partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionFacts {
    /// Its number, from 1.
    pub number: u32,
    /// Its name in the table; MBR tables have none.
    #[serde(default)]
    pub name: String,
    /// Bytes.
    pub size_bytes: u64,
    /// What is in it, 8 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeFacts>,
}

/// A file system, or what else has a signature.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeFacts {
    /// What it is, such as `XFS file system` or `LVM volume`.
    pub kind: String,
    /// Its label, where its kind has one at a fixed place.
    #[serde(default)]
    pub label: String,
}
