//! Assembles the parts, compresses the disk and writes its manifest.

use std::fs::File;
use std::io;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use gpt::{GptError, partition_types};
use serde::Serialize;

use super::filesystem::{FileSystem, MountError, RootFs};
use super::grub::GrubError;
use super::layout::{Extent, Layout, Sector};
use super::seed::Seed;
use super::tools::ToolError;
use super::{grub, tools};
use crate::digest::Hashing;
use crate::output;
use crate::output::{AtomicFile, OutputError, Scratch};

/// Name of the compressed disk.
pub const STORED: &str = "disk.img.zst";
/// Name of its checksum, in sha256sum's format.
pub const CHECKSUM: &str = "disk.img.zst.sha256";
/// Name of the manifest; it is written last, so if it exists, the other files are complete.
pub const MANIFEST: &str = "disk.json";
/// Name of the plain disk, if it is kept.
pub const RAW: &str = "disk.img";

/// The disk cannot be assembled.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// mke2fs or mtools failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The root cannot be made by mounting it.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// GRUB cannot be prepared.
    #[error(transparent)]
    Grub(#[from] GrubError),
    /// The partition table cannot be written.
    #[error("cannot write the partition table")]
    Table(#[source] GptError),
    /// A result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A part cannot be copied.
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The root directory has no boot menu.
    #[error("{0} has no boot/grub/grub.cfg; the disk would stop at GRUB's prompt")]
    NoMenu(PathBuf),
}

/// What a disk is made of.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// Becomes the root file system; holds `/boot/grub/grub.cfg`.
    pub root: &'a Path,
    /// Label of the root file system.
    pub label: &'a str,
    /// Source of every identifier.
    pub seed: Seed,
    /// The sectors of the disks it is for.
    pub sector: Sector,
    /// Kind of the root file system.
    pub root_fs: RootFs,
    /// MiB of the root file system.
    pub root_mib: u32,
    /// What becomes a file system of its own for `/var`, and its MiB. The root's fstab must name it by its label, `var`.
    pub var: Option<(&'a Path, u32)>,
    /// MiB of the EFI system partition.
    pub esp_mib: u32,
    /// GRUB's platform directories.
    pub grub: &'a Path,
    /// zstd's level.
    pub level: i32,
    /// Whether the plain disk stays beside the compressed one.
    pub keep_raw: bool,
}

/// The manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assembled {
    /// Name of the compressed disk in the same directory.
    pub file: String,
    /// Bytes of the disk.
    pub raw_bytes: u64,
    /// Bytes of the compressed disk.
    pub stored_bytes: u64,
    /// `sha256:<hex>` of the compressed disk: what a template names.
    pub digest: String,
    /// `sha256:<hex>` of the disk.
    pub raw_digest: String,
    /// UUID of the root file system.
    pub root_uuid: uuid::Uuid,
}

/// Makes the disk in `directory`, which must exist and must not be used by another call at the same time.
///
/// # Errors
/// See [`AssembleError`]; no manifest is left then.
pub fn assemble(recipe: &Recipe<'_>, directory: &Path) -> Result<Assembled, AssembleError> {
    if !recipe.root.join("boot/grub/grub.cfg").is_file() {
        return Err(AssembleError::NoMenu(recipe.root.to_owned()));
    }
    let scratch = Scratch::beside(&directory.join(STORED))?;
    let work = scratch.path();
    let var_mib = recipe.var.map_or(0, |(_, mib)| mib);
    let layout = Layout::new(recipe.sector, recipe.esp_mib, recipe.root_mib, var_mib);
    let root_uuid = recipe.seed.uuid("root file system");
    let grub = grub::prepare(recipe.grub, work, (recipe.root_fs, root_uuid), layout.for_bios())?;

    let mut disk = AtomicFile::create(&directory.join(RAW))?;
    let path = disk.temporary().to_owned();
    let io = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| AssembleError::Io { doing, path, source }
    };
    let file = disk.file().map_err(io("open", &path))?;
    file.set_len(layout.total).map_err(io("size", &path))?;

    make_root(recipe, &layout, root_uuid, &mut disk, work)?;
    let file = disk.file().map_err(io("open", &path))?;
    let esp = make_esp(recipe, &layout, &grub.efi, work)?;
    copy_to(file, &esp, layout.esp).map_err(io("copy", &esp))?;
    if let (Some(place), Some(bios)) = (layout.for_bios(), &grub.bios) {
        file.seek(SeekFrom::Start(place.start)).and_then(|_| file.write_all(&bios.core)).map_err(io("write", &path))?;
    }
    layout.write_table(&*file, &recipe.seed, partition_types::LINUX_ROOT_X64).map_err(AssembleError::Table)?;
    let mbr = layout.protective_mbr(grub.bios.map_or([0; 440], |bios| bios.boot_code));
    file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&mbr.to_bytes())).map_err(io("write", &path))?;

    let mut stored = AtomicFile::create(&directory.join(STORED))?;
    let out = stored.file().map_err(io("open", &path))?;
    let (raw, compressed) = compress(file, out, recipe.level).map_err(io("compress", &path))?;
    let assembled = Assembled {
        file: STORED.to_owned(),
        raw_bytes: raw.0,
        stored_bytes: compressed.0,
        digest: compressed.1,
        raw_digest: raw.1,
        root_uuid,
    };
    stored.commit()?;
    if recipe.keep_raw {
        disk.commit()?;
    }
    let hex = assembled.digest.trim_start_matches("sha256:");
    output::write_file(&directory.join(CHECKSUM), format!("{hex}  {STORED}\n").as_bytes())?;
    let mut manifest = serde_json::to_vec_pretty(&assembled).unwrap_or_default();
    manifest.push(b'\n');
    output::write_file(&directory.join(MANIFEST), &manifest)?;
    Ok(assembled)
}

fn make_root(
    recipe: &Recipe<'_>, layout: &Layout, uuid: uuid::Uuid, disk: &mut AtomicFile, work: &Path,
) -> Result<(), AssembleError> {
    let path = disk.temporary().to_owned();
    let hash_seed = recipe.seed.uuid("directory hash");
    let root = FileSystem { files: recipe.root, label: recipe.label, uuid, hash_seed, place: layout.root };
    match recipe.root_fs {
        RootFs::Ext4 => root.ext4(&path)?,
        kind => {
            let part = root.mounted(kind, work)?;
            let copied = disk.file().and_then(|file| copy_to(file, &part, layout.root));
            copied.map_err(|source| AssembleError::Io { doing: "copy", path: part, source })?;
        }
    }
    if let (Some((files, _)), Some(place)) = (recipe.var, layout.var) {
        let (uuid, hash_seed) = (recipe.seed.uuid("var file system"), recipe.seed.uuid("directory hash of var"));
        FileSystem { files, label: "var", uuid, hash_seed, place }.ext4(&path)?;
    }
    Ok(())
}

fn make_esp(recipe: &Recipe<'_>, layout: &Layout, efi: &Path, work: &Path) -> Result<PathBuf, AssembleError> {
    let esp = work.join("esp.img");
    let made = File::create(&esp).and_then(|file| file.set_len(layout.esp.bytes));
    made.map_err(|source| AssembleError::Io { doing: "make", path: esp.clone(), source })?;
    let image = esp.display().to_string();
    let serial = format!("{:08x}", recipe.seed.serial("esp"));
    // Firmware reads whole sectors of the disk, so FAT's are no smaller: 128 bytes, doubled this many times.
    let code = (layout.sector.bytes() / 128).trailing_zeros().to_string();
    let sectors = (layout.esp.bytes / layout.sector.bytes()).to_string();
    let geometry = ["-S", &code, "-T", &sectors, "-h", "16", "-s", "63"];
    let names = ["-N", &serial, "-v", "ESP", "::"];
    tools::run("mformat", ["-i", &image].into_iter().chain(geometry).chain(names))?;
    tools::run("mmd", ["-i", &image, "::EFI", "::EFI/BOOT"])?;
    tools::run("mcopy", ["-i", &image, &efi.display().to_string(), "::EFI/BOOT/BOOTX64.EFI"])?;
    Ok(esp)
}

fn copy_to(disk: &mut File, part: &Path, extent: Extent) -> io::Result<()> {
    disk.seek(SeekFrom::Start(extent.start))?;
    let copied = io::copy(&mut File::open(part)?, disk)?;
    if copied == extent.bytes { Ok(()) } else { Err(io::Error::other("the part is larger than its partition")) }
}

type Side = (u64, String);

fn compress(disk: &mut File, out: &mut File, level: i32) -> io::Result<(Side, Side)> {
    disk.seek(SeekFrom::Start(0))?;
    let mut encoder = zstd::Encoder::new(Hashing::new(out), level)?;
    encoder.include_checksum(true)?;
    let mut raw = Hashing::new(io::BufReader::with_capacity(1 << 20, disk));
    io::copy(&mut raw, &mut encoder)?;
    Ok((raw.finish(), encoder.finish()?.finish()))
}

#[cfg(test)]
mod tests;
