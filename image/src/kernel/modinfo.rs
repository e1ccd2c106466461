//! The `.modinfo` section: NUL-separated `key=value` strings (kernel: include/linux/module.h, MODULE_INFO).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ReadCache, ReadRef};

use super::compression::Compression;

/// A module's description cannot be read.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ModInfoError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Not an object file, or one without the section.
    #[error("{path} is not a kernel module")]
    Object {
        path: PathBuf,
        #[source]
        source: object::Error,
    },
    /// An object file without module information.
    #[error("{0} has no .modinfo section; it is not a kernel module")]
    NoModInfo(PathBuf),
}

/// `softdep` of one module: others to load before and after it, if they exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoftDep {
    /// Loaded first.
    pub pre: Vec<String>,
    /// Loaded afterwards.
    pub post: Vec<String>,
}

/// A module's description of itself. Names are canonical ([`canonical`]), aliases as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModInfo {
    /// `name`; empty if the module does not say (the file's name counts then).
    pub name: String,
    /// `alias` patterns, in the order of the file.
    pub aliases: Vec<String>,
    /// Modules without which this one does not load.
    pub depends: Vec<String>,
    /// All `softdep` lines merged.
    pub softdep: SoftDep,
    /// Firmware files it may ask for, relative to `/lib/firmware`.
    pub firmware: Vec<String>,
}

/// The kernel treats `-` and `_` in module names alike; this is the one spelling used inside.
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

impl ModInfo {
    fn take(&mut self, key: &str, value: &str) {
        match key {
            "name" => self.name = canonical(value),
            "alias" => self.aliases.push(value.to_owned()),
            "depends" => self.depends.extend(value.split(',').filter(|name| !name.is_empty()).map(canonical)),
            "firmware" => self.firmware.push(value.to_owned()),
            "softdep" => {
                let mut into_post = false;
                for word in value.split_whitespace() {
                    match word {
                        "pre:" => into_post = false,
                        "post:" => into_post = true,
                        // Not canonical: it may be an alias, and those keep their dashes.
                        name if into_post => self.softdep.post.push(name.to_owned()),
                        name => self.softdep.pre.push(name.to_owned()),
                    }
                }
            }
            _ => {}
        }
    }
}

fn entries(section: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    section
        .split(|&byte| byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
        .filter_map(|entry| entry.split_once('='))
}

/// Parses a module's own section. Entries other than `key=value` in UTF-8 are skipped, as depmod does.
pub fn parse(section: &[u8]) -> ModInfo {
    let mut info = ModInfo::default();
    for (key, value) in entries(section) {
        info.take(key, value);
    }
    info
}

/// Parses `modules.builtin.modinfo`, whose keys carry the module's name: `ext4.alias=fs-ext4`.
pub fn parse_builtin(file: &[u8]) -> BTreeMap<String, ModInfo> {
    let mut all = BTreeMap::<String, ModInfo>::new();
    for (key, value) in entries(file) {
        if let Some((module, key)) = key.split_once('.') {
            all.entry(canonical(module)).or_default().take(key, value);
        }
    }
    all
}

/// Reads a module's file: what it says, and the module's bytes. Of a plain file only the headers and the section are read, not
/// the code.
///
/// # Errors The file cannot be read or is not a kernel module.
pub(super) fn read(path: &Path, compression: Compression) -> Result<(ModInfo, u64), ModInfoError> {
    let io = |source| ModInfoError::Io { path: path.to_owned(), source };
    if compression == Compression::None {
        let file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        return Ok((section_of(path, &ReadCache::new(file))?, size));
    }
    let module = compression.read(path).map_err(io)?;
    Ok((section_of(path, module.as_slice())?, module.len() as u64))
}

fn section_of<'data>(path: &Path, module: impl ReadRef<'data>) -> Result<ModInfo, ModInfoError> {
    let bad = |source| ModInfoError::Object { path: path.to_owned(), source };
    let object = object::File::parse(module).map_err(bad)?;
    let section = object.section_by_name(".modinfo").ok_or_else(|| ModInfoError::NoModInfo(path.to_owned()))?;
    Ok(parse(section.data().map_err(bad)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_and_names_are_canonical() {
        let info = parse(
            b"license=GPL\0alias=pci:v00001AF4d*\0alias=virtio-foo\0depends=virtio-ring,virtio\0name=virtio-pci\0\
              softdep=pre: crypto-crc32c a_b post: c\0softdep=pre: d\0firmware=x/y.bin\0no equals sign\0\0",
        );
        assert_eq!(info.name, "virtio_pci");
        assert_eq!(info.aliases, ["pci:v00001AF4d*", "virtio-foo"]);
        assert_eq!(info.depends, ["virtio_ring", "virtio"]);
        assert_eq!(info.softdep.pre, ["crypto-crc32c", "a_b", "d"]);
        assert_eq!(info.softdep.post, ["c"]);
        assert_eq!(info.firmware, ["x/y.bin"]);
    }

    #[test]
    fn an_empty_depends_is_no_dependency() {
        assert_eq!(parse(b"depends=\0").depends, Vec::<String>::new());
    }

    #[test]
    fn builtin_entries_are_sorted_to_their_modules() {
        let all = parse_builtin(b"af-packet.alias=net-pf-17\0crc32c.alias=crypto-x\0af_packet.license=GPL\0");
        assert_eq!(all["af_packet"].aliases, ["net-pf-17"]);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn an_error_names_the_file_that_is_not_a_module() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fake.ko");
        std::fs::write(&path, "hello").unwrap();
        assert!(read(&path, Compression::None).unwrap_err().to_string().contains("fake.ko"));
    }
}
