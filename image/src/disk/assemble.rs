//! Assembles the parts, compresses the disk and writes its manifest.

use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use gpt::{GptError, mbr::ProtectiveMBR, partition_types};
use serde::Serialize;

use super::{
    grub::{self, GrubError},
    layout::{Extent, Layout, SECTOR},
    seed::Seed,
    tools::{self, ToolError},
};
use crate::{
    digest::Hashing,
    output::{self, AtomicFile, OutputError},
};

/// Name of the compressed disk.
pub const STORED: &str = "disk.img.zst";
/// Name of its checksum, in sha256sum's format.
pub const CHECKSUM: &str = "disk.img.zst.sha256";
/// Name of the manifest; it is written last, so if it exists, the other files are complete.
pub const MANIFEST: &str = "disk.json";
/// Name of the plain disk, if it is kept.
pub const RAW: &str = "disk.img";

/// The disk cannot be assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// mke2fs or mtools failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
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
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Error of the system.
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
    /// MiB of the root file system.
    pub root_mib: u32,
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
    let scratch = Scratch::new(directory)?;
    let work = scratch.0.as_path();
    let layout = Layout::new(recipe.esp_mib, recipe.root_mib);
    let root_uuid = recipe.seed.uuid("root file system");
    let grub = grub::prepare(recipe.grub, work, root_uuid, layout.bios.first_lba(), layout.bios.bytes)?;

    let mut disk = AtomicFile::create(&directory.join(RAW))?;
    let path = disk.temporary().to_owned();
    let io = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| AssembleError::Io { doing, path, source }
    };
    let file = disk.file().map_err(io("open", &path))?;
    file.set_len(layout.total).map_err(io("size", &path))?;

    // mke2fs writes in place, at the partition's offset, and leaves the holes of a sparse file alone.
    make_root(recipe, &layout, root_uuid, &path)?;
    let esp = make_esp(recipe, &layout, &grub.efi, work)?;
    copy_to(file, &esp, layout.esp).map_err(io("copy", &esp))?;
    file.seek(SeekFrom::Start(layout.bios.start))
        .and_then(|_| file.write_all(&grub.core))
        .map_err(io("write", &path))?;
    layout.write_table(&*file, &recipe.seed, partition_types::LINUX_ROOT_X64).map_err(AssembleError::Table)?;
    let mut mbr = ProtectiveMBR::with_lb_size(u32::try_from(layout.total / SECTOR - 1).unwrap_or(u32::MAX));
    mbr.set_bootcode(grub.boot_code);
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

fn make_root(recipe: &Recipe<'_>, layout: &Layout, uuid: uuid::Uuid, disk: &Path) -> Result<(), AssembleError> {
    let hash_seed = recipe.seed.uuid("directory hash");
    // Without metadata_csum_seed and orphan_file: GRUB 2.06 must read it.
    let options = format!(
        "offset={},hash_seed={hash_seed},lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0",
        layout.root.start
    );
    let root = recipe.root.as_os_str();
    let args: Vec<std::ffi::OsString> = vec![
        "-q".into(),
        "-F".into(),
        "-t".into(),
        "ext4".into(),
        "-m".into(),
        "1".into(),
        "-b".into(),
        "4096".into(),
        "-L".into(),
        recipe.label.into(),
        "-U".into(),
        uuid.to_string().into(),
        "-E".into(),
        options.into(),
        "-d".into(),
        root.into(),
        disk.into(),
        format!("{}k", layout.root.bytes / 1024).into(),
    ];
    tools::run("mke2fs", args)?;
    Ok(())
}

fn make_esp(recipe: &Recipe<'_>, layout: &Layout, efi: &Path, work: &Path) -> Result<PathBuf, AssembleError> {
    let esp = work.join("esp.img");
    let made = File::create(&esp).and_then(|file| file.set_len(layout.esp.bytes));
    made.map_err(|source| AssembleError::Io { doing: "make", path: esp.clone(), source })?;
    let image = esp.display().to_string();
    let serial = format!("{:08x}", recipe.seed.serial("esp"));
    let sectors = (layout.esp.bytes / SECTOR).to_string();
    tools::run("mformat", ["-i", &image, "-T", &sectors, "-h", "16", "-s", "63", "-N", &serial, "-v", "ESP", "::"])?;
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

/// A directory for intermediate files that goes away with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Self, AssembleError> {
        let path = parent.join(format!(".work.{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|source| AssembleError::Io { doing: "make", path: path.clone(), source })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-over intermediate files do no harm, and a destructor cannot return an error.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::inspect::{Report, inspect};

    fn tools_are_there() -> bool {
        let there = Path::new("/usr/lib/grub/i386-pc/boot.img").exists()
            && Path::new("/usr/lib/grub/x86_64-efi").exists()
            && ["mke2fs", "mformat", "grub-mkimage"]
                .iter()
                .all(|tool| tools::run(tool, ["--version"]).is_ok() || tools::run(tool, ["-V"]).is_ok());
        if !there {
            eprintln!("GRUB, mtools or e2fsprogs is missing; not assembled");
        }
        there
    }

    fn root(dir: &Path) -> PathBuf {
        let root = dir.join("root");
        fs::create_dir_all(root.join("boot/grub")).unwrap();
        fs::write(root.join("boot/grub/grub.cfg"), "echo hello\n").unwrap();
        // mke2fs copies access times, and reading for the first disk would change them for the second. The kernel does
        // not change one in the future (mount option relatime).
        let future = fs::FileTimes::new().set_accessed(SystemTime::now() + Duration::from_secs(3600));
        for path in ["", "boot", "boot/grub", "boot/grub/grub.cfg"] {
            fs::File::open(root.join(path)).unwrap().set_times(future).unwrap();
        }
        root
    }

    #[test]
    fn the_same_recipe_gives_the_same_disk() {
        if !tools_are_there() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = root(dir.path());
        let make = |name: &str| {
            let out = dir.path().join(name);
            fs::create_dir(&out).unwrap();
            let recipe = Recipe {
                root: &root,
                label: "mini",
                seed: Seed::new("test"),
                root_mib: 16,
                esp_mib: 8,
                grub: Path::new("/usr/lib/grub"),
                level: 3,
                keep_raw: true,
            };
            (assemble(&recipe, &out).unwrap(), out)
        };
        let ((one, out), (two, _)) = (make("one"), make("two"));
        assert_eq!(one, two);
        let mut names: Vec<_> =
            fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, [RAW, STORED, CHECKSUM, MANIFEST]);

        let disk = fs::read(out.join(RAW)).unwrap();
        assert_eq!(disk.len() as u64, one.raw_bytes);
        assert_eq!(disk[510..512], [0x55, 0xaa]);
        assert_eq!(disk[446 + 4], 0xee);
        assert_eq!(disk[0x5c..0x64], 2048u64.to_le_bytes());
        assert!(disk[(1 << 20) - 4096..1 << 20].iter().all(|byte| *byte == 0), "the receipt's place is taken");
        assert_eq!(disk[(1 << 20) + 500..(1 << 20) + 508], 2049u64.to_le_bytes());
        let root_at = (2 + 8) << 20;
        assert_eq!(disk[root_at + 0x438..root_at + 0x43a], [0x53, 0xef], "no ext4 where the root must be");
        let Report::Disk { sizes, partitions, .. } = inspect(&out.join(STORED)).unwrap() else { panic!("no disk") };
        assert_eq!((sizes.digest, sizes.raw_digest), (one.digest, one.raw_digest));
        assert_eq!(partitions.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["bios", "esp", "root"]);
    }

    #[test]
    fn a_root_without_a_boot_menu_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = Recipe {
            root: dir.path(),
            label: "x",
            seed: Seed::new("x"),
            root_mib: 8,
            esp_mib: 8,
            grub: dir.path(),
            level: 1,
            keep_raw: false,
        };
        assert!(matches!(assemble(&recipe, dir.path()), Err(AssembleError::NoMenu(_))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
