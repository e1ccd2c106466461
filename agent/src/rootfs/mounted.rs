//! One file system of the installed system, mounted; and the options it is mounted with.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::syncfs;

use super::names::FileSystem;

/// Whether the installed system is only read, or changed as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Looked into, and nothing at all is written: not even a journal is replayed.
    Probe,
    /// Mounted read-only.
    Read,
    /// Mounted for writing.
    Write,
    /// Mounted for writing, and its programs may be run.
    Run,
}

impl Access {
    /// Whether the installed system is changed.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Run)
    }

    /// A mounted system must have no effect: no devices, no set-uid, and no programs but those that an action runs.
    fn flags(self) -> MsFlags {
        let inert = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        match self {
            Self::Probe | Self::Read => inert | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY,
            Self::Write => inert | MsFlags::MS_NOEXEC,
            Self::Run => inert,
        }
    }

    /// What the file system itself must know, beside the `subvolume` that is meant.
    fn options(self, kind: &str, subvolume: Option<&str>) -> String {
        // A read-only mount replays a journal all the same, and that is a write.
        let without_replay = match kind {
            "ext4" => "noload",
            "xfs" => "norecovery",
            "btrfs" => "rescue=nologreplay",
            _ => "",
        };
        let options = [
            if self == Self::Probe { without_replay } else { "" },
            // Another disk with the same image has the same UUID, and may be mounted at this time.
            if kind == "xfs" { "nouuid" } else { "" },
            subvolume.unwrap_or_default(),
        ];
        options.into_iter().filter(|option| !option.is_empty()).collect::<Vec<_>>().join(",")
    }
}

/// A mounted file system; unmounted on drop, but only [`Mounted::close`] returns an error.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// The partition's device.
    pub(crate) device: PathBuf,
    /// Where it is mounted.
    pub(crate) at: PathBuf,
    /// What is on the device.
    pub(crate) file_system: FileSystem,
    /// The mount option that chose a subvolume of it.
    pub(crate) option: Option<String>,
    open: bool,
}

impl Mounted {
    /// Mounts a device's file system. `target` leads to the directory at `at`.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(
        device: &Path, (target, at): (&Path, &Path), file_system: &FileSystem, access: Access, option: Option<&str>,
    ) -> nix::Result<Self> {
        let kind = file_system.kind;
        crate::drivers::load_by_name(kind);
        let options = access.options(kind, option);
        mount(Some(device), target, Some(kind), access.flags(), Some(options.as_str()).filter(|o| !o.is_empty()))?;
        let option = option.map(str::to_owned);
        Ok(Self { device: device.to_owned(), at: at.to_owned(), file_system: file_system.clone(), option, open: true })
    }

    /// Unmounts: everything written is on the device when this returns.
    ///
    /// # Errors
    /// The kernel's, such as a file still open below it, or a write that the device refused.
    pub(super) fn close(mut self) -> io::Result<()> {
        // An unmount says nothing of writes that failed on their way to the device. It also leaves them for later if another
        // mount namespace has the file system too.
        let synced = File::open(&self.at).and_then(|place| Ok(syncfs(&place)?));
        self.open = false;
        umount2(&self.at, MntFlags::empty())?;
        synced
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_into_a_file_system_replays_no_journal() {
        for (kind, options) in
            [("ext4", "noload"), ("xfs", "norecovery,nouuid"), ("btrfs", "rescue=nologreplay,subvol=@")]
        {
            let subvolume = (kind == "btrfs").then_some("subvol=@");
            assert_eq!(Access::Probe.options(kind, subvolume), options);
            assert!(Access::Probe.flags().contains(MsFlags::MS_RDONLY));
        }
        assert_eq!(Access::Probe.options("vfat", None), "");
    }

    #[test]
    fn only_writing_mounts_for_writing() {
        for (access, kind, options) in
            [(Access::Write, "xfs", "nouuid"), (Access::Read, "xfs", "nouuid"), (Access::Write, "ext4", "")]
        {
            assert_eq!(access.options(kind, None), options);
            assert_eq!(access.flags().contains(MsFlags::MS_RDONLY), access == Access::Read);
            assert!(access.flags().contains(MsFlags::MS_NOEXEC | MsFlags::MS_NODEV | MsFlags::MS_NOSUID));
        }
    }
}
