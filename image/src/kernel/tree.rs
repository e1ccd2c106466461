//! An unpacked kernel package: the kernel, its version, its modules and what is built in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{
    fs,
    io::{self, Read as _},
};

use super::compression::Compression;
use super::modinfo::{self, ModInfoError, canonical};
use super::module::Module;

/// The directory is not an unpacked kernel package.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A required file cannot be read.
    #[error("cannot read {path}; is this an unpacked linux-image package?")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// No or several kernels.
    #[error("{root} contains {}; choose one with --kernel-version", if found.is_empty() { "no kernel's \
        modules".to_owned() }
        else { format!("the modules of several kernels ({})", found.join(", ")) })]
    Version { root: PathBuf, found: Vec<String> },
    /// A module cannot be read.
    #[error(transparent)]
    Module(#[from] ModInfoError),
}

/// A kernel and its modules, indexed by name and by exact alias.
#[derive(Debug)]
pub struct KernelTree {
    /// Such as `6.1.0-35-amd64`.
    pub version: String,
    /// The kernel image.
    pub vmlinuz: PathBuf,
    /// Modules by canonical name.
    pub modules: BTreeMap<String, Module>,
    /// Canonical names of what is compiled in.
    pub builtin: BTreeSet<String>,
    /// `modules.builtin` as the package has it.
    pub builtin_list: Vec<u8>,
    builtin_aliases: BTreeSet<String>,
    aliases: BTreeMap<String, Vec<String>>,
}

impl KernelTree {
    /// Reads the tree under `root`; `version` chooses when it holds several kernels.
    ///
    /// # Errors
    /// No or several kernels, unreadable modules.
    pub fn open(root: &Path, version: Option<&str>) -> Result<Self, TreeError> {
        let modules_root = ["lib/modules", "usr/lib/modules"]
            .map(|path| root.join(path))
            .into_iter()
            .find(|path| path.is_dir())
            .unwrap_or_else(|| root.join("lib/modules"));
        let mut found: Vec<String> = read_dir(&modules_root)?
            .into_iter()
            .filter(|entry| entry.join("kernel").is_dir())
            .filter_map(|entry| Some(entry.file_name()?.to_str()?.to_owned()))
            .collect();
        if let Some(version) = version {
            found.retain(|name| name == version);
        }
        let [version] =
            <[String; 1]>::try_from(found).map_err(|found| TreeError::Version { root: root.to_owned(), found })?;
        let base = modules_root.join(&version);
        let in_boot = root.join(format!("boot/vmlinuz-{version}"));
        // Where packages of Fedora, SUSE and Arch have it.
        let vmlinuz = Some(base.join("vmlinuz")).filter(|path| path.is_file()).unwrap_or(in_boot);
        fs::metadata(&vmlinuz).map_err(|source| TreeError::Io { path: vmlinuz.clone(), source })?;

        let builtin_list = read(&base.join("modules.builtin"))?;
        let mut builtin: BTreeSet<String> =
            String::from_utf8_lossy(&builtin_list).lines().map(|line| module_name(Path::new(line))).collect();
        let mut builtin_aliases = BTreeSet::new();
        for (name, info) in modinfo::parse_builtin(&read(&base.join("modules.builtin.modinfo"))?) {
            builtin.insert(name);
            builtin_aliases.extend(info.aliases);
        }

        let mut modules = BTreeMap::new();
        let mut aliases = BTreeMap::<String, Vec<String>>::new();
        for (path, source, compression) in module_files(&base)? {
            let (info, size) = modinfo::read(&source, compression)?;
            let name = if info.name.is_empty() { module_name(Path::new(&path)) } else { info.name.clone() };
            for alias in &info.aliases {
                aliases.entry(alias.clone()).or_default().push(name.clone());
            }
            modules.insert(name.clone(), Module { name, path, source, size, info });
        }
        Ok(Self { version, vmlinuz, modules, builtin, builtin_list, builtin_aliases, aliases })
    }

    /// The kernel as firmware and boot loaders start it: some packages have that of arm64 compressed.
    ///
    /// # Errors
    /// It cannot be read or decompressed.
    pub fn read_kernel(&self) -> Result<Vec<u8>, TreeError> {
        let stored = read(&self.vmlinuz)?;
        // RFC 1952, 2.3.1.
        if !stored.starts_with(&[0x1f, 0x8b]) {
            return Ok(stored);
        }
        let mut kernel = Vec::new();
        let unpacked = flate2::read::MultiGzDecoder::new(&stored[..]).read_to_end(&mut kernel);
        unpacked.map_err(|source| TreeError::Io { path: self.vmlinuz.clone(), source })?;
        Ok(kernel)
    }

    /// Whether `name` (of a module or an exact alias) is compiled into the kernel.
    pub fn is_builtin(&self, name: &str) -> bool {
        self.builtin.contains(&canonical(name)) || self.builtin_aliases.contains(name)
    }

    /// Modules that carry exactly this alias (no patterns), such as `crypto-crc32c`.
    pub fn with_alias(&self, alias: &str) -> &[String] {
        self.aliases.get(alias).map_or(&[], Vec::as_slice)
    }
}

fn module_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    canonical(name.strip_suffix(".ko").unwrap_or(&name))
}

fn read(path: &Path) -> Result<Vec<u8>, TreeError> {
    fs::read(path).map_err(|source| TreeError::Io { path: path.to_owned(), source })
}

fn read_dir(path: &Path) -> Result<Vec<PathBuf>, TreeError> {
    let error = |source| TreeError::Io { path: path.to_owned(), source };
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(error)? {
        entries.push(entry.map_err(error)?.path());
    }
    entries.sort();
    Ok(entries)
}

/// Every module's file below `base/kernel`, as (path below `base`, file, compression).
fn module_files(base: &Path) -> Result<Vec<(String, PathBuf, Compression)>, TreeError> {
    let mut files = Vec::new();
    let mut pending = vec![base.join("kernel")];
    while let Some(directory) = pending.pop() {
        for path in read_dir(&directory)? {
            let meta = fs::symlink_metadata(&path).map_err(|source| TreeError::Io { path: path.clone(), source })?;
            if meta.is_dir() {
                pending.push(path);
                continue;
            }
            let relative = path.strip_prefix(base).unwrap_or(&path);
            if let Some((relative, compression)) = Compression::of(relative) {
                files.push((relative.to_owned(), path, compression));
            }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::FakeTree, *};

    #[test]
    fn modules_builtins_and_aliases_are_found() {
        let fake = FakeTree::new("6.1.0-1-amd64")
            .module("kernel/fs/ext4/ext4.ko", "name=ext4\0depends=jbd2\0alias=fs-ext4\0")
            .module("kernel/fs/jbd2/jbd2.ko", "name=jbd2\0")
            .builtin("kernel/net/packet/af_packet.ko", "alias=net-pf-17");
        let tree = KernelTree::open(fake.path(), None).unwrap();
        assert_eq!(tree.version, "6.1.0-1-amd64");
        assert_eq!(tree.modules.keys().collect::<Vec<_>>(), ["ext4", "jbd2"]);
        assert_eq!(tree.modules["ext4"].path, "kernel/fs/ext4/ext4.ko");
        assert!(tree.is_builtin("af-packet") && tree.is_builtin("net-pf-17") && !tree.is_builtin("ext4"));
        assert_eq!(tree.with_alias("fs-ext4"), ["ext4"]);
    }

    #[test]
    fn a_tree_needs_exactly_one_kernel() {
        let fake = FakeTree::new("6.1.0-1-amd64").module("kernel/a.ko", "name=a\0");
        fs::create_dir_all(fake.path().join("lib/modules/6.1.0-2-amd64/kernel")).unwrap();
        let error = KernelTree::open(fake.path(), None).unwrap_err().to_string();
        assert!(error.contains("6.1.0-1-amd64, 6.1.0-2-amd64"), "{error}");
        assert!(KernelTree::open(fake.path(), Some("6.1.0-1-amd64")).is_ok());
        assert!(KernelTree::open(fake.path(), Some("7")).unwrap_err().to_string().contains("no kernel"));
    }

    #[test]
    fn compressed_modules_are_read_like_plain_ones() {
        let fake = FakeTree::new("6.12").module("kernel/a.ko", "name=a\0depends=b\0").module("kernel/b.ko", "name=b\0");
        let plain = KernelTree::open(fake.path(), None).unwrap();
        let kernel = fake.path().join("lib/modules/6.12/kernel");
        let a = fs::read(kernel.join("a.ko")).unwrap();
        let packed: [(&str, Vec<u8>); 3] = [
            (
                "gz",
                io::Read::bytes(flate2::read::GzEncoder::new(&a[..], flate2::Compression::fast()))
                    .map(Result::unwrap)
                    .collect(),
            ),
            ("xz", io::Read::bytes(liblzma::read::XzEncoder::new(&a[..], 0)).map(Result::unwrap).collect()),
            ("zst", zstd::encode_all(&a[..], 1).unwrap()),
        ];
        fs::remove_file(kernel.join("a.ko")).unwrap();
        for (end, stored) in packed {
            let file = kernel.join(format!("a.ko.{end}"));
            fs::write(&file, &stored).unwrap();
            let tree = KernelTree::open(fake.path(), None).unwrap();
            let (module, expected) = (&tree.modules["a"], &plain.modules["a"]);
            assert_eq!(
                (&module.path, module.size, &module.info),
                (&expected.path, expected.size, &expected.info),
                "{end}"
            );
            assert_eq!(module.read().unwrap(), a, "{end}");
            fs::write(&file, &stored[..stored.len() / 2]).unwrap();
            let error = KernelTree::open(fake.path(), None).unwrap_err().to_string();
            assert!(error.contains(&format!("a.ko.{end}")), "{error}");
            fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn the_kernel_may_stand_beside_its_modules() {
        let fake = FakeTree::new("6.12").module("kernel/a.ko", "name=a\0");
        let beside = fake.path().join("lib/modules/6.12/vmlinuz");
        fs::rename(fake.path().join("boot/vmlinuz-6.12"), &beside).unwrap();
        let tree = KernelTree::open(fake.path(), None).unwrap();
        assert_eq!((&tree.vmlinuz, tree.read_kernel().unwrap()), (&beside, b"kernel".to_vec()));
        let mut packed = Vec::new();
        flate2::read::GzEncoder::new(&b"unpacked"[..], flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
        fs::write(&beside, &packed).unwrap();
        assert_eq!(tree.read_kernel().unwrap(), b"unpacked");
        fs::write(&beside, &packed[..packed.len() / 2]).unwrap();
        assert!(tree.read_kernel().unwrap_err().to_string().contains("lib/modules/6.12/vmlinuz"));
        fs::remove_file(&beside).unwrap();
        let error = KernelTree::open(fake.path(), None).unwrap_err().to_string();
        assert!(error.contains("boot/vmlinuz-6.12"), "{error}");
    }
}
