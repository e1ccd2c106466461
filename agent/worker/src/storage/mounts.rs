//! Mounting what a plan says, and what is done in a mounted file system.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::{ErrorCode, Problem};
use landfall_plan::{Mount, Source};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{commands::subvolume, tools::Tools};
use crate::{Failure, actions::place::Place};

const MOUNTS: &str = "/proc/thread-self/mountinfo";

/// Options of fstab that are flags of the kernel's call and not text for the file system (mount(8)).
const FLAGS: [(&str, MsFlags); 11] = [
    ("noatime", MsFlags::MS_NOATIME),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("relatime", MsFlags::MS_RELATIME),
    ("strictatime", MsFlags::MS_STRICTATIME),
    ("lazytime", MsFlags::MS_LAZYTIME),
    ("sync", MsFlags::MS_SYNCHRONOUS),
    ("dirsync", MsFlags::MS_DIRSYNC),
    // While the system is installed, what is in it must be written, run and made.
    ("ro", MsFlags::empty()),
    ("nosuid", MsFlags::empty()),
    ("nodev", MsFlags::empty()),
    ("noexec", MsFlags::empty()),
];
/// Options that mean something to fstab's readers alone (fstab(5), systemd.mount(5)).
const READERS: [&str; 21] = [
    "defaults", "rw", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev", "suid",
    "dev", "exec", "async", "atime", "diratime", "norelatime", "nostrictatime", "nolazytime", "silent",
];

/// File systems that are mounted below one folder; unmounted when this goes.
#[derive(Debug)]
pub struct Mounted {
    root: PathBuf,
    /// In the order in which they were mounted.
    places: Vec<PathBuf>,
}

impl Mounted {
    pub(super) fn nothing(root: &Path) -> Self {
        Self { root: root.to_owned(), places: Vec::new() }
    }

    /// Where the installed system's root is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Mounts a file system; the folder for it is made.
    pub(super) fn add(&mut self, what: &Mount, device: &Path) -> Result<(), Failure> {
        let failed = |doing: &str, error: io::Error| {
            let message = format!("cannot {doing} {} for {}: {error}", what.at, device.display());
            Failure::last(Problem::new(ErrorCode::NoRootFilesystem, message).at(what.at.clone()))
        };
        // Links of the new system lead within it.
        let place = Place::open(&self.root, &what.at).map_err(|error| failed("make the directory", error))?;
        let real = fs::read_link(place.path()).map_err(|error| failed("find the directory", error))?;
        let (flags, data) = during(what);
        mount(Some(device), &place.path(), Some(what.format.name()), flags, Some(data.as_str()))
            .map_err(|error| failed("mount", error.into()))?;
        self.places.push(real);
        Ok(())
    }

    /// Writes everything to stable storage and unmounts it.
    ///
    /// # Errors
    /// A disk fails; something still uses a file system.
    pub fn close(mut self) -> Result<(), Failure> {
        sync_below(&self.root)?;
        while let Some(place) = self.places.pop() {
            umount2(&place, MntFlags::empty()).map_err(|error| {
                let message = format!("cannot unmount {}: {error}", place.display());
                Failure::last(Problem::new(ErrorCode::DiskInUse, message).hint("end what uses it"))
            })?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for place in self.places.iter().rev() {
            // After a failure; what stays mounted ends with this process' namespace.
            let _ = umount2(place, MntFlags::MNT_DETACH);
        }
    }
}

/// Brings what was written below `target` to the disks. The kernel's call for everything at once reports no error.
pub(super) fn sync_below(target: &Path) -> Result<(), Failure> {
    let failed = |what: &str, error: io::Error| {
        let message = format!("{what}: {error}");
        Failure::last(Problem::new(ErrorCode::DeviceIo, message).hint("check the disk's health and the kernel log"))
    };
    let mounts = fs::read_to_string(MOUNTS).map_err(|error| failed("cannot read the mounts", error))?;
    // 36 35 98:0 /root /mount/point options …; the names of a layout's mounts have no character that the kernel escapes.
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    for place in places.filter(|place| place.starts_with(target)) {
        let synced = File::open(place).and_then(|open| Ok(nix::unistd::syncfs(&open)?));
        synced.map_err(|error| failed(&format!("cannot write {} to its disk", place.display()), error))?;
    }
    Ok(())
}

/// The options of a mount that are text for its file system.
pub(super) fn text_options(mount: &Mount) -> String {
    split(mount.all_options().as_deref().unwrap_or_default()).1
}

/// Flags of the call and text for the file system, while the system is installed.
fn during(what: &Mount) -> (MsFlags, String) {
    let options = what.all_options().unwrap_or_default();
    let (flags, text) = split(&options);
    (if stays_unwritten(what) { flags | MsFlags::MS_RDONLY } else { flags }, text)
}

/// Whether nothing may be written to it while the system is installed: it was there before, and its owner says `ro`.
pub(super) fn stays_unwritten(what: &Mount) -> bool {
    let options = what.all_options().unwrap_or_default();
    matches!(what.source, Source::PartUuid(_)) && options.split(',').any(|option| option == "ro")
}

/// Flags of the call, and text for the file system.
fn split(options: &str) -> (MsFlags, String) {
    let mut flags = MsFlags::empty();
    let mut text = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == option) {
            flags |= *flag;
        } else if !READERS.contains(&option) && !option.starts_with("x-") && !option.starts_with("comment=") {
            text.push(option);
        }
    }
    (flags, text.join(","))
}

/// Makes subvolumes of the btrfs file system on this device.
pub(super) fn subvolumes(device: &Path, names: &[String], tools: &dyn Tools) -> Result<(), Failure> {
    let folder = scratch()?;
    let made = in_mounted(device, &folder, names, tools);
    // It is empty again, and goes with the tools layer's memory if it stays.
    let _ = fs::remove_dir(&folder);
    made
}

fn in_mounted(device: &Path, folder: &Path, names: &[String], tools: &dyn Tools) -> Result<(), Failure> {
    let failed = |doing: &str, error: io::Error| {
        let message = format!("cannot {doing} {}: {error}", device.display());
        Failure::last(Problem::new(ErrorCode::DeviceIo, message))
    };
    mount(Some(device), folder, Some("btrfs"), MsFlags::empty(), None::<&str>)
        .map_err(|error| failed("mount", error.into()))?;
    let mut made = Ok(());
    for name in names {
        let path = folder.join(name);
        made = path.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| failed("make a directory on", error));
        made = made.and_then(|()| tools.run(&subvolume(&path)));
        if made.is_err() {
            break;
        }
    }
    let closed = umount2(folder, MntFlags::empty()).map_err(|error| failed("unmount", error.into()));
    made.and(closed)
}

/// A folder to mount something at for a moment.
fn scratch() -> Result<PathBuf, Failure> {
    let folder = std::env::temp_dir().join(format!("landfall-storage-{}", std::process::id()));
    let cannot = |error: io::Error| {
        let message = format!("cannot make the directory {}: {error}", folder.display());
        Failure::last(
            Problem::new(ErrorCode::Internal, message).hint("make a new tools layer with landfall-image tools"),
        )
    };
    fs::create_dir_all(&folder).map_err(cannot)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use landfall_api::FileSystem;
    use landfall_plan::{Device, FileSystemId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_what_stays_is_mounted_read_only() {
        let new = Source::FileSystem(FileSystemId::Uuid(Uuid::nil()));
        for (source, options, read_only) in [
            (Source::PartUuid(Uuid::nil()), "noatime,ro", true),
            (Source::PartUuid(Uuid::nil()), "errors=remount-ro", false),
            (new, "ro", false),
        ] {
            let device = Device::Partition { disk: 0, number: 1 };
            let (format, options) = (FileSystem::Ext4, Some(options.to_owned()));
            let mount = Mount { device, source, at: "/srv".into(), format, options, subvolume: None };
            assert_eq!(during(&mount).0.contains(MsFlags::MS_RDONLY), read_only, "{mount:?}");
        }
    }

    #[test]
    fn options_of_fstab_are_no_text_of_a_file_system() {
        let split = |options: &str| split(options);
        assert_eq!(split("defaults"), (MsFlags::empty(), String::new()));
        let (flags, text) = split("noatime,compress=zstd:1,x-systemd.automount,nofail,ro,subvol=/@");
        assert_eq!((flags, text.as_str()), (MsFlags::MS_NOATIME, "compress=zstd:1,subvol=/@"));
        assert_eq!(
            split("rw,suid,dev,exec,auto,nouser,async"),
            (MsFlags::empty(), String::new()),
            "defaults of mount(8)"
        );
    }
}
