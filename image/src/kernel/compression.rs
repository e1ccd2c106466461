//! How a module's file is compressed: in a kernel package, as Debian 13, Fedora, SUSE and Arch have theirs, and in a boot image.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

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
