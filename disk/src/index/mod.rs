//! Indexes: which bytes of a stored image make which bytes of the disk, and the digest of each piece, so that a piece can
//! be fetched, proven and placed alone.
//!
//! Two kinds are read, distinguished by content: our own manifest of a packed image ([`Index::to_json`] writes it) and
//! bmap-tools' block maps. Both are small files that a digest proves before they are parsed; the parsers still take
//! nothing on trust: what they return satisfies [`Index`]'s promises, and what they allocate is bounded by
//! [`MAX_INDEX_BYTES`] and [`MAX_CHUNKS`].

mod bmap;
mod check;
mod manifest;
mod seekable;

use std::ops::Range;

use landfall_api::Digest;

pub use seekable::{Frame, SeekTable, SeekTableError};

/// The largest index there may be, bytes. An image of 400 GiB without a single zero chunk of 1 MiB has one of this size.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;
/// The most chunks an index may name, runs of zero chunks counted as one.
pub const MAX_CHUNKS: usize = 1 << 20;
/// The smallest chunk of a packed image, raw bytes.
pub const MIN_CHUNK_BYTES: u64 = 4096;
/// The largest chunk of a packed image, raw bytes: several are in memory at a time.
pub const MAX_CHUNK_BYTES: u64 = 16 << 20;
/// Where chunks begin and end: at multiples of it, the end of the image apart.
const ALIGNMENT: u64 = 4096;

/// What an image consists of.
///
/// Its chunks ascend without a gap and cover `0..raw_bytes` exactly; every boundary is a multiple of 4096, the image's end
/// apart. Stored ranges ascend too, without overlap, and end within `stored_bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Bytes of the disk image; never 0.
    pub raw_bytes: u64,
    /// Bytes of the stored file. 0 if the index does not say ([`StoredAs::Linear`]).
    pub stored_bytes: u64,
    /// How the stored file is made.
    pub format: StoredAs,
    /// Raw bytes of a chunk: the size every data chunk of a packed image has (the last may be shorter); the block size of a
    /// bmap, whose data chunks are of any number of blocks.
    pub chunk_bytes: u64,
    /// Digest of the whole stored file, if the index states it.
    pub stored_digest: Option<Digest>,
    /// Digest of the whole raw image, if the index states it.
    pub raw_digest: Option<Digest>,
    /// What stands where.
    pub chunks: Vec<Chunk>,
}

/// How an indexed image is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredAs {
    /// One zstd frame a chunk.
    Zstd,
    /// From one end to the other: the stored file is the raw image, or a compression of it as a whole.
    Linear,
}

/// A piece of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its place on the disk, bytes; never empty. A data chunk of a packed image has at most [`MAX_CHUNK_BYTES`]; one of a
    /// bmap, and any zero chunk, may be as large as the image.
    pub raw: Range<u64>,
    /// Its place in the stored file, bytes; empty (`0..0`) for [`StoredAs::Linear`].
    pub stored: Range<u64>,
    /// What it holds.
    pub kind: ChunkKind,
}

/// What a piece holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// Nothing but zeros. (A bmap's unmapped blocks, which may hold anything, are taken for zeros: on a disk that held
    /// something else before, no other choice gives the same bytes twice.)
    Zero,
    /// Anything else.
    Data {
        /// SHA-256 of its stored bytes.
        stored_digest: Option<[u8; 32]>,
        /// SHA-256 of its raw bytes.
        raw_digest: Option<[u8; 32]>,
    },
}

impl Chunk {
    /// Whether it must be fetched.
    pub fn is_data(&self) -> bool {
        matches!(self.kind, ChunkKind::Data { .. })
    }
    /// Its raw bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.raw.end.saturating_sub(self.raw.start)
    }
    /// Its stored bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.stored.end.saturating_sub(self.stored.start)
    }
}

/// Why there is no index. The caller adds the URL; each text continues "… is not a usable index: ".
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Over a limit.
    #[error(
        "it has more than {limit} {unit}; pack the image again with larger chunks (--chunk), or state the image's own digest"
    )]
    TooLarge { limit: u64, unit: &'static str },
    /// Neither of the two kinds.
    #[error(
        "it is neither a manifest of landfall-image pack nor a bmap; state the URL of one, or the image's own digest"
    )]
    Unknown,
    /// Of a version this program does not know.
    #[error("it is a {kind} of version {version}, but only {known} is supported; {hint}")]
    Version { kind: &'static str, version: String, known: &'static str, hint: &'static str },
    /// Well-formed, but not trustworthy or not writable.
    #[error("{0}")]
    Refused(String),
    /// It contradicts itself or is cut.
    #[error("it is damaged: {0}; make it again")]
    Damaged(String),
}

fn damaged(why: impl Into<String>) -> IndexError {
    IndexError::Damaged(why.into())
}

impl Index {
    /// Reads an index of either kind.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        if bytes.len() as u64 > MAX_INDEX_BYTES {
            return Err(IndexError::TooLarge { limit: MAX_INDEX_BYTES, unit: "bytes" });
        }
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let index = match text.trim_ascii_start().first() {
            Some(b'{') => manifest::parse(text)?,
            Some(b'<') => bmap::parse(text)?,
            _ => return Err(IndexError::Unknown),
        };
        index.check()?;
        Ok(index)
    }

    /// The manifest that [`Self::parse`] reads back as the same index: JSON, one chunk a line.
    ///
    /// # Errors
    /// It is of [`StoredAs::Linear`], breaks one of the type's promises, or is over a limit.
    pub fn to_json(&self) -> Result<String, IndexError> {
        self.check()?;
        manifest::write(self)
    }

    /// Raw bytes that must be fetched and written; the rest is zeros.
    pub fn data_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.is_data()).map(Chunk::raw_bytes).sum()
    }

    /// Stored bytes that must be fetched. 0 for [`StoredAs::Linear`].
    pub fn fetched_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.is_data()).map(Chunk::stored_bytes).sum()
    }
}

#[cfg(test)]
mod tests;
