//! The file systems of the root and of a separate `/var`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::layout::Extent;
use super::tools;
use super::tools::ToolError;

/// The subvolume that Debian's installer puts the system into, and the one beside it for `/home`.
const ROOT_SUBVOLUME: &str = "@rootfs";
const HOME_SUBVOLUME: &str = "@home";

/// The file system of the root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RootFs {
    /// ext4; the image is the same every time.
    #[default]
    Ext4,
    /// XFS, at least 300 MiB. Made by mounting it, so that it needs root and a kernel with XFS.
    Xfs,
    /// btrfs with the subvolumes `@rootfs` and `@home`, which Debian's installer makes. Made by mounting it, so that it
    /// needs root and a kernel with btrfs.
    Btrfs,
}

impl RootFs {
    /// Where the system's own root is, as GRUB sees the file system.
    pub(super) fn system(self) -> String {
        match self {
            Self::Ext4 | Self::Xfs => String::new(),
            Self::Btrfs => format!("/{ROOT_SUBVOLUME}"),
        }
    }

    /// What the kernel must know to mount it, besides its UUID.
    pub(super) fn flags(self) -> String {
        match self {
            Self::Ext4 | Self::Xfs => String::new(),
            Self::Btrfs => format!("rootflags=subvol={ROOT_SUBVOLUME}"),
        }
    }

    /// GRUB's module for it.
    pub(super) const fn grub_module(self) -> &'static str {
        match self {
            Self::Ext4 => "ext2",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// A file system to make.
#[derive(Debug)]
pub(super) struct FileSystem<'a> {
    /// What it holds.
    pub(super) files: &'a Path,
    pub(super) label: &'a str,
    pub(super) uuid: uuid::Uuid,
    /// Of its directories, where it has one.
    pub(super) hash_seed: uuid::Uuid,
    /// Its place on the disk.
    pub(super) place: Extent,
}

impl FileSystem<'_> {
    /// Makes an ext4 in place, at its offset; the holes of a sparse file stay.
    pub(super) fn ext4(&self, disk: &Path) -> Result<(), ToolError> {
        // Without metadata_csum_seed and orphan_file: GRUB 2.06 must read it.
        let options = format!(
            "offset={},hash_seed={},lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0",
            self.place.start, self.hash_seed
        );
        let mut args = words(&["-q", "-F", "-t", "ext4", "-m", "1", "-b", "4096", "-L", self.label, "-U"]);
        args.extend([self.uuid.to_string().into(), "-E".into(), options.into(), "-d".into()]);
        args.extend([self.files.into(), disk.into(), format!("{}k", self.place.bytes / 1024).into()]);
        tools::run("mke2fs", args).map(drop)
    }

    /// Makes one of the others in a file of its own in `work`, by mounting it.
    pub(super) fn mounted(&self, kind: RootFs, work: &Path) -> Result<PathBuf, MountError> {
        let part = work.join("root.img");
        let made = File::create(&part).and_then(|file| file.set_len(self.place.bytes));
        made.map_err(|source| MountError::File { path: part.clone(), source })?;
        let uuid = self.uuid.to_string();
        match kind {
            // Without 64-bit counts of extents: GRUB 2.06 must read it.
            RootFs::Xfs => {
                let id = format!("uuid={uuid}");
                tools::run("mkfs.xfs", with(&["-q", "-L", self.label, "-m", &id, "-i", "nrext64=0"], &part))?;
            }
            RootFs::Ext4 | RootFs::Btrfs => {
                tools::run("mkfs.btrfs", with(&["-q", "-L", self.label, "-U", &uuid], &part))?;
            }
        }
        let point = work.join("root.mount");
        fs::create_dir_all(&point).map_err(|source| MountError::File { path: point.clone(), source })?;
        let mount = Mount::new(&part, point)?;
        let mut into = mount.0.clone();
        if kind == RootFs::Btrfs {
            for name in [ROOT_SUBVOLUME, HOME_SUBVOLUME] {
                tools::run("btrfs", with(&["-q", "subvolume", "create"], &mount.0.join(name)))?;
            }
            into.push(ROOT_SUBVOLUME);
        }
        tools::run("cp", [OsStr::new("--archive"), self.files.join(".").as_os_str(), into.as_os_str()])?;
        mount.end()?;
        Ok(part)
    }
}

/// A file system cannot be made by mounting it.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// A tool failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A file or directory for it cannot be made.
    #[error("cannot make {path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A file system that is mounted until this ends.
struct Mount(PathBuf);

impl Mount {
    fn new(part: &Path, point: PathBuf) -> Result<Self, ToolError> {
        tools::run("mount", [OsStr::new("-o"), OsStr::new("loop"), part.as_os_str(), point.as_os_str()])?;
        Ok(Self(point))
    }

    /// Everything is in the file afterwards. Unmounting alone does not see to that: a process that began meanwhile with mounts of its
    /// own, such as one in a network namespace, keeps the file system mounted.
    fn end(mut self) -> Result<(), ToolError> {
        for how in ["--freeze", "--unfreeze"] {
            tools::run("fsfreeze", [OsStr::new(how), self.0.as_os_str()])?;
        }
        tools::run("umount", [std::mem::take(&mut self.0)]).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // An earlier error is being reported, and a destructor cannot return another.
            let _ = tools::run("umount", [&self.0]);
        }
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

fn with(arguments: &[&str], path: &Path) -> Vec<OsString> {
    let mut all = words(arguments);
    all.push(path.into());
    all
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A process with a copy of every mount, killed at the end.
    struct Holder(Child);

    impl Holder {
        fn start() -> Self {
            let child = Command::new("unshare")
                .args(["--mount", "--propagation", "private", "sleep", "120"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
            let (own, begun) = (namespace("self"), Instant::now());
            while namespace(&child.id().to_string()) == own {
                assert!(begun.elapsed() < Duration::from_secs(60), "it has no mounts of its own");
                std::thread::yield_now();
            }
            Self(child)
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_file_system_still_mounted_is_whole_in_its_file() {
        let have = |tool: &str| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !nix::unistd::geteuid().is_root() || !["mkfs.xfs", "mkfs.btrfs", "grub-fstest"].into_iter().all(have) {
            eprintln!("SKIPPED: needs root, xfsprogs, btrfs-progs and grub-common");
            return;
        }
        for (kind, make) in [("xfs", "mkfs.xfs"), ("btrfs", "mkfs.btrfs")] {
            let work = tempfile::tempdir().unwrap();
            let (part, point) = (work.path().join("part"), work.path().join("point"));
            File::create(&part).unwrap().set_len(512 << 20).unwrap();
            fs::create_dir(&point).unwrap();
            let options: &[&str] = if kind == "xfs" { &["-q", "-i", "nrext64=0"] } else { &["-q"] };
            tools::run(make, with(options, &part)).unwrap();
            let mount = Mount::new(&part, point.clone()).unwrap();
            for n in 0..100 {
                fs::write(point.join(format!("file{n}")), vec![7; 10_000]).unwrap();
            }
            let holder = Holder::start();
            mount.end().unwrap();
            // As the boot loader reads it, without a journal.
            let read = |n: usize| {
                let arguments =
                    [part.as_os_str(), OsStr::new("crc"), OsStr::new(&format!("(loop0)/file{n}"))].map(OsString::from);
                tools::run("grub-fstest", arguments).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            };
            let first = read(0).unwrap();
            assert!((1..100).all(|n| read(n).unwrap() == first), "{kind}");
            drop(holder);
        }
    }
}
