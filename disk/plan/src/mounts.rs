//! What is mounted, and in which order.

use landfall_api::FileSystem;
use uuid::Uuid;

use crate::step::{Device, FileSystemId};

/// How a file system is found when the installed system starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By its own identity.
    FileSystem(FileSystemId),
    /// By the partition's: of what was there before.
    PartUuid(Uuid),
}

impl std::fmt::Display for Source {
    /// As fstab has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FileSystem(id) => write!(f, "UUID={id}"),
            Self::PartUuid(uuid) => write!(f, "PARTUUID={uuid}"),
        }
    }
}

/// One mount of the installed system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// What is mounted.
    pub device: Device,
    /// How the installed system finds it.
    pub source: Source,
    /// Where, in the installed system; absolute.
    pub at: String,
    /// Its kind.
    pub format: FileSystem,
    /// Options, separated by commas.
    pub options: Option<String>,
    /// Of btrfs: the path of the subvolume.
    pub subvolume: Option<String>,
}

/// One swap space of the installed system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// How the installed system finds it.
    pub source: Source,
    /// Options, separated by commas.
    pub options: Option<String>,
}

impl Mount {
    /// All options, with the subvolume's.
    pub fn all_options(&self) -> Option<String> {
        let subvolume = self.subvolume.as_ref().map(|name| format!("subvol=/{name}"));
        match (&self.options, subvolume) {
            (Some(options), Some(subvolume)) => Some(format!("{options},{subvolume}")),
            (options, subvolume) => options.clone().or(subvolume),
        }
    }
}

/// In an order in which each finds its mount point: a parent before its children.
pub(crate) fn in_order(mut mounts: Vec<Mount>) -> Vec<Mount> {
    let parts = |mount: &Mount| -> Vec<String> {
        mount.at.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    mounts.sort_by_cached_key(parts);
    mounts
}
