//! Which partition of a disk holds the installed root file system, and mounting it.
//!
//! No udev and no libblkid: partitions come from sysfs, their types from the GPT, their file systems from their magic numbers.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{names::FileSystem, table};

/// The kernel re-reads a table and makes nodes within milliseconds; a slow controller takes a few seconds.
const PARTITION_LIMIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Discoverable Partitions Specification: root, for the architectures the agent runs on.
#[cfg(target_arch = "x86_64")]
const ROOT_TYPE: &str = "4f68bce3-e8cd-4db1-96e7-fbcaf984b709";
#[cfg(target_arch = "aarch64")]
const ROOT_TYPE: &str = "b921b045-1df0-41c3-af44-4c6f280d3fae";
/// Elsewhere no type is preferred.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ROOT_TYPE: &str = "";

/// Whether the installed system is only read, or changed as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Mounted read-only.
    Read,
    /// Mounted for writing.
    Write,
}

impl Access {
    /// A mounted system must have no effect: no devices, no programs, no set-uid.
    pub(super) fn flags(self) -> MsFlags {
        let inert = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        if self == Self::Read { inert | MsFlags::MS_RDONLY } else { inert }
    }
}

/// No root file system; one sentence for each partition looked at.
#[derive(Debug, thiserror::Error)]
#[error("no installed root file system on {}: {}", disk.display(), if seen.is_empty() { "it has no partition".into() } else { seen.join("; ") })]
pub(crate) struct NotFound {
    disk: PathBuf,
    seen: Vec<String>,
}

/// A mounted root; unmounted on drop, but only [`Mounted::close`] returns an error.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// The partition's device.
    pub(crate) device: PathBuf,
    /// Where it is mounted.
    pub(crate) at: PathBuf,
    /// What is on the device.
    pub(crate) file_system: FileSystem,
    /// The mount option that chose the root inside the file system.
    pub(crate) option: Option<&'static str>,
    open: bool,
}

impl Mounted {
    pub(super) fn new(device: &Path, at: &Path, file_system: FileSystem, option: Option<&'static str>) -> Self {
        Self { device: device.to_owned(), at: at.to_owned(), file_system, option, open: true }
    }

    /// Unmounts: everything written is on the device when this returns.
    ///
    /// # Errors
    /// The kernel's, such as a file still open below it.
    pub(crate) fn close(mut self) -> io::Result<()> {
        self.open = false;
        umount2(&self.at, MntFlags::empty())?;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.open
            && let Err(e) = umount2(&self.at, MntFlags::MNT_DETACH)
        {
            tracing::warn!("cannot unmount {}: {e}", self.at.display());
        }
    }
}

/// Finds and mounts the root file system of the disk named `name` (`vda`). Waits a bounded time for its partitions. Once
/// `cancelled`, it mounts nothing more: mounting alone may write, since a journal is replayed. Blocking.
///
/// # Errors
/// [`NotFound`], with what was seen on each partition.
pub(crate) fn find(name: &str, at: &Path, access: Access, cancelled: &dyn Fn() -> bool) -> Result<Mounted, NotFound> {
    let disk = Path::new("/dev").join(name);
    let end = Instant::now() + PARTITION_LIMIT;
    loop {
        let mut seen = Vec::new();
        let mut missing_node = false;
        for partition in by_preference(&disk, partitions(&Path::new("/sys/block").join(name))) {
            if cancelled() {
                seen.push("the search was stopped before all partitions were checked".into());
                return Err(NotFound { disk, seen });
            }
            missing_node |= !partition.exists();
            match try_mount(&partition, at, access) {
                Ok(mounted) => return Ok(mounted),
                Err(why) => seen.push(format!("{}: {why}", partition.display())),
            }
        }
        // If all partitions had nodes and were checked, waiting changes nothing.
        let settled = !seen.is_empty() && !missing_node;
        if settled || Instant::now() >= end || cancelled() {
            return Err(NotFound { disk, seen });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Devices of a disk's partitions, by number.
pub(super) fn partitions(sys: &Path) -> Vec<(u32, PathBuf)> {
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

/// Partitions typed as root first.
fn by_preference(disk: &Path, partitions: Vec<(u32, PathBuf)>) -> Vec<PathBuf> {
    let table = table::entries(disk);
    let is_root = |number: &u32| table.get(number).is_some_and(|entry| table::guid(entry.kind) == ROOT_TYPE);
    let (root, other): (Vec<_>, Vec<_>) = partitions.into_iter().partition(|(number, _)| is_root(number));
    root.into_iter().chain(other).map(|(_, path)| path).collect()
}

fn try_mount(device: &Path, at: &Path, access: Access) -> Result<Mounted, String> {
    let file_system = FileSystem::look(device).map_err(|e| e.to_string())?;
    let Some(file_system) = file_system.filter(|f| f.kind != "vfat") else {
        return Err("no ext4, xfs or btrfs file system".into());
    };
    let kind = file_system.kind;
    fs::create_dir_all(at).map_err(|e| format!("cannot make {}: {e}", at.display()))?;
    crate::drivers::load_by_name(kind);
    // Distributions that use btrfs keep their root in a subvolume: openSUSE and Ubuntu `@`, Fedora `root`.
    let options: &[Option<&'static str>] =
        if kind == "btrfs" { &[None, Some("subvol=@"), Some("subvol=root")] } else { &[None] };
    let mut why = String::new();
    for option in options {
        if let Err(e) = mount(Some(device), at, Some(kind), access.flags(), *option) {
            why = format!("cannot mount the {kind} file system: {e}");
            continue;
        }
        let mounted = Mounted::new(device, at, file_system.clone(), *option);
        // A link is enough: on most systems it points to /usr/lib/os-release, which need not be on this file system.
        if fs::symlink_metadata(at.join("etc/os-release")).is_ok() {
            return Ok(mounted);
        }
        why = format!("a {kind} file system without /etc/os-release");
    }
    Err(why)
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
        let found = partitions(sys.path());
        assert_eq!(found, [(2, "/dev/vda2".into()), (10, "/dev/vda10".into())]);
    }
}
