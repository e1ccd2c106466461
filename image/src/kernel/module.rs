//! One module of a kernel package.

use std::path::PathBuf;
use std::{fs, io};

use super::compression::Compression;
use super::modinfo::ModInfo;

/// One loadable module.
#[derive(Debug, Clone)]
pub struct Module {
    /// Canonical name.
    pub name: String,
    /// Path below `lib/modules/<version>` without the end of a compression, such as `kernel/fs/ext4/ext4.ko`.
    pub path: String,
    /// The file on this machine.
    pub source: PathBuf,
    /// Bytes of the module, decompressed.
    pub size: u64,
    /// What it says about itself.
    pub info: ModInfo,
}

impl Module {
    /// The module as the kernel takes it, whatever its file is compressed with.
    ///
    /// # Errors
    /// The file cannot be read or decompressed.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match Compression::of(&self.source) {
            Some((_, compression)) => compression.read(&self.source),
            None => fs::read(&self.source),
        }
    }
}
