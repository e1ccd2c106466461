//! The boot image: one static program as `/init`, the modules of a profile, and the few directories it mounts on. Or the program
//! alone, for an initramfs that has the rest.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::MISSING_MODULES;
use serde::Serialize;

use crate::arch::Arch;
use crate::cpio::{Archive, Content, CpioError};
use crate::digest::Hashing;
use crate::kernel::{KernelTree, ResolveError, Stored, TreeError, index, resolve};
use crate::output::{AtomicFile, OutputError};

/// zstd's level for boot images: they are packed once and fetched over slow networks many times.
pub const DEFAULT_LEVEL: i32 = 19;

/// Directories the init mounts on or writes to, with their modes.
const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
];

/// Devices that are needed before devtmpfs is mounted: path, mode, major, minor (Documentation/admin-guide/devices.txt).
/// The kernel opens the console for init's standard streams; where there is none, the standard library of a Rust program
/// opens `/dev/null` in their place before `main`, and aborts the program if it cannot.
const DEVICES: &[(&str, u32, u32, u32)] = &[("dev/console", 0o600, 5, 1), ("dev/null", 0o666, 1, 3)];

/// Where the agent looks for a rescue shell (`agent/src/pid1/rescue.rs`).
const RESCUE_SHELL: &str = "rescue/busybox";

/// The boot image cannot be packed.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The requested modules are not available.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The archive cannot be made.
    #[error(transparent)]
    Cpio(#[from] CpioError),
    /// The result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The init program or the rescue shell is missing.
    #[error("cannot read the program {path}")]
    Init {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The program is dynamically linked: the boot image has no loader, so the kernel could not start it.
    #[error("{0} needs a dynamic loader, which the boot image does not have; link it statically (crt-static)")]
    Dynamic(PathBuf),
    /// The kernel could not start it.
    #[error("the program {path} is for {init}, and the rest is for {kernel}; give the one for {kernel}")]
    Processor { path: PathBuf, init: Arch, kernel: Arch },
    /// The kernel is unreadable.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A module is unreadable.
    #[error("cannot read the module {path}")]
    Module {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The compressor or the output failed.
    #[error("cannot compress the archive")]
    Compress(#[source] io::Error),
}

/// An additional file.
#[derive(Debug, Clone)]
pub struct ExtraFile {
    /// On this machine.
    pub source: PathBuf,
    /// In the boot image, without a leading slash.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
}

/// What goes into a boot image.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// Where the modules come from; `None` packs the init and the additional files alone.
    pub tree: Option<&'a KernelTree>,
    /// The program, mode 0755.
    pub init: &'a Path,
    /// Where it is in the boot image, without a leading slash.
    pub init_path: &'a str,
    /// Module names; what they need is added.
    pub modules: &'a BTreeSet<String>,
    /// How the modules are stored inside.
    pub stored: Stored,
    /// More files.
    pub files: &'a [ExtraFile],
    /// A static busybox that gives a person at the machine a shell; `None`: nothing does.
    pub rescue_shell: Option<&'a Path>,
    /// A `/lib/firmware` to take the files from that the modules name; `None` packs no firmware.
    pub firmware: Option<&'a Path>,
    /// zstd's level, 1 to 22; `None` leaves the archive as it is.
    pub level: Option<i32>,
}

/// What was packed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Packed {
    /// The kernel's version; empty without one.
    pub kernel: String,
    /// Bytes of the boot image, compressed if it is.
    pub stored_bytes: u64,
    /// Bytes of the archive inside.
    pub raw_bytes: u64,
    /// `sha256:<hex>` of the file.
    pub digest: String,
    /// Bytes of the init.
    pub init_bytes: u64,
    /// Bytes of all modules, decompressed.
    pub module_bytes: u64,
    /// Canonical names of the modules packed.
    pub modules: BTreeSet<String>,
    /// Firmware files packed, and those the modules name that the directory lacks.
    pub firmware: BTreeSet<String>,
    /// See `firmware`; empty when none was asked for.
    pub firmware_missing: BTreeSet<String>,
}

/// Packs `recipe` into `output`. The same input gives the same bytes.
///
/// # Errors
/// See [`PackError`]; `output` is untouched then.
pub fn pack(recipe: &Recipe<'_>, output: &Path) -> Result<Packed, PackError> {
    let init = fs::read(recipe.init).map_err(|source| PackError::Init { path: recipe.init.to_owned(), source })?;
    if is_dynamic(&init) {
        return Err(PackError::Dynamic(recipe.init.to_owned()));
    }
    let read_shell = |path: &Path| fs::read(path).map_err(|source| PackError::Init { path: path.to_owned(), source });
    let shell = recipe.rescue_shell.map(read_shell).transpose()?;
    if let (Some(path), Some(shell)) = (recipe.rescue_shell, &shell) {
        if is_dynamic(shell) {
            return Err(PackError::Dynamic(path.to_owned()));
        }
        same_processor(path, Arch::of_elf(shell), Arch::of_elf(&init))?;
    }
    let (mut archive, mut packed) = (Archive::new(), Packed { init_bytes: init.len() as u64, ..Packed::default() });
    if let Some(tree) = recipe.tree {
        add_kernels(&mut archive, &mut packed, (tree, recipe), Arch::of_elf(&init))?;
    }
    archive.file(recipe.init_path, 0o755, Content::Bytes(init))?;
    if let Some(shell) = shell {
        archive.file(RESCUE_SHELL, 0o755, Content::Bytes(shell))?;
    }
    for extra in recipe.files {
        archive.file(&extra.path, extra.mode, Content::Path(extra.source.clone()))?;
    }
    (packed.stored_bytes, packed.raw_bytes, packed.digest) = write(&archive, recipe.level, output)?;
    Ok(packed)
}

/// Refuses a program for another processor than the rest; what is no program fits each.
fn same_processor(path: &Path, program: Option<Arch>, rest: Option<Arch>) -> Result<(), PackError> {
    match (program, rest) {
        (Some(init), Some(kernel)) if init != kernel => {
            Err(PackError::Processor { path: path.to_owned(), init, kernel })
        }
        _ => Ok(()),
    }
}

/// Adds what the kernel needs to start an init: the modules, their firmware, and the directories and devices.
fn add_kernels(
    archive: &mut Archive, packed: &mut Packed, (tree, recipe): (&KernelTree, &Recipe<'_>), init: Option<Arch>,
) -> Result<(), PackError> {
    let is_for = |found: Option<Arch>| same_processor(recipe.init, init, found);
    // A kernel for x86 need not be an EFI program; its modules tell.
    is_for(Arch::of_program(&tree.read_kernel()?))?;
    for (path, mode) in DIRECTORIES {
        archive.directory(path, *mode)?;
    }
    for (path, mode, major, minor) in DEVICES {
        archive.char_device(path, *mode, *major, *minor)?;
    }
    let wanted: Vec<&String> = recipe.modules.iter().collect();
    let modules = resolve(tree, &wanted)?.modules;
    let base = format!("lib/modules/{}", tree.version);
    for module in modules.iter().filter_map(|name| tree.modules.get(name)) {
        packed.module_bytes += module.size;
        let plain = module.read().map_err(|source| PackError::Module { path: module.source.clone(), source })?;
        is_for(Arch::of_elf(&plain))?;
        let level = recipe.level.unwrap_or(DEFAULT_LEVEL);
        let file = recipe.stored.file(plain, level).map_err(PackError::Compress)?;
        archive.file(&format!("{base}/{}{}", module.path, recipe.stored.suffix()), 0o644, Content::Bytes(file))?;
    }
    let index = index::generate(tree, &modules, recipe.stored);
    for (name, text) in [
        ("modules.dep", index.dep.into_bytes()),
        ("modules.alias", index.alias.into_bytes()),
        ("modules.softdep", index.softdep.into_bytes()),
        ("modules.builtin", tree.builtin_list.clone()),
    ] {
        archive.file(&format!("{base}/{name}"), 0o644, Content::Bytes(text))?;
    }
    // Compressed however the modules are: only the agent reads it, for a device without a driver.
    let missing = index::missing(tree, &modules).into_bytes();
    let missing = Stored::Zstd.file(missing, recipe.level.unwrap_or(DEFAULT_LEVEL));
    archive.file(&format!("{base}/{MISSING_MODULES}"), 0o644, Content::Bytes(missing.map_err(PackError::Compress)?))?;
    let firmware = modules.iter().filter_map(|name| tree.modules.get(name)).flat_map(|module| &module.info.firmware);
    for file in firmware {
        let Some(directory) = recipe.firmware else { break };
        let source = directory.join(file);
        if source.is_file() {
            archive.file(&format!("lib/firmware/{file}"), 0o644, Content::Path(source))?;
            packed.firmware.insert(file.clone());
        } else {
            packed.firmware_missing.insert(file.clone());
        }
    }
    (packed.kernel, packed.modules) = (tree.version.clone(), modules);
    Ok(())
}

/// Stored bytes, raw bytes, digest of the stored bytes.
fn write(archive: &Archive, level: Option<i32>, output: &Path) -> Result<(u64, u64, String), PackError> {
    let mut file = AtomicFile::create(output)?;
    let hashing = Hashing::new(io::BufWriter::new(file.file().map_err(PackError::Compress)?));
    let Some(level) = level else {
        let mut hashing = archive.write_to(hashing)?;
        hashing.flush().map_err(PackError::Compress)?;
        let (bytes, digest) = hashing.finish();
        file.commit()?;
        return Ok((bytes, bytes, digest));
    };
    let mut encoder = zstd::Encoder::new(hashing, level).map_err(PackError::Compress)?;
    encoder.include_checksum(true).map_err(PackError::Compress)?;
    let counted = archive.write_to(Hashing::new(&mut encoder))?;
    let (raw_bytes, _) = counted.finish();
    let mut hashing = encoder.finish().map_err(PackError::Compress)?;
    hashing.flush().map_err(PackError::Compress)?;
    let (stored_bytes, digest) = hashing.finish();
    file.commit()?;
    Ok((stored_bytes, raw_bytes, digest))
}

/// Whether an ELF file names an interpreter (PT_INTERP). Scripts are not ELF and are let through: their interpreter
/// may be among the additional files.
fn is_dynamic(bytes: &[u8]) -> bool {
    use object::read::elf::{FileHeader, ProgramHeader};
    let Ok(header) = object::elf::FileHeader64::<object::Endianness>::parse(bytes) else { return false };
    let Ok(endian) = header.endian() else { return false };
    header
        .program_headers(endian, bytes)
        .is_ok_and(|segments| segments.iter().any(|segment| segment.p_type(endian) == object::elf::PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cpio, kernel::testing::FakeTree};

    fn fixture() -> (FakeTree, KernelTree) {
        let fake = FakeTree::new("6.1")
            .module("kernel/a.ko", "name=a\0depends=b\0firmware=have.bin\0firmware=lack.bin\0")
            .module("kernel/b.ko", "name=b\0")
            .module("kernel/c.ko", "name=c\0");
        fs::write(fake.path().join("init"), "#!/bin/sh\n").unwrap();
        fs::write(fake.path().join("have.bin"), "fw").unwrap();
        let tree = KernelTree::open(fake.path(), None).unwrap();
        (fake, tree)
    }

    #[test]
    fn the_same_input_gives_the_same_minimal_image() {
        let (fake, tree) = fixture();
        let (init, modules) = (fake.path().join("init"), BTreeSet::from(["a".to_owned()]));
        let recipe = Recipe {
            tree: Some(&tree),
            init: &init,
            init_path: "init",
            modules: &modules,
            stored: Stored::Zstd,
            files: &[],
            rescue_shell: Some(&init),
            firmware: Some(fake.path()),
            level: Some(DEFAULT_LEVEL),
        };
        let (one, two) = (fake.path().join("one"), fake.path().join("two"));
        let packed = pack(&recipe, &one).unwrap();
        // Another modification time must not change the result.
        fs::File::options().append(true).open(&init).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(pack(&recipe, &two).unwrap(), packed);
        assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
        assert_eq!(packed.modules.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(packed.stored_bytes, fs::metadata(&one).unwrap().len());
        assert!(packed.firmware.contains("have.bin") && packed.firmware_missing.contains("lack.bin"));

        let raw = zstd::decode_all(&fs::read(&one).unwrap()[..]).unwrap();
        assert_eq!(raw.len() as u64, packed.raw_bytes);
        let members = cpio::list(&raw[..], &[]).unwrap();
        let paths: Vec<_> = members.iter().map(|m| m.path.as_str()).collect();
        for path in [
            "dev/console", "init", "rescue/busybox", "proc", "lib/modules/6.1/kernel/b.ko.zst",
            "lib/modules/6.1/modules.dep",
        ] {
            assert!(paths.contains(&path), "{path} is missing");
        }
        assert!(!paths.iter().any(|path| path.contains("/c.ko")));
        let sizes = |name: &str| members.iter().find(|m| m.path.ends_with(name)).map(|m| m.size);
        let a = fs::read(&tree.modules["a"].source).unwrap();
        assert_eq!(packed.module_bytes, (a.len() as u64) + tree.modules["b"].size);
        assert_eq!(sizes("a.ko.zst"), Some(zstd::bulk::compress(&a, DEFAULT_LEVEL).unwrap().len() as u64));

        pack(&Recipe { stored: Stored::Plain, ..recipe }, &two).unwrap();
        let raw = zstd::decode_all(&fs::read(&two).unwrap()[..]).unwrap();
        let plain = cpio::list(&raw[..], &[]).unwrap();
        assert!(plain.iter().any(|m| m.path.ends_with("a.ko") && m.size == a.len() as u64));
        let devices: Vec<_> = members.iter().filter_map(|m| Some((m.path.as_str(), m.mode, m.device?))).collect();
        assert_eq!(devices, [("dev/console", 0o600, (5, 1)), ("dev/null", 0o666, (1, 3))]);
    }

    #[test]
    fn an_agent_alone_is_for_another_initramfs() {
        let (fake, _) = fixture();
        let recipe = Recipe {
            tree: None,
            init: &fake.path().join("init"),
            init_path: "usr/bin/landfall-agent",
            modules: &BTreeSet::new(),
            stored: Stored::Zstd,
            files: &[],
            rescue_shell: None,
            firmware: None,
            level: None,
        };
        let out = fake.path().join("out");
        let packed = pack(&recipe, &out).unwrap();
        let stored = fs::read(&out).unwrap();
        assert_eq!((packed.stored_bytes, packed.raw_bytes), (stored.len() as u64, stored.len() as u64));
        let members = cpio::list(&stored[..], &[]).unwrap();
        let paths: Vec<_> = members.iter().map(|m| (m.path.as_str(), m.mode)).collect();
        assert_eq!(paths, [("usr", 0o755), ("usr/bin", 0o755), ("usr/bin/landfall-agent", 0o755)]);
        // The kernel finds an archive behind it at a multiple of four alone.
        assert_eq!(stored.len() % 4, 0);
    }

    #[test]
    fn an_init_that_the_kernel_cannot_start_is_refused() {
        let (fake, tree) = fixture();
        let mut elf = vec![0u8; 64 + 56];
        elf[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        elf[32] = 64;
        elf[52..58].copy_from_slice(&[64, 0, 56, 0, 1, 0]);
        elf[64] = 3;
        let init = fake.path().join("dynamic");
        fs::write(&init, &elf).unwrap();
        let modules = BTreeSet::new();
        let recipe = Recipe {
            tree: Some(&tree),
            init: &init,
            init_path: "init",
            modules: &modules,
            stored: Stored::Plain,
            files: &[],
            rescue_shell: None,
            firmware: None,
            level: Some(1),
        };
        let out = fake.path().join("out");
        assert!(matches!(pack(&recipe, &out), Err(PackError::Dynamic(_))));
        let script = fake.path().join("init");
        let as_shell = Recipe { init: &script, rescue_shell: Some(&init), ..recipe };
        assert!(matches!(pack(&as_shell, &out), Err(PackError::Dynamic(path)) if path == init));
        // Static, and for arm64, where the modules are for x86-64.
        (elf[64], elf[18]) = (1, 183);
        fs::write(&init, &elf).unwrap();
        let modules = BTreeSet::from(["a".to_owned()]);
        let said = pack(&Recipe { modules: &modules, ..recipe }, &out).unwrap_err().to_string();
        assert!(said.contains("is for arm64") && said.ends_with("give the one for x86-64"), "{said}");
        assert!(!fake.path().join("out").exists());
    }
}
