//! The system on a layout: what is mounted where is known, and nothing is searched for.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use landfall_api::message::{LayoutMount, OpenedLayout};

use super::mounted::{Access, Mounted};
use super::names::FileSystem;
use super::partitions::SystemDisk;
use super::system::{Below, System};
use super::tree::Tree;
use super::turns::Turns;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A file system of the layout cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[error("{device} of the layout cannot be mounted at {at}: {source}")]
pub(crate) struct LayoutError {
    /// The device.
    pub(crate) device: String,
    at: String,
    source: Cause,
}

impl System {
    /// Mounts every file system of the layout, the root at `at`. Blocking.
    ///
    /// # Errors
    /// [`LayoutError`], also where a device holds another file system than the layout gave it; nothing stays mounted then.
    pub(crate) fn of_layout(
        layout: &OpenedLayout, at: &Path, access: Access, cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, LayoutError> {
        let mut turns = Turns::default();
        let mut root = None;
        // Dropped before the root, from the innermost.
        let mut below = Below::default();
        for mount in &layout.mounts {
            let failed = |source| LayoutError { device: mount.device.clone(), at: mount.at.clone(), source };
            let found = prepared(mount, &mut turns, cancelled).map_err(failed)?;
            if root.is_none() {
                fs::create_dir_all(at).map_err(|e| failed(e.into()))?;
                root = Some(put(mount, &found, (at, at), access).map_err(failed)?);
            } else {
                below.0.push((mount.at.clone(), put_below(mount, &found, at, access).map_err(failed)?));
            }
        }
        let none = || LayoutError { device: String::new(), at: "/".into(), source: "it has no root".into() };
        let name = layout.disks.first().cloned().unwrap_or_default();
        let disk = SystemDisk { name, ..SystemDisk::default() };
        Ok(Self { disk, access, below, root: root.ok_or_else(none)?, turns })
    }
}

/// What is on the device, once no other branch uses it.
fn prepared(mount: &LayoutMount, turns: &mut Turns, cancelled: &dyn Fn() -> bool) -> Result<FileSystem, Cause> {
    let device = Path::new(&mount.device);
    let found = is_as_made(mount, FileSystem::look(device)?)?;
    turns.take(device, &found, cancelled).map_err(|_| "the action was stopped")?;
    Ok(found)
}

/// The file system that the layout gave the device, and no other.
fn is_as_made(mount: &LayoutMount, found: Option<FileSystem>) -> Result<FileSystem, Cause> {
    let found = found.ok_or("it holds no ext4, xfs, btrfs or FAT file system")?;
    if found.kind != mount.kind || !mount.uuid.is_empty() && !found.uuid.eq_ignore_ascii_case(&mount.uuid) {
        let (kind, uuid) = (found.kind, &found.uuid);
        return Err(format!("it holds {kind} {uuid}, and the layout gave it {} {}", mount.kind, mount.uuid).into());
    }
    Ok(found)
}

fn put_below(mount: &LayoutMount, found: &FileSystem, root: &Path, access: Access) -> Result<Mounted, Cause> {
    let tree = Tree::open(root)?;
    tree.make_directory(&mount.at)?;
    let (directory, real) = tree.mount_point(&mount.at)?;
    // By descriptor: links have been resolved inside the tree.
    let target = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    put(mount, found, (&target, &real), access)
}

fn put(mount: &LayoutMount, found: &FileSystem, place: (&Path, &Path), access: Access) -> Result<Mounted, Cause> {
    let options = Some(mount.options.as_str()).filter(|options| !options.is_empty());
    let mounted = Mounted::new(Path::new(&mount.device), place, found, access_of(mount, access), options)?;
    tracing::info!("{} is mounted on {} of the new system", mount.device, mount.at);
    Ok(mounted)
}

/// How it is mounted for an action that wants `access` to the system.
const fn access_of(mount: &LayoutMount, access: Access) -> Access {
    if mount.read_only { Access::Read } else { access }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_its_owner_calls_read_only_is_not_written() {
        let mount = |read_only| LayoutMount {
            device: "/dev/vda3".into(),
            at: "/srv/archive".into(),
            kind: "xfs".into(),
            uuid: String::new(),
            options: String::new(),
            read_only,
        };
        for access in [Access::Write, Access::Run] {
            assert!(!access_of(&mount(true), access).writes() && access_of(&mount(false), access).writes());
        }
    }

    #[test]
    fn another_file_system_than_the_layouts_is_refused() {
        let mount = |kind: &str, uuid: &str| LayoutMount {
            device: "/dev/vda2".into(),
            at: "/".into(),
            kind: kind.into(),
            uuid: uuid.into(),
            options: String::new(),
            read_only: false,
        };
        let found = || Some(FileSystem { kind: "ext4", uuid: "ab-cd".into(), label: String::new() });
        for right in [mount("ext4", "AB-CD"), mount("ext4", "")] {
            is_as_made(&right, found()).unwrap();
        }
        for (wrong, there) in
            [(mount("xfs", "ab-cd"), found()), (mount("ext4", "ab-ce"), found()), (mount("ext4", ""), None)]
        {
            let error = is_as_made(&wrong, there).unwrap_err();
            assert!(error.to_string().starts_with("it holds "), "{error}");
        }
    }
}
