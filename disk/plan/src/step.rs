//! What is done after the tables are in place.

use landfall_api::FileSystem;
use uuid::Uuid;

/// A block device of the plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// A partition: the index of its disk in the plan, and its number.
    Partition {
        /// Of [`crate::Plan::disks`].
        disk: usize,
        /// From 1.
        number: u32,
    },
    /// An array: /dev/md/NAME.
    Raid(String),
    /// An LVM volume: /dev/GROUP/NAME.
    Volume {
        /// Its group.
        group: String,
        /// Its own name.
        name: String,
    },
    /// An opened LUKS device: /dev/mapper/NAME.
    Opened(String),
}

/// Where an array keeps its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaidMetadata {
    /// At the end, so that a member reads as what stands in the array: version 1.0.
    End,
    /// Near the start: version 1.2.
    Start,
}

impl RaidMetadata {
    /// As mdadm writes it.
    pub const fn version(self) -> &'static str {
        match self {
            Self::End => "1.0",
            Self::Start => "1.2",
        }
    }
}

/// The identity of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemId {
    /// Of most.
    Uuid(Uuid),
    /// Of FAT: the volume's serial number.
    Serial(u32),
}

impl std::fmt::Display for FileSystemId {
    /// As `/dev/disk/by-uuid` and fstab have it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.fmt(f),
            Self::Serial(number) => write!(f, "{:04X}-{:04X}", number >> 16, number & 0xffff),
        }
    }
}

/// A physical volume of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// The device.
    pub device: Device,
    /// Its own identity.
    pub uuid: Uuid,
    /// Where its first extent begins, bytes.
    pub start: u64,
}

/// Bytes of an extent of a volume group: LVM's default, which the steps state.
pub(crate) const EXTENT: u64 = 4 << 20;

/// How large a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeSize {
    /// So many extents of 4 MiB.
    Extents(u64),
    /// All that are left.
    Rest,
}

/// One step. What a step names was made by the tables or by a step before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes an array.
    Raid {
        /// Its name.
        name: String,
        /// 0, 1, 5, 6 or 10.
        level: u8,
        /// Where its metadata are.
        metadata: RaidMetadata,
        /// Its members, in order.
        members: Vec<Device>,
        /// Its identity.
        uuid: Uuid,
    },
    /// Encrypts a device, and opens it.
    Encrypt {
        /// What is encrypted.
        device: Device,
        /// The name of the opened device.
        name: String,
        /// The name of the key.
        key: String,
        /// Its identity.
        uuid: Uuid,
        /// Where its data begin on the device, bytes.
        offset: u64,
    },
    /// Makes a volume group.
    Group {
        /// Its name.
        name: String,
        /// Its physical volumes.
        members: Vec<GroupMember>,
    },
    /// Makes a volume.
    Volume {
        /// Its group.
        group: String,
        /// Its name.
        name: String,
        /// How large it is.
        size: VolumeSize,
    },
    /// Makes a file system or swap space.
    Format {
        /// On this device.
        device: Device,
        /// Which; never [`FileSystem::None`].
        format: FileSystem,
        /// Its identity.
        id: FileSystemId,
        /// Its label.
        label: Option<String>,
    },
    /// Makes subvolumes of a btrfs file system.
    Subvolumes {
        /// Of the file system on this device.
        device: Device,
        /// Their paths; a parent stands before its children.
        names: Vec<String>,
    },
}
