//! One module's file: plain, or compressed as Debian 13, Fedora, SUSE and Arch have theirs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

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

/// What a module's file is compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    /// The name of a module's file without the end that stands for the compression, and the compression; `None` if it is not a
    /// module's file.
    pub(super) fn of(path: &Path) -> Option<(&str, Self)> {
        let path = path.to_str()?;
        let ends = [("", Self::None), (".gz", Self::Gzip), (".xz", Self::Xz), (".zst", Self::Zstd)];
        ends.into_iter().find_map(|(end, compression)| {
            Some((path.strip_suffix(end)?, compression)).filter(|(p, _)| p.ends_with(".ko"))
        })
    }

    pub(super) fn read(self, path: &Path) -> io::Result<Vec<u8>> {
        let stored = File::open(path)?;
        let mut plain = Vec::new();
        match self {
            Self::None => (&stored).read_to_end(&mut plain)?,
            Self::Gzip => flate2::read::MultiGzDecoder::new(stored).read_to_end(&mut plain)?,
            Self::Xz => liblzma::read::XzDecoder::new(stored).read_to_end(&mut plain)?,
            Self::Zstd => zstd::Decoder::new(stored)?.read_to_end(&mut plain)?,
        };
        Ok(plain)
    }
}

/// How a boot image stores its modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// As the kernel takes them, for an init that cannot decompress them.
    Plain,
    /// Each compressed by itself. The agent decompresses those that it loads, and the rest, usually most of them, take a fifth
    /// of the memory.
    Zstd,
}

impl Stored {
    /// What is appended to a module's path.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Zstd => ".zst",
        }
    }

    /// A module's file with this content; `level` is zstd's.
    ///
    /// # Errors
    /// The compressor fails.
    pub fn file(self, module: Vec<u8>, level: i32) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(module),
            Self::Zstd => zstd::bulk::compress(&module, level),
        }
    }
}
