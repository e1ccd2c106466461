//! `storage`: how disks are divided, what stands on the parts, and where it is mounted.

mod check;
mod content;
mod pending;
mod size;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

pub use self::check::StorageFault;
pub use self::content::{Content, FileSystem, Member};
pub use self::size::{SizeError, SizeSpec};
use super::kind::{ActionInfo, Declaration};
use super::rules::Rules;
use crate::issue::{has_expression, join};
use crate::{DiskSelector, DurationSpec, SecretText};

/// Divides disks and mounts the result for the actions after it: partitions, md RAID, LVM, LUKS2, file systems, swap. All
/// that is on the disks is lost, except partitions that are preserved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StorageSpec {
    /// Passphrases of encrypted devices, by names that `encrypt` refers to. Each value is a reference to a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// The disks and their partitions, 64 disks at most.
    pub disks: Vec<DiskLayoutSpec>,
    /// md RAID arrays of partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raids: Vec<RaidSpec>,
    /// LVM volume groups on partitions and arrays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_groups: Vec<VolumeGroupSpec>,
}

/// One or several disks with the same partitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskLayoutSpec {
    /// Which disks; exactly one must match each. Every one gets the partitions of this item. Default: the only disk.
    #[serde(default = "only_disk", skip_serializing_if = "is_only_disk")]
    pub select: Vec<DiskSelector>,
    /// The kind of partition table. Default: `gpt`.
    #[serde(default, skip_serializing_if = "TableSpec::is_gpt")]
    pub table: TableSpec,
    /// In the order in which they stand on the disk.
    pub partitions: Vec<PartitionSpec>,
}

fn only_disk() -> Vec<DiskSelector> {
    vec![DiskSelector::default()]
}

fn is_only_disk(select: &[DiskSelector]) -> bool {
    select == only_disk()
}

words! {
    /// The kind of partition table.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    TableSpec {
        /// A GUID partition table, for BIOS and UEFI.
        #[default]
        Gpt = "gpt",
        /// A table of the old kind, for a BIOS that refuses the other: four partitions, 2 TiB.
        Mbr = "mbr",
    }
}

impl TableSpec {
    const fn is_gpt(&self) -> bool {
        matches!(self, Self::Gpt)
    }
}

words! {
    /// What a partition is for: it decides the partition's type, and what the other fields are where they are not stated.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    PartitionRole {
        /// EFI system partition: vfat, 512 MiB, mounted at /boot/efi.
        Esp = "esp",
        /// Where GRUB keeps its core on a GPT disk that a BIOS starts: 1 MiB, without a file system.
        BiosBoot = "biosBoot",
        /// Kernels: ext4, mounted at /boot.
        Boot = "boot",
        /// The root file system: ext4, mounted at /.
        Root = "root",
        /// ext4, mounted at /home.
        Home = "home",
        /// ext4, mounted at /srv.
        Srv = "srv",
        /// ext4, mounted at /var.
        Var = "var",
        /// Swap space.
        Swap = "swap",
        /// Anything else, such as a member of a RAID or of a volume group.
        #[default]
        Data = "data",
    }
}

/// One partition.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartitionSpec {
    /// Its name, here and in the table (PARTLABEL). Default: the role.
    pub name: Option<String>,
    /// What it is for. Default: `data`.
    pub role: Option<PartitionRole>,
    /// A number and a unit, a percentage of the space that new partitions have on the disk, or `rest`. Default: `rest`; 512MiB
    /// for `esp`, 1MiB for `biosBoot`.
    pub size: Option<SizeSpec>,
    /// It is on the disk already, under its name, and stays with all its content. It is mounted and never formatted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preserve: bool,
    /// The file system. Default: by role; ext4 if it is mounted, else none.
    pub format: Option<FileSystem>,
    /// The file system's label.
    pub label: Option<String>,
    /// Where it is mounted in the installed system, or `none`. Default: by role.
    pub mount: Option<String>,
    /// Mount options as in fstab, separated by commas. Default: `umask=0077` for vfat, else none.
    pub options: Option<String>,
    /// Subvolumes, of btrfs alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subvolumes: Vec<SubvolumeSpec>,
    /// LUKS2 under the file system.
    pub encrypt: Option<EncryptSpec>,
}

/// One md RAID array.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RaidSpec {
    /// Its name: /dev/md/NAME.
    pub name: String,
    /// 0, 1, 5, 6 or 10.
    pub level: u8,
    /// The partitions that it consists of. A name that stands on several disks means all of them.
    pub from: Vec<String>,
    /// The file system. Default: vfat where it consists of `esp` partitions; ext4 if it is mounted, else none.
    pub format: Option<FileSystem>,
    /// The file system's label.
    pub label: Option<String>,
    /// Where it is mounted in the installed system, or `none`. Default: /boot/efi where it consists of `esp` partitions.
    pub mount: Option<String>,
    /// Mount options as in fstab, separated by commas. Default: `umask=0077` for vfat, else none.
    pub options: Option<String>,
    /// Subvolumes, of btrfs alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subvolumes: Vec<SubvolumeSpec>,
    /// LUKS2 under the file system or the volume group.
    pub encrypt: Option<EncryptSpec>,
}

/// One LVM volume group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeGroupSpec {
    /// Its name: /dev/NAME.
    pub name: String,
    /// The partitions and arrays that it consists of. A name that stands on several disks means all of them.
    pub from: Vec<String>,
    /// Its volumes.
    pub volumes: Vec<VolumeSpec>,
}

/// One LVM volume.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeSpec {
    /// Its name: /dev/GROUP/NAME.
    pub name: String,
    /// A number and a unit, a percentage of the group, or `rest`. Default: `rest`.
    pub size: Option<SizeSpec>,
    /// The file system. Default: ext4 if it is mounted, else none.
    pub format: Option<FileSystem>,
    /// The file system's label.
    pub label: Option<String>,
    /// Where it is mounted in the installed system. Default: nowhere.
    pub mount: Option<String>,
    /// Mount options as in fstab, separated by commas. Default: `umask=0077` for vfat, else none.
    pub options: Option<String>,
    /// Subvolumes, of btrfs alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subvolumes: Vec<SubvolumeSpec>,
    /// LUKS2 under the file system.
    pub encrypt: Option<EncryptSpec>,
}

/// One subvolume of a btrfs file system.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubvolumeSpec {
    /// Its path in the file system, such as `@home`.
    pub name: String,
    /// Where it is mounted in the installed system. Default: nowhere.
    pub mount: Option<String>,
    /// Mount options beside `subvol`, separated by commas.
    pub options: Option<String>,
}

/// LUKS2 on a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EncryptSpec {
    /// The name of one of `keys`.
    pub key: String,
    /// The name of the opened device: /dev/mapper/NAME. Default: `crypt-` and the name of what is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `storage` as an agent is sent it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Storage {
    /// The layout. Its `keys` have their names and no values.
    pub layout: StorageSpec,
    /// The passphrases.
    pub keys: BTreeMap<String, SecretText>,
}

impl Storage {
    /// Every selector, in the order of the disks.
    pub fn selectors(&self) -> impl Iterator<Item = &DiskSelector> {
        self.layout.disks.iter().flat_map(|layout| &layout.select)
    }
}

impl StorageSpec {
    /// What an agent is sent.
    pub fn resolved(mut self) -> Storage {
        let take = |(name, text): (&String, &mut String)| (name.clone(), SecretText::new(std::mem::take(text)));
        let keys = self.keys.iter_mut().map(take).collect();
        Storage { layout: self, keys }
    }

    /// Whether a root file system stands on the layout: what follows installs into it.
    pub fn mounts_root(&self) -> bool {
        let is_root = |content: Content<'_>| {
            let of_subvolumes = content.subvolumes.iter().map(|subvolume| subvolume.mount.as_deref());
            std::iter::once(content.mount).chain(of_subvolumes).any(|at| at == Some("/"))
        };
        self.disks.iter().flat_map(|disk| &disk.partitions).any(|part| is_root(self.of_partition(part)))
            || self.raids.iter().any(|raid| is_root(self.of_raid(raid)))
            || self.volume_groups.iter().flat_map(|group| &group.volumes).any(|volume| is_root(volume.content()))
    }

    /// The same of a template's or a rendered action. One that cannot be read yet, or is faulty otherwise, counts.
    pub(crate) fn may_mount_root(spec: &Value) -> bool {
        spec.as_object().and_then(pending::without_expressions).is_none_or(|typed| typed.mounts_root())
    }

    /// The names of the partitions that stay on the disks of the item `index` of `disks`.
    pub fn preserved(&self, index: usize) -> Vec<String> {
        let partitions = self.disks.get(index).map(|layout| layout.partitions.as_slice()).unwrap_or_default();
        partitions.iter().filter(|part| part.preserve).map(|part| part.name().to_owned()).collect()
    }
}

impl Declaration for StorageSpec {
    const INFO: ActionInfo = ActionInfo {
        // What a tool refused once it refuses again.
        attempts: 1,
        tools: true,
        no_branch: Some("remove its branch: the actions after it use the file systems that it mounts"),
        secrets: &["keys"],
        ..ActionInfo::new(
            "Divides disks: partitions, RAID, LVM, encryption, file systems; and mounts them for the next actions.",
            DurationSpec::from_secs(30 * 60),
            7,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        let items = |field: &str| spec.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (n, layout) in items("disks").iter().enumerate() {
            let select = layout.get("select").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for (i, selector) in select.iter().enumerate() {
                rules.selector(Some(selector), &format!("{path}.disks[{n}].select[{i}]"));
            }
        }
        for (name, text) in spec.get("keys").and_then(Value::as_object).into_iter().flatten() {
            // A reference stays one until it is sent to the agent. The text itself is not repeated: it may be the passphrase.
            if text.as_str().is_some_and(|text| !has_expression(text)) {
                let hint =
                    "apply it as a Secret, and write {{ secrets.NAME.KEY }}; change this value: it is no longer secret";
                rules.say(join(&join(path, "keys"), name), "a passphrase must not be in a template", hint);
            }
        }
        // What does not fit the schema is reported already.
        let Some(typed) = pending::without_expressions(spec) else { return };
        for fault in typed.faults() {
            rules.say(join(path, &fault.path), fault.message, fault.hint);
        }
    }
}

#[cfg(test)]
mod tests;
