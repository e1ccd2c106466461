//! Why a layout cannot stand on these disks.

use landfall_api::{ErrorCode, Problem, StorageFault};

use crate::words::bytes;

/// Why there is no plan.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The layout contradicts itself.
    #[error("the storage layout is invalid at {}: {}", .0.path, .0.message)]
    Invalid(StorageFault),
    /// There are more or fewer disks than selectors.
    #[error("the layout names {wanted} disks, and {given} were chosen")]
    DiskCount { wanted: usize, given: usize },
    /// Two selectors match one disk.
    #[error("two selectors of the layout match disk {disk}")]
    SameDisk { disk: String },
    /// A disk whose sectors are neither 512 nor 4096 bytes.
    #[error("disk {disk} has sectors of {sector} bytes, which is not supported")]
    SectorSize { disk: String, sector: u32 },
    /// A partition that is to stay was not found.
    #[error("disk {disk} has no partition \"{name}\" that could be preserved")]
    NotKept { disk: String, name: String },
    /// A partition that is to stay is where the new table, its backup or the receipt must be, or in another one.
    #[error("partition \"{name}\" of disk {disk} cannot be preserved: {reason}")]
    KeptInTheWay { disk: String, name: String, reason: &'static str },
    /// Two devices would have one name.
    #[error("{first} and {second} would both be called {name}")]
    SameName { name: String, first: String, second: String },
    /// Disks that cannot be one device, because their sectors have different sizes.
    #[error("{whole} has members with sectors of {one} bytes and of {other}, which is not supported")]
    MixedSectors { whole: String, one: u32, other: u32 },
    /// The new devices do not fit.
    #[error("{whole} has no room for {name}: it needs {}, and {} are free", bytes(*needs), bytes(*free))]
    NoRoom { whole: String, name: String, needs: u64, free: u64 },
    /// A device is smaller than what is to stand on it.
    #[error("{name} has {}, and {what} needs {} at least", bytes(*size), bytes(*least))]
    TooSmall { name: String, what: &'static str, size: u64, least: u64 },
}

impl PlanError {
    /// Its stable code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) | Self::DiskCount { .. } | Self::SameName { .. } => ErrorCode::InvalidTemplate,
            Self::SameDisk { .. } => ErrorCode::AmbiguousDisk,
            Self::SectorSize { .. } | Self::MixedSectors { .. } => ErrorCode::WrongSectorSize,
            Self::NotKept { .. } | Self::KeptInTheWay { .. } => ErrorCode::DiskChanged,
            Self::NoRoom { .. } | Self::TooSmall { .. } => ErrorCode::DiskTooSmall,
        }
    }

    /// As a person reads it.
    pub fn problem(&self) -> Problem {
        let hint = match self {
            Self::Invalid(fault) => fault.hint.clone(),
            Self::DiskCount { .. } => "write one selector for each disk".into(),
            Self::SameDisk { .. } => "use facts that only one disk has, such as serial".into(),
            Self::SectorSize { .. } => "select another disk".into(),
            Self::NotKept { .. } => "write a name that lsblk -o PARTLABEL shows, or remove preserve".into(),
            Self::KeptInTheWay { .. } => "remove preserve, or move the partition".into(),
            Self::SameName { .. } => {
                "change a name in the layout; on several disks a partition's name gets a number behind it, and an opened device is \
                 called crypt- and the name of what is encrypted, unless encrypt.name says otherwise"
                    .into()
            }
            Self::MixedSectors { .. } => "select disks with sectors of one size".into(),
            Self::NoRoom { .. } => "decrease the sizes, or select a larger disk".into(),
            Self::TooSmall { .. } => "increase its size".into(),
        };
        Problem::new(self.code(), self.to_string()).hint(hint)
    }
}
