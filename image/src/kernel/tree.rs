//! An unpacked kernel package: the kernel, its version, its modules and what is built in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::modinfo::{self, ModInfo, ModInfoError, canonical};

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
    /// A compressed module, which this packer does not support.
    #[error("{0} is compressed; decompress the package's modules (xz -d, zstd -d) before packing")]
    Compressed(PathBuf),
    /// A module cannot be read.
    #[error(transparent)]
    Module(#[from] ModInfoError),
}

/// One loadable module.
#[derive(Debug, Clone)]
pub struct Module {
    /// Canonical name.
    pub name: String,
    /// Path below `lib/modules/<version>`, such as `kernel/fs/ext4/ext4.ko`.
    pub path: String,
    /// The file on this machine.
    pub source: PathBuf,
    /// Bytes of the file.
    pub size: u64,
    /// What it says about itself.
    pub info: ModInfo,
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
    /// No or several kernels, unreadable or compressed modules.
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
        let vmlinuz = root.join(format!("boot/vmlinuz-{version}"));
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
        for (path, source, size) in module_files(&base)? {
            let info = modinfo::read(&source)?;
            let name = if info.name.is_empty() { module_name(&source) } else { info.name.clone() };
            for alias in &info.aliases {
                aliases.entry(alias.clone()).or_default().push(name.clone());
            }
            modules.insert(name.clone(), Module { name, path, source, size, info });
        }
        Ok(Self { version, vmlinuz, modules, builtin, builtin_list, builtin_aliases, aliases })
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

/// Every `.ko` below `base/kernel` (and Debian's `updates`), as (path below `base`, file, size).
fn module_files(base: &Path) -> Result<Vec<(String, PathBuf, u64)>, TreeError> {
    let mut files = Vec::new();
    let mut pending = vec![base.join("kernel")];
    while let Some(directory) = pending.pop() {
        for path in read_dir(&directory)? {
            let meta = fs::symlink_metadata(&path).map_err(|source| TreeError::Io { path: path.clone(), source })?;
            if meta.is_dir() {
                pending.push(path);
                continue;
            }
            let name = path.to_string_lossy();
            if [".ko.xz", ".ko.zst", ".ko.gz"].iter().any(|end| name.ends_with(end)) {
                return Err(TreeError::Compressed(path));
            }
            if name.ends_with(".ko") {
                let relative = path.strip_prefix(base).unwrap_or(&path).to_string_lossy().into_owned();
                files.push((relative, path, meta.len()));
            }
        }
    }
    files.sort();
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
    fn compressed_modules_are_refused_with_advice() {
        let fake = FakeTree::new("6.12").module("kernel/a.ko", "name=a\0");
        fs::write(fake.path().join("lib/modules/6.12/kernel/b.ko.xz"), "x").unwrap();
        assert!(matches!(KernelTree::open(fake.path(), None), Err(TreeError::Compressed(_))));
    }
}
