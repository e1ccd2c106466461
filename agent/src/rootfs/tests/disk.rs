//! Disks of loop devices for the tests of this folder: a table made by another program's writer, file systems made by their
//! own tools. Root is needed; where it, a tool or a file system is missing, a test says so and passes.

use std::fs;
use std::fs::File;
use std::io::{Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use gpt::{GptConfig, disk::LogicalBlockSize, mbr::ProtectiveMBR, partition_types};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use sha2::{Digest, Sha256};

use super::super::partitions::numbered;

const MIB: u64 = 1 << 20;

/// What a test needs and this host lacks.
#[derive(Debug)]
pub(super) struct Missing(pub(super) String);

/// Runs `test`, unless this host lacks something.
pub(super) fn where_possible(test: impl FnOnce() -> Result<(), Missing>) {
    if let Err(Missing(what)) = alone().and_then(|_one| test()) {
        eprintln!("SKIPPED: {what}");
    }
}

/// Runs a tool to its end.
pub(super) fn run(tool: &str, arguments: &[&str]) -> Result<String, Missing> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(tool).args(arguments).env("PATH", path).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(output) => Err(Missing(format!("{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))),
        Err(e) => Err(Missing(format!("{tool}: {e}"))),
    }
}

/// One partition to make.
pub(super) struct Part {
    pub(super) label: &'static str,
    pub(super) is_root_type: bool,
    pub(super) mib: u64,
}

/// A loop device with a table and partitions; detached on drop.
pub(super) struct Disk {
    file: tempfile::NamedTempFile,
    /// `loop3`
    pub(super) name: String,
    sector: u32,
    /// How large each partition is.
    mib: Vec<u64>,
}

impl Disk {
    /// An empty disk with these partitions, one after the other.
    pub(super) fn new(sector: u32, parts: &[Part]) -> Result<Self, Missing> {
        Self::backed(tempfile::NamedTempFile::new().unwrap(), sector, parts)
    }

    /// The same, on this file.
    pub(super) fn backed(file: tempfile::NamedTempFile, sector: u32, parts: &[Part]) -> Result<Self, Missing> {
        let total = (2 + parts.iter().map(|part| part.mib).sum::<u64>()) * MIB;
        file.as_file().set_len(total).unwrap();
        // The tables are in the first and the last MiB, so those two are made in memory.
        let size = if sector == 512 { LogicalBlockSize::Lb512 } else { LogicalBlockSize::Lb4096 };
        let mut mbr = Cursor::new(vec![0; 512]);
        let sectors = u32::try_from(total / u64::from(sector)).unwrap() - 1;
        ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut mbr).unwrap();
        file.as_file().write_all_at(mbr.get_ref(), 0).unwrap();
        let config = GptConfig::new().writable(true).logical_block_size(size);
        let mut table = config.create_from_device(file.as_file().try_clone().unwrap(), None).unwrap();
        for part in parts {
            let kind = if part.is_root_type { partition_types::LINUX_ROOT_X64 } else { partition_types::LINUX_FS };
            table.add_partition(part.label, part.mib * MIB, kind, 0, Some(MIB / u64::from(sector))).unwrap();
        }
        table.write().unwrap();
        Self::attach(file, sector, parts.iter().map(|part| part.mib).collect())
    }

    fn attach(file: tempfile::NamedTempFile, sector: u32, mib: Vec<u64>) -> Result<Self, Missing> {
        let path = file.path().display().to_string();
        let device = run("losetup", &["--find", "--show", "--sector-size", &sector.to_string(), &path])?;
        let disk = Self { file, name: device.trim_start_matches("/dev/").to_owned(), sector, mib };
        // Of a test that was killed.
        forget_partitions(&disk.name)?;
        let mut start = 1;
        for (number, mib) in (1..).zip(&disk.mib) {
            // Stated rather than scanned: not every kernel reads a GPT. In units of 512 bytes at any sector size.
            let [number, first, count] = [number, start * 2048, mib * 2048].map(|n: u64| n.to_string());
            run("addpart", &[&device, &number, &first, &count])?;
            start += mib;
        }
        Ok(disk)
    }

    /// Another disk with the same content, as it stands at this instant: a file system that is mounted is as after a power
    /// cut.
    pub(super) fn copy(&self) -> Result<Self, Missing> {
        let file = tempfile::NamedTempFile::new().unwrap();
        run("sync", &["--file-system", "/tmp"])?;
        let [from, to] = [self.file.path(), file.path()].map(|path| path.display().to_string());
        run("cp", &["--sparse=always", &from, &to])?;
        Self::attach(file, self.sector, self.mib.clone())
    }

    /// The device of a partition.
    pub(super) fn part(&self, number: u32) -> PathBuf {
        format!("/dev/{}p{number}", self.name).into()
    }

    /// Makes a file system with its own tool.
    pub(super) fn format(&self, number: u32, kind: &str) -> Result<(), Missing> {
        let device = self.part(number).display().to_string();
        let (tool, options): (_, &[&str]) = match kind {
            "ext4" => ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard"]),
            "xfs" => ("mkfs.xfs", &["-q", "-f", "-K"]),
            _ => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        };
        let arguments: Vec<&str> = options.iter().copied().chain([device.as_str()]).collect();
        run(tool, &arguments).map(drop)
    }

    /// What is on a partition.
    pub(super) fn digest(&self, number: u32) -> [u8; 32] {
        // Past what the kernel still keeps of an unmounted file system.
        run("blockdev", &["--flushbufs", &self.part(number).display().to_string()]).unwrap();
        let mut hash = Sha256::new();
        let mut device = File::open(self.part(number)).unwrap();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match device.read(&mut buffer).unwrap() {
                0 => return hash.finalize().into(),
                count => hash.update(&buffer[..count]),
            }
        }
    }

    /// Mounts a partition as the installed system would, and changes it.
    pub(super) fn with<T>(
        &self, number: u32, kind: &str, option: &str, change: impl FnOnce(&Path) -> T,
    ) -> Result<T, Missing> {
        let at = At(tempfile::tempdir().unwrap());
        let option = if kind == "xfs" { "nouuid" } else { option };
        mount(Some(&self.part(number)), at.0.path(), Some(kind), MsFlags::empty(), Some(option))
            .map_err(|e| Missing(format!("no mount of {kind}: {e}")))?;
        Ok(change(at.0.path()))
    }
}

/// Where something is mounted; also unmounted if a test fails meanwhile.
pub(super) struct At(pub(super) tempfile::TempDir);

/// A directory in memory that holds this many MiB.
pub(super) fn small_directory(mib: u64) -> Result<At, Missing> {
    let at = tempfile::tempdir().unwrap();
    let size = format!("size={mib}m");
    mount(Some("tmpfs"), at.path(), Some("tmpfs"), MsFlags::empty(), Some(size.as_str()))
        .map_err(|e| Missing(format!("no mount of tmpfs: {e}")))?;
    Ok(At(at))
}

impl Drop for At {
    fn drop(&mut self) {
        if let Err(e) = umount2(self.0.path(), MntFlags::empty()) {
            eprintln!("{} stays mounted: {e}", self.0.path().display());
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let device = format!("/dev/{}", self.name);
        let gone = forget_partitions(&self.name).and_then(|()| run("losetup", &["--detach", &device]));
        if let Err(Missing(why)) = gone {
            eprintln!("{device} stays: {why}");
        }
    }
}

/// A partition that was stated outlives its disk's content.
fn forget_partitions(name: &str) -> Result<(), Missing> {
    let partitions = numbered(&Path::new("/sys/block").join(name));
    let device = format!("/dev/{name}");
    partitions.into_iter().try_for_each(|(number, _)| run("delpart", &[&device, &number.to_string()]).map(drop))
}

/// Puts a system there, with this fstab.
pub(super) fn install(root: &Path, fstab: &str) {
    for directory in ["etc", "var", "usr/local"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("etc/os-release"), "PRETTY_NAME=mini\n").unwrap();
    fs::write(root.join("etc/fstab"), fstab).unwrap();
}

/// Loop devices are few, and a table is scanned while another is made: one test at a time.
fn alone() -> Result<std::sync::MutexGuard<'static, ()>, Missing> {
    static ONE: Mutex<()> = Mutex::new(());
    if !nix::unistd::geteuid().is_root() {
        return Err(Missing("mounting needs root".into()));
    }
    Ok(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}
