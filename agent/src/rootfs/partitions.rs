//! The partitions of a disk, with every name they may be called by, and whether they came with the image.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_disk::{Entry, ReadAt, RealDevice, judge};
use uuid::Uuid;

use super::{names::FileSystem, table};

/// The disk that carries an installed system.
#[derive(Debug, Clone, Default)]
pub(crate) struct SystemDisk {
    /// Its kernel name, such as `vda`.
    pub(crate) name: String,
    /// What on it did not come with the image.
    pub(crate) kept: Kept,
    /// Further disks that the same workflow wrote: the system may mount what is on them.
    pub(crate) others: Vec<String>,
}

/// The partitions that an install kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// By their GUIDs, as the receipt has them.
    pub(crate) guids: BTreeSet<Uuid>,
    /// By their names, as the action states them.
    pub(crate) labels: BTreeSet<String>,
}

impl Kept {
    fn covers(&self, entry: &Entry) -> bool {
        self.guids.contains(&Uuid::from_bytes_le(entry.guid)) || self.labels.contains(&entry.label)
    }
}

/// Where a partition's content comes from, the nearest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// From the image on the system's disk.
    #[default]
    Image,
    /// From an earlier install of the same disk: kept.
    Kept,
    /// On another disk that the workflow wrote.
    OtherDisk,
}

/// What is on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// A file system that can be mounted.
    FileSystem(FileSystem),
    /// Something else with a name, such as `an LVM physical volume`.
    Other(&'static str),
    /// Nothing that is known.
    Unknown,
}

/// One partition.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    /// Its device.
    pub(super) device: PathBuf,
    /// Type, GUID and label of its entry in the table; empty without a GPT, but for the GUID.
    pub(super) kind: String,
    pub(super) guid: String,
    pub(super) label: String,
    pub(super) origin: Origin,
    pub(super) content: Content,
}

impl Partition {
    /// Its file system, if it has one.
    pub(super) fn file_system(&self) -> Option<&FileSystem> {
        match &self.content {
            Content::FileSystem(found) => Some(found),
            Content::Other(_) | Content::Unknown => None,
        }
    }

    /// Why it cannot be mounted, as the rest of a sentence about it.
    pub(super) fn unusable(&self) -> Option<String> {
        match &self.content {
            Content::FileSystem(_) => None,
            Content::Other(what) => Some(format!("holds {what}, which Landfall cannot mount")),
            Content::Unknown => Some("holds no ext4, xfs, btrfs or FAT file system".into()),
        }
    }
}

/// The partitions of the system's disk and then of the others, in the order of their numbers.
pub(super) fn look(disk: &SystemDisk) -> Vec<Partition> {
    let mut found = of_disk(&disk.name, |entry| if disk.kept.covers(entry) { Origin::Kept } else { Origin::Image });
    found.extend(disk.others.iter().flat_map(|name| of_disk(name, |_| Origin::OtherDisk)));
    found
}

fn of_disk(name: &str, origin: impl Fn(&Entry) -> Origin) -> Vec<Partition> {
    let device = Path::new("/dev").join(name);
    let table = table::entries(&device);
    let identity = if table.is_empty() { table::mbr_identity(&device) } else { None };
    let one = |(number, device): (u32, PathBuf)| {
        let content = content(&device).unwrap_or_else(|e| {
            tracing::warn!("{} cannot be read: {e}", device.display());
            Content::Unknown
        });
        let mbr = Partition {
            // As the kernel and libblkid spell it.
            guid: identity.map(|identity| format!("{identity:08x}-{number:02x}")).unwrap_or_default(),
            kind: String::new(),
            label: String::new(),
            origin: Origin::Image,
            content,
            device,
        };
        match table.get(&number) {
            Some(entry) => Partition {
                kind: table::guid(entry.kind),
                guid: table::guid(entry.guid),
                label: entry.label.clone(),
                origin: origin(entry),
                ..mbr
            },
            None => mbr,
        }
    };
    numbered(&Path::new("/sys/block").join(name)).into_iter().map(one).collect()
}

fn content(device: &Path) -> io::Result<Content> {
    if let Some(found) = FileSystem::look(device)? {
        return Ok(Content::FileSystem(found));
    }
    let open = RealDevice::open_read_only(device)?;
    let marks = judge::signatures(&open, &(0..open.size()))?;
    Ok(marks.first().map_or(Content::Unknown, |(name, _)| Content::Other(spoken(name))))
}

/// LVM's own word for what a partition holds.
fn spoken(name: &'static str) -> &'static str {
    if name == "an LVM volume" { "an LVM physical volume" } else { name }
}

/// Devices of a disk's partitions, by number.
pub(super) fn numbered(sys: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(sys)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = fs::read_to_string(entry.path().join("partition")).ok()?.trim().parse().ok()?;
            Some((number, Path::new("/dev").join(entry.file_name())))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_come_in_table_order() {
        let sys = tempfile::tempdir().unwrap();
        for (name, number) in [("vda10", "10"), ("vda2", "2")] {
            fs::create_dir(sys.path().join(name)).unwrap();
            fs::write(sys.path().join(name).join("partition"), number).unwrap();
        }
        fs::create_dir(sys.path().join("queue")).unwrap();
        let found = numbered(sys.path());
        assert_eq!(found, [(2, "/dev/vda2".into()), (10, "/dev/vda10".into())]);
    }

    #[test]
    fn kept_partitions_are_known_by_guid_or_name() {
        let entry = |guid: u8, label: &str| Entry {
            index: 0,
            kind: [1; 16],
            guid: [guid; 16],
            label: label.into(),
            first: 34,
            last: 40,
        };
        let guids = [Uuid::from_bytes_le([7; 16])].into();
        let kept = Kept { guids, labels: ["data".to_owned()].into() };
        assert!(kept.covers(&entry(7, "renamed")) && kept.covers(&entry(1, "data")));
        assert!(!kept.covers(&entry(1, "root")) && !Kept::default().covers(&entry(0, "")));
    }

    #[test]
    fn what_cannot_be_mounted_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (offset, magic, what) in [
            (512, &b"LABELONE"[..], "an LVM physical volume"),
            (0, b"LUKS\xba\xbe", "a LUKS volume"),
            (4086, b"SWAPSPACE2", "swap space"),
        ] {
            let mut bytes = vec![0; 4 << 20];
            bytes[offset..offset + magic.len()].copy_from_slice(magic);
            fs::write(file.path(), bytes).unwrap();
            assert_eq!(content(file.path()).unwrap(), Content::Other(what));
        }
        fs::write(file.path(), vec![0; 4 << 20]).unwrap();
        assert_eq!(content(file.path()).unwrap(), Content::Unknown);
    }
}
