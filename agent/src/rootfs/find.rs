//! Which partition of a disk holds the installed root file system, and mounting it.
//!
//! No udev and no libblkid: partitions come from sysfs, their types from the GPT, their file systems from their magic numbers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::btrfs;
use super::mounted::{Access, Mounted};
use super::names::FileSystem;
use super::partitions::{Content, Origin, Partition, SystemDisk, look};
use super::tree::Tree;
use super::turns::Turns;

/// The kernel re-reads a table and makes nodes within milliseconds; a slow controller takes a few seconds.
pub(super) const PARTITION_LIMIT: Duration = Duration::from_secs(20);
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Discoverable Partitions Specification: root, for the architectures the agent runs on.
#[cfg(target_arch = "x86_64")]
const ROOT_TYPE: &str = "4f68bce3-e8cd-4db1-96e7-fbcaf984b709";
#[cfg(target_arch = "aarch64")]
const ROOT_TYPE: &str = "b921b045-1df0-41c3-af44-4c6f280d3fae";
/// Elsewhere no type is preferred.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ROOT_TYPE: &str = "";

const STOPPED: &str = "was not looked into, because the search was stopped";

/// No root file system; one sentence for each partition looked at.
#[derive(Debug, thiserror::Error)]
#[error("no installed root file system on {}: {}", disk.display(), if seen.is_empty() { "it has no partition".into() } else { seen.join("; ") })]
pub(crate) struct NotFound {
    disk: PathBuf,
    seen: Vec<String>,
    /// Whether the root may be in something that Landfall does not open.
    volumes: bool,
}

impl NotFound {
    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        if self.volumes {
            "use an image whose root is a plain partition with ext4, xfs or btrfs: Landfall opens no LVM, LUKS or RAID volume"
        } else {
            "use an image with an ext4, xfs or btrfs root file system that contains /etc/os-release"
        }
    }
}

/// Finds and mounts the root file system that the image brought. Waits a bounded time for the disk's partitions. Partitions
/// are looked into without a write; once `cancelled`, nothing more is mounted. Blocking.
///
/// # Errors
/// [`NotFound`], with what was seen on each partition.
pub(super) fn find(
    disk: &SystemDisk, at: &Path, access: Access, cancelled: &dyn Fn() -> bool,
) -> Result<(Mounted, Turns), NotFound> {
    let end = Instant::now() + PARTITION_LIMIT;
    loop {
        let (mut seen, mut volumes, mut missing_node) = (Vec::new(), false, false);
        for partition in by_preference(look(disk)) {
            missing_node |= !partition.device.exists();
            volumes |= matches!(partition.content, Content::Other(what) if is_volume(what));
            match judged(&partition).and_then(|file_system| mount(&partition, file_system, at, access, cancelled)) {
                Ok(found) => return Ok(found),
                Err(why) => seen.push(format!("{} {why}", partition.device.display())),
            }
        }
        // If all partitions had nodes and were checked, waiting changes nothing.
        let settled = !seen.is_empty() && !missing_node;
        if settled || Instant::now() >= end || cancelled() {
            return Err(NotFound { disk: Path::new("/dev").join(&disk.name), seen, volumes });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Partitions typed as root first.
fn by_preference(mut partitions: Vec<Partition>) -> Vec<Partition> {
    partitions.retain(|partition| partition.origin != Origin::OtherDisk);
    partitions.sort_by_key(|partition| partition.kind != ROOT_TYPE);
    partitions
}

/// The file system that may be the image's root; or why it cannot be.
fn judged(partition: &Partition) -> Result<&FileSystem, String> {
    if partition.origin != Origin::Image {
        return Err("was kept, so it holds nothing of the image".into());
    }
    partition
        .file_system()
        .filter(|found| found.kind != "vfat")
        .ok_or_else(|| partition.unusable().unwrap_or_else(|| "holds a FAT file system, which cannot be a root".into()))
}

fn is_volume(what: &str) -> bool {
    ["LVM", "LUKS", "RAID", "ZFS", "bcache"].iter().any(|kind| what.contains(kind))
}

fn mount(
    partition: &Partition, file_system: &FileSystem, at: &Path, access: Access, cancelled: &dyn Fn() -> bool,
) -> Result<(Mounted, Turns), String> {
    if cancelled() {
        return Err(STOPPED.into());
    }
    let mut turns = Turns::default();
    turns.take(&partition.device, file_system, cancelled).map_err(|_| STOPPED)?;
    fs::create_dir_all(at).map_err(|e| format!("has no place to be mounted: cannot make {}: {e}", at.display()))?;
    let failed =
        |e: &dyn std::fmt::Display| format!("holds a file system ({}) that cannot be mounted: {e}", file_system.kind);
    let option = probe(&partition.device, file_system, at).map_err(|e| failed(&e))?;
    let option = option.ok_or_else(|| format!("holds a file system ({}) without /etc/os-release", file_system.kind))?;
    // From here on a mount may write: a journal is replayed.
    if cancelled() {
        return Err(STOPPED.into());
    }
    let mounted = Mounted::new(&partition.device, (at, at), file_system, access, option.as_deref());
    Ok((mounted.map_err(|e| failed(&e))?, turns))
}

/// Looks for a system without writing: the option that its root is mounted with, `None` for none.
fn probe(
    device: &Path, file_system: &FileSystem, at: &Path,
) -> Result<Option<Option<String>>, Box<dyn std::error::Error>> {
    let mounted = |option| Mounted::new(device, (at, at), file_system, Access::Probe, option);
    let looked = mounted(None)?;
    let tree = Tree::open(at)?;
    if file_system.kind != "btrfs" {
        let there = btrfs::holds_system(&tree, "");
        drop(tree);
        looked.close()?;
        return Ok(there.then_some(None));
    }
    let default = btrfs::default(&tree);
    drop(tree);
    looked.close()?;
    let looked = mounted(Some("subvolid=5"))?;
    let tree = Tree::open(at)?;
    let below = btrfs::below(&tree, default.as_ref());
    drop(tree);
    looked.close()?;
    let found: Vec<_> = default.into_iter().chain(below).collect();
    Ok(btrfs::choose(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(device: &str, kind: &str, origin: Origin, content: Content) -> Partition {
        Partition {
            device: device.into(),
            kind: kind.into(),
            guid: String::new(),
            label: String::new(),
            origin,
            content,
        }
    }

    fn ext4() -> Content {
        Content::FileSystem(FileSystem { kind: "ext4", ..FileSystem::default() })
    }

    #[test]
    fn a_kept_partition_is_never_the_root() {
        let order = by_preference(vec![
            partition("a", "", Origin::Image, ext4()),
            partition("b", ROOT_TYPE, Origin::Kept, ext4()),
            partition("c", ROOT_TYPE, Origin::Image, ext4()),
            partition("d", ROOT_TYPE, Origin::OtherDisk, ext4()),
        ]);
        let names: Vec<_> = order.iter().map(|p| p.device.display().to_string()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        let usable: Vec<_> = order.iter().filter(|p| judged(p).is_ok()).map(|p| p.device.clone()).collect();
        assert_eq!(usable, [PathBuf::from("c"), "a".into()]);
        assert!(judged(&order[0]).unwrap_err().contains("kept"));
    }

    #[test]
    fn what_cannot_be_a_root_is_refused_by_name() {
        let lvm = partition("/dev/vda3", "", Origin::Image, Content::Other("an LVM physical volume"));
        let why = judged(&lvm).unwrap_err();
        assert_eq!(why, "holds an LVM physical volume, which Landfall cannot mount");
        let found = |volumes| NotFound { disk: "/dev/vda".into(), seen: vec![why.clone()], volumes };
        assert!(found(is_volume("an LVM physical volume")).hint().contains("LVM"));
        assert!(found(is_volume("swap space")).hint().contains("os-release"));
        let fat = Content::FileSystem(FileSystem { kind: "vfat", ..FileSystem::default() });
        assert!(judged(&partition("e", "", Origin::Image, fat)).unwrap_err().contains("FAT"));
    }
}
