//! The tools layer: a squashfs file with the worker, programs of Debian packages with exactly the libraries they need, and kernel
//! modules that the boot image lacks.
//!
//! `mksquashfs` writes the file: it is what distributions write theirs with, gives the same bytes for the same input, and needs no
//! code here.

mod contents;
mod elf;
mod packages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::{ToolsManifest, message::ToolsLayer};
use serde::Serialize;

use self::{contents::Contents, packages::Packages};
pub use self::{contents::ContentsError, packages::PackagesError};
use crate::digest::Hashing;
use crate::disk::tools::{ToolError, run};
use crate::kernel::{KernelTree, ResolveError, Stored, index, resolve};
use crate::output::{AtomicFile, OutputError, Scratch};

/// Programs of the actions that there are. The first name of each is what a package has; links lead to others.
pub const PROGRAMS: &[&str] = &[
    "mke2fs", "mkfs.ext4", "resize2fs", "mkfs.xfs", "xfs_growfs", "mkfs.btrfs", "btrfs", "mkfs.fat", "mkfs.vfat",
    "mkswap", "wipefs", "mdadm", "lvm", "cryptsetup", "nvme",
];

/// Libraries that no program names, because the C library opens it by itself when a thread ends (glibc: pthread_exit(3)).
const OPENED: &[&str] = &["libgcc_s.so.1"];

/// Data of those programs.
pub const FILES: &[&str] = &["etc/mke2fs.conf"];

/// Kernel modules of storage that boot images leave out: what needs them is never the way to the coordinator.
pub const MODULES: &[&str] = &[
    "md_mod", "raid0", "raid1", "raid10", "raid456", "dm_mod", "dm_crypt", "dm_mirror", "dm_snapshot", "xts", "cbc",
    "aes_generic", "aesni_intel", "sha256_generic", "sha512_generic", "algif_skcipher", "algif_hash", "ext4", "xfs",
    "btrfs", "vfat", "nls_cp437", "nls_ascii", "nls_utf8",
];

/// zstd's level: packed once, fetched often.
const LEVEL: &str = "19";
/// Bytes that are compressed together. Larger ones make a smaller file, and each read of a page unpacks one.
const BLOCK: &str = "256K";

/// Directories that file systems are mounted on, or that links lead to.
const DIRECTORIES: &[&str] =
    &["boot", "dev", "etc", "mnt", "proc", "root", "run", "sys", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "var"];

/// The root is read-only: what programs write goes to memory.
const LINKS: &[(&str, &str)] = &[
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
    ("tmp", "run"),
    ("var/lock", "/run"),
    ("var/run", "/run"),
    ("var/tmp", "/run"),
    ("etc/mtab", "/proc/self/mounts"),
    ("etc/resolv.conf", "/run/resolv.conf"),
];

/// LVM's settings: no udev runs, and nothing is kept in /etc.
const LVM_CONF: &str = "\
activation {\n\tudev_sync = 0\n\tudev_rules = 0\n\tmonitoring = 0\n}\n\
backup {\n\tbackup = 0\n\tarchive = 0\n}\n\
devices {\n\tobtain_device_list_from_udev = 0\n\tuse_devicesfile = 0\n}\n\
global {\n\tlocking_dir = \"/run/lvm\"\n}\n";

/// The layer cannot be made.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// The requested modules are not available.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The packages cannot be read.
    #[error(transparent)]
    Packages(#[from] PackagesError),
    /// A program, library or file is missing or unusable.
    #[error(transparent)]
    Contents(#[from] ContentsError),
    /// A file cannot be read or put in place.
    #[error("cannot {what} {path}")]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// mksquashfs failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The result is too large for a machine's memory.
    #[error("the tools layer has {0} bytes; the limit is {max}; leave out programs or modules", max = ToolsLayer::MAX_BYTES)]
    TooLarge(u64),
}

/// What goes into a layer.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// The kernel package of the boot image.
    pub tree: &'a KernelTree,
    /// The worker, a static program.
    pub worker: &'a Path,
    /// A directory with unpacked packages, each in a directory PACKAGE_VERSION. `None`: no program and no file is wanted.
    pub packages: Option<&'a Path>,
    /// Names of programs.
    pub programs: &'a BTreeSet<String>,
    /// Paths of other files of the packages.
    pub files: &'a BTreeSet<String>,
    /// Names of modules; what they need is added. Of [`MODULES`], those that the kernel does not have are left out.
    pub modules: &'a BTreeSet<String>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Packed {
    /// Bytes of the file, and of memory that it takes on a machine.
    pub stored_bytes: u64,
    /// Bytes of its files.
    pub raw_bytes: u64,
    /// `sha256:<hex>` of the file.
    pub digest: String,
    /// What is in it.
    pub manifest: ToolsManifest,
}

/// Makes the layer. The same input gives the same bytes.
///
/// # Errors
/// [`ToolsError`]; `output` is untouched then.
pub fn pack(recipe: &Recipe<'_>, output: &Path) -> Result<Packed, ToolsError> {
    let tree = recipe.tree;
    let packages = recipe.packages.map(Packages::open).transpose()?.unwrap_or_default();
    let mut contents = Contents::new(&packages, recipe.worker)?;
    for name in recipe.programs {
        contents.program(name)?;
    }
    if contents.has_loader() {
        OPENED.iter().try_for_each(|name| contents.add_library(name, "the C library"))?;
    }
    recipe.files.iter().for_each(|path| contents.file(path));
    contents.complete()?;
    contents.bytes("etc/lvm/lvm.conf", LVM_CONF.into());
    // Not every kernel has every module of our list; a name that a person wrote is one that they need.
    let has = |name: &&String| tree.modules.contains_key(*name) || !MODULES.contains(&name.as_str());
    let wanted: Vec<&String> = recipe.modules.iter().filter(has).collect();
    let modules = resolve(tree, &wanted)?.modules;
    let base = format!("usr/lib/modules/{}", tree.version);
    for module in modules.iter().filter_map(|name| tree.modules.get(name)) {
        let file = |source| ToolsError::File { what: "read", path: module.source.clone(), source };
        // Plain: the layer is compressed as a whole.
        contents.bytes(&format!("{base}/{}", module.path), module.read().map_err(file)?);
    }
    let index = index::generate(tree, &modules, Stored::Plain);
    for (name, text) in [("modules.dep", index.dep), ("modules.alias", index.alias), ("modules.softdep", index.softdep)]
    {
        contents.bytes(&format!("{base}/{name}"), text.into());
    }
    let manifest = ToolsManifest {
        architecture: contents.architecture().as_str().to_owned(),
        kernel: tree.version.clone(),
        // The worker is of the same release as this program; should it not be, the agent hears that from the worker itself.
        protocol: ToolsManifest::PROTOCOL,
        modules: modules.into_iter().collect(),
        programs: contents.programs(),
    };
    // A value of plain text always serialises.
    let mut text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    text.push(b'\n');
    contents.bytes(ToolsManifest::PATH, text);
    let made_for = ToolsManifest::made_for(&manifest.architecture, &manifest.kernel, manifest.protocol);
    contents.bytes(ToolsManifest::MADE_FOR, made_for.into());

    let stage = Scratch::beside(output)?;
    let written = contents.write(stage.path(), DIRECTORIES.iter().chain(&[ToolsManifest::TARGET]), LINKS);
    let raw_bytes = written.map_err(|(path, source)| ToolsError::File { what: "put in place", path, source })?;
    let (stored_bytes, digest) = squash(stage.path(), output)?;
    Ok(Packed { stored_bytes, raw_bytes, digest, manifest })
}

/// Bytes and digest of the file.
fn squash(stage: &Path, output: &Path) -> Result<(u64, String), ToolsError> {
    let file = AtomicFile::create(output)?;
    let path = file.temporary().to_owned();
    let fixed = ["-noappend", "-quiet", "-no-progress", "-no-xattrs", "-all-root", "-comp", "zstd"];
    let sized = ["-Xcompression-level", LEVEL, "-b", BLOCK];
    let paths = [stage.as_os_str(), path.as_os_str()];
    run("mksquashfs", paths.into_iter().chain(fixed.iter().chain(&sized).map(|word| word.as_ref())))?;
    let read = |source| ToolsError::File { what: "read", path: path.clone(), source };
    let mut hashing = Hashing::new(fs::File::open(&path).map_err(read)?);
    io::copy(&mut hashing, &mut io::sink()).map_err(read)?;
    let (bytes, digest) = hashing.finish();
    if bytes > ToolsLayer::MAX_BYTES {
        return Err(ToolsError::TooLarge(bytes));
    }
    file.commit()?;
    Ok((bytes, digest))
}

#[cfg(test)]
mod tests;
