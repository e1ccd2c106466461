//! What stands on a device, with every default in place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EncryptSpec, PartitionRole, PartitionSpec, RaidSpec, SizeSpec, StorageSpec, SubvolumeSpec, VolumeSpec};

words! {
    /// A file system, or swap space.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    FileSystem {
        /// ext4.
        Ext4 = "ext4",
        /// XFS.
        Xfs = "xfs",
        /// btrfs.
        Btrfs = "btrfs",
        /// FAT.
        Vfat = "vfat",
        /// Swap space.
        Swap = "swap",
        /// Nothing is made.
        None = "none",
    }
}

impl FileSystem {
    /// As `mount` and fstab call it; `none` if there is none.
    pub const fn name(self) -> &'static str {
        self.as_str()
    }

    /// Whether it can be mounted.
    pub const fn is_mountable(self) -> bool {
        !matches!(self, Self::Swap | Self::None)
    }
}

/// A device that may be a member of a RAID or a volume group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Member<'a> {
    /// Partitions of one name: the item of `disks` and the partition. There is one on each disk of the item.
    Partition(usize, &'a PartitionSpec),
    /// An array.
    Raid(&'a RaidSpec),
}

/// What stands on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Content<'a> {
    /// The file system; `None`: nothing, or it is a member of something.
    pub format: Option<FileSystem>,
    /// The file system's label.
    pub label: Option<&'a str>,
    /// Where the whole file system is mounted; absolute.
    pub mount: Option<&'a str>,
    /// Mount options.
    pub options: Option<&'a str>,
    /// Subvolumes, of btrfs.
    pub subvolumes: &'a [SubvolumeSpec],
    /// LUKS2 under all this.
    pub encrypt: Option<&'a EncryptSpec>,
}

impl PartitionRole {
    const fn mount(self) -> Option<&'static str> {
        match self {
            Self::Esp => Some("/boot/efi"),
            Self::Boot => Some("/boot"),
            Self::Root => Some("/"),
            Self::Home => Some("/home"),
            Self::Srv => Some("/srv"),
            Self::Var => Some("/var"),
            Self::BiosBoot | Self::Swap | Self::Data => None,
        }
    }
}

impl PartitionSpec {
    /// Its name, or its role's.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.role().as_str())
    }

    /// What it is for.
    pub fn role(&self) -> PartitionRole {
        self.role.unwrap_or_default()
    }

    /// How large it is to be.
    pub fn size(&self) -> SizeSpec {
        self.size.unwrap_or(match self.role() {
            PartitionRole::Esp => SizeSpec::Bytes(512 << 20),
            PartitionRole::BiosBoot => SizeSpec::Bytes(1 << 20),
            _ => SizeSpec::Rest,
        })
    }
}

impl VolumeSpec {
    /// How large it is to be.
    pub fn size(&self) -> SizeSpec {
        self.size.unwrap_or(SizeSpec::Rest)
    }

    /// What stands on it.
    pub fn content(&self) -> Content<'_> {
        let Self { format, label, mount, options, subvolumes, encrypt, .. } = self;
        let stated = Stated { format: *format, label, mount, options, subvolumes, encrypt };
        stated.content(None, None)
    }
}

impl StorageSpec {
    /// The partitions or the array of this name.
    pub fn member(&self, name: &str) -> Option<Member<'_>> {
        let partitions = self
            .disks
            .iter()
            .enumerate()
            .flat_map(|(n, layout)| layout.partitions.iter().map(move |part| Member::Partition(n, part)));
        let mut all = partitions.chain(self.raids.iter().map(Member::Raid));
        all.find(|member| match member {
            Member::Partition(_, part) => part.name() == name,
            Member::Raid(raid) => raid.name == name,
        })
    }

    /// Whether a RAID or a volume group consists of the device of this name.
    pub fn is_member(&self, name: &str) -> bool {
        let lists = self.raids.iter().map(|raid| &raid.from).chain(self.volume_groups.iter().map(|group| &group.from));
        lists.flatten().any(|member| member == name)
    }

    /// What stands on the partition.
    pub fn of_partition<'a>(&self, part: &'a PartitionSpec) -> Content<'a> {
        let PartitionSpec { format, label, mount, options, subvolumes, encrypt, .. } = part;
        let stated = Stated { format: *format, label, mount, options, subvolumes, encrypt };
        if self.is_member(part.name()) {
            return stated.content(None, None);
        }
        let format = match part.role() {
            PartitionRole::Esp => Some(FileSystem::Vfat),
            PartitionRole::Swap => Some(FileSystem::Swap),
            PartitionRole::BiosBoot | PartitionRole::Data => None,
            _ => Some(FileSystem::Ext4),
        };
        stated.content(format, part.role().mount())
    }

    /// What stands on the array.
    pub fn of_raid<'a>(&self, raid: &'a RaidSpec) -> Content<'a> {
        let RaidSpec { format, label, mount, options, subvolumes, encrypt, .. } = raid;
        let stated = Stated { format: *format, label, mount, options, subvolumes, encrypt };
        if self.is_esp(raid) && !self.is_member(&raid.name) {
            return stated.content(Some(FileSystem::Vfat), PartitionRole::Esp.mount());
        }
        stated.content(None, None)
    }

    /// Whether the array is a mirrored EFI system partition. Firmware reads one member of it as if it stood alone.
    pub fn is_esp(&self, raid: &RaidSpec) -> bool {
        raid.from.iter().any(
            |name| matches!(self.member(name), Some(Member::Partition(_, part)) if part.role() == PartitionRole::Esp),
        )
    }
}

/// The fields that every device has.
struct Stated<'a> {
    format: Option<FileSystem>,
    label: &'a Option<String>,
    mount: &'a Option<String>,
    options: &'a Option<String>,
    subvolumes: &'a [SubvolumeSpec],
    encrypt: &'a Option<EncryptSpec>,
}

impl<'a> Stated<'a> {
    /// With what the device's role says where nothing is stated.
    fn content(self, format: Option<FileSystem>, mount: Option<&'static str>) -> Content<'a> {
        let Self { format: stated, label, mount: at, options, subvolumes, encrypt } = self;
        // Subvolumes have mount points of their own.
        let mount = match at.as_deref() {
            Some("none") => None,
            Some(at) => Some(at),
            None if !subvolumes.is_empty() || matches!(stated, Some(FileSystem::Swap | FileSystem::None)) => None,
            None => mount,
        };
        let format = match stated {
            Some(FileSystem::None) => None,
            Some(stated) => Some(stated),
            None if !subvolumes.is_empty() => Some(FileSystem::Btrfs),
            None => format.or(mount.map(|_| FileSystem::Ext4)),
        };
        Content {
            format,
            label: label.as_deref(),
            mount,
            options: options.as_deref(),
            subvolumes,
            encrypt: encrypt.as_ref(),
        }
    }
}
