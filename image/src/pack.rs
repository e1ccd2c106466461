//! Packs a disk image so that any part of it can be fetched, proven and decoded alone.
//!
//! The product is an ordinary `.zst` file that any zstd tool unpacks: one frame a chunk, each with its content size and
//! checksum, and at the end the seek table of the seekable zstd format. Beside it stands the index
//! ([`landfall_disk::Index`]), which names the digest of every chunk, stored and raw; a template states the digest of the
//! index alone. The same disk, chunk size, level and zstd give the same bytes, whatever the number of threads.
//!
//! Chunks of zeros have frames too, so that the file is complete for other tools; a machine that uses the index never
//! fetches them.

mod source;
mod workers;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::Digest;
use landfall_disk::{
    Chunk, ChunkKind, Frame, Index, IndexError, MAX_CHUNK_BYTES, MAX_CHUNKS, MIN_CHUNK_BYTES, SeekTable,
    SeekTableError, StoredAs,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use self::source::Source;
use self::workers::{Failure, Next};
use crate::output::{AtomicFile, OutputError};

/// zstd's level if none is asked for. Of a Debian image of 1411 MiB in chunks of 1 MiB, level 3 makes 209 MiB, 9 makes 194 for
/// 2.8 times the CPU time, and 12 makes 193 for 4.5 times.
pub const DEFAULT_LEVEL: i32 = 9;
/// Raw bytes of a chunk if none are asked for and the image is not very large.
const DEFAULT_CHUNK: u64 = 1 << 20;
/// Chunks grow until the image has no more of them.
const MANY_CHUNKS: u64 = 65_536;
/// A disk has whole sectors.
const SECTOR: u64 = 512;

/// The image cannot be packed.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The image cannot be read or decompressed to its end.
    #[error("cannot read the disk image {path}")]
    Input {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is empty.
    #[error("{0} is empty; a disk image is at least one sector")]
    Empty(PathBuf),
    /// It is not a disk image.
    #[error("{path} has {bytes} bytes, which is not a multiple of 512: it is not a disk image, or it is cut short")]
    Unaligned {
        path: PathBuf,
        /// Its bytes, decompressed.
        bytes: u64,
    },
    /// The directory of a result is not there.
    #[error("cannot write {0}: its directory does not exist; create it first")]
    NoDirectory(PathBuf),
    /// Two of input, output and index are the same file.
    #[error("{0} is named twice; image, output and index must be three different files")]
    Same(PathBuf),
    /// The chunk size is impossible.
    #[error("a chunk size of {0} bytes is not supported; use a power of two from 4KiB to 16MiB")]
    Chunk(u64),
    /// zstd failed.
    #[error("cannot compress")]
    Compress(#[source] io::Error),
    /// The index cannot hold so many chunks.
    #[error("cannot index the image")]
    Index(#[from] IndexError),
    /// The seek table cannot hold so many.
    #[error("cannot index the image")]
    SeekTable(#[from] SeekTableError),
    /// A result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// What to pack, and how.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// The disk image: raw, or compressed with zstd, gzip or xz; `-` is the standard input.
    pub input: &'a Path,
    /// Output file for the packed image.
    pub output: &'a Path,
    /// Where the index goes; [`index_path`] if not said.
    pub index: Option<&'a Path>,
    /// zstd's level.
    pub level: i32,
    /// Raw bytes of a chunk. `None`: 1 MiB, more for images of more than 64 GiB.
    pub chunk: Option<u64>,
    /// Threads that compress.
    pub threads: NonZeroUsize,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Packed {
    /// The packed image.
    pub file: PathBuf,
    /// Its index.
    pub index: PathBuf,
    /// Digest of the index: what a template names.
    pub index_digest: Digest,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the disk.
    pub raw_bytes: u64,
    /// Bytes of the packed image.
    pub stored_bytes: u64,
    /// Raw bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks with something in them.
    pub data_chunks: u64,
    /// Chunks of zeros.
    pub zero_chunks: u64,
    /// Stored bytes of the chunks with something in them: what a first installation fetches.
    pub fetched_bytes: u64,
    /// Digest of the packed image.
    pub digest: Digest,
    /// Digest of the disk.
    pub raw_digest: Digest,
}

/// Where the index of `output` goes if nothing is said: `OUTPUT.index.json`.
pub fn index_path(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".index.json");
    name.into()
}

/// Packs. The index appears last: if it is new, the image beside it is complete.
///
/// # Errors See [`PackError`]; then neither file exists, or the previous files are unchanged.
pub fn pack(recipe: &Recipe<'_>) -> Result<Packed, PackError> {
    let index_file = recipe.index.map_or_else(|| index_path(recipe.output), Path::to_owned);
    check_paths(recipe.input, recipe.output, &index_file)?;
    let input = |source| PackError::Input { path: recipe.input.to_owned(), source };
    let source = Source::open(recipe.input).map_err(input)?;
    if let Some(bytes) = source.size() {
        check_size(recipe.input, bytes)?;
    }
    let chunk_bytes = recipe.chunk.unwrap_or_else(|| chunk_for(source.size()));
    let chunk = usize::try_from(chunk_bytes)
        .ok()
        .filter(|_| chunk_bytes.is_power_of_two() && (MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(&chunk_bytes))
        .ok_or(PackError::Chunk(chunk_bytes))?;

    let mut out = AtomicFile::create(recipe.output)?;
    let output = |source| OutputError { path: recipe.output.to_owned(), source };
    let mut packer = Packer::new(out.file().map_err(output)?, recipe, chunk_bytes)?;
    workers::run(source, chunk, recipe.level, recipe.threads, |next| packer.take(next)).map_err(
        |failure| match failure {
            Failure::Read(error) => input(error),
            Failure::Compress(error) => PackError::Compress(error),
            Failure::Take(error) => error,
        },
    )?;
    check_size(recipe.input, packer.raw_at)?;
    let index = packer.finish()?;
    let text = index.to_json()?;
    // Both are written before either gets its name: an image beside another's index would install nowhere.
    let mut beside = AtomicFile::create(&index_file)?;
    let failed = |source| OutputError { path: index_file.clone(), source };
    beside.file().and_then(|file| file.write_all(text.as_bytes())).map_err(failed)?;
    out.commit()?;
    beside.commit()?;
    report(recipe.output, index_file, &text, &index)
}

fn check_size(path: &Path, bytes: u64) -> Result<(), PackError> {
    match bytes {
        0 => Err(PackError::Empty(path.to_owned())),
        _ if bytes.is_multiple_of(SECTOR) => Ok(()),
        _ => Err(PackError::Unaligned { path: path.to_owned(), bytes }),
    }
}

/// Checked before anything is read: a wrong name must not fail a long operation at its end.
fn check_paths(input: &Path, output: &Path, index: &Path) -> Result<(), PackError> {
    for path in [output, index] {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            return Err(PackError::NoDirectory(path.to_owned()));
        }
        // A file that does not exist yet cannot be the input.
        let same = |a: &Path, b: &Path| fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b));
        if same(path, input) {
            return Err(PackError::Same(path.to_owned()));
        }
    }
    if output == index { Err(PackError::Same(output.to_owned())) } else { Ok(()) }
}

fn chunk_for(size: Option<u64>) -> u64 {
    let mut chunk = DEFAULT_CHUNK;
    while chunk < MAX_CHUNK_BYTES && size.is_some_and(|size| size.div_ceil(chunk) > MANY_CHUNKS) {
        chunk *= 2;
    }
    chunk
}

fn report(output: &Path, index_file: PathBuf, text: &str, index: &Index) -> Result<Packed, PackError> {
    let count = |wanted: bool| {
        let of = index.chunks.iter().filter(|chunk| chunk.is_data() == wanted);
        of.map(|chunk| chunk.raw_bytes().div_ceil(index.chunk_bytes)).sum()
    };
    let (Some(digest), Some(raw_digest)) = (index.stored_digest, index.raw_digest) else {
        return Err(IndexError::Refused("it has no digests of the whole".into()).into());
    };
    Ok(Packed {
        file: output.to_owned(),
        index: index_file,
        index_digest: Digest::from_sha256(Sha256::digest(text).into()),
        index_bytes: text.len() as u64,
        raw_bytes: index.raw_bytes,
        stored_bytes: index.stored_bytes,
        chunk_bytes: index.chunk_bytes,
        data_chunks: count(true),
        zero_chunks: count(false),
        fetched_bytes: index.fetched_bytes(),
        digest,
        raw_digest,
    })
}

/// Writes frames one behind the other and notes what is where.
struct Packer<'a> {
    path: &'a Path,
    out: BufWriter<&'a mut File>,
    level: i32,
    chunk_bytes: u64,
    /// The frame of the last chunk of zeros, and how many they were: all but the image's last are the same.
    zeros: (Vec<u8>, u64),
    raw_at: u64,
    stored_at: u64,
    raw_hash: Sha256,
    stored_hash: Sha256,
    chunks: Vec<Chunk>,
    table: SeekTable,
}

impl<'a> Packer<'a> {
    fn new(out: &'a mut File, recipe: &Recipe<'a>, chunk_bytes: u64) -> Result<Self, PackError> {
        Ok(Self {
            path: recipe.output,
            out: BufWriter::with_capacity(1 << 18, out),
            level: recipe.level,
            chunk_bytes,
            zeros: (Vec::new(), 0),
            raw_at: 0,
            stored_at: 0,
            raw_hash: Sha256::new(),
            stored_hash: Sha256::new(),
            chunks: Vec::new(),
            table: SeekTable::default(),
        })
    }

    fn take(&mut self, next: &Next) -> Result<(), PackError> {
        match next {
            Next::Zeros(bytes) => self.zeros(*bytes),
            Next::Data(chunk) => {
                self.raw_hash.update(&chunk.raw);
                let kind =
                    ChunkKind::Data { stored_digest: Some(chunk.frame_digest), raw_digest: Some(chunk.raw_digest) };
                self.place(chunk.raw.len() as u64, &chunk.frame, kind)
            }
        }
    }

    fn zeros(&mut self, bytes: u64) -> Result<(), PackError> {
        const ZEROS: &[u8] = &[0; 4096];
        let mut rest = bytes;
        while rest > 0 {
            let part = ZEROS.get(..usize::try_from(rest).unwrap_or(usize::MAX)).unwrap_or(ZEROS);
            self.raw_hash.update(part);
            rest -= part.len() as u64;
        }
        if self.zeros.1 != bytes {
            let raw = vec![0; usize::try_from(bytes.min(self.chunk_bytes)).unwrap_or_default()];
            let frame = workers::compressor(self.level).and_then(|mut compressor| compressor.compress(&raw));
            self.zeros = (frame.map_err(PackError::Compress)?, bytes);
        }
        let frame = std::mem::take(&mut self.zeros.0);
        self.place(bytes, &frame, ChunkKind::Zero)?;
        self.zeros.0 = frame;
        Ok(())
    }

    fn place(&mut self, raw_bytes: u64, frame: &[u8], kind: ChunkKind) -> Result<(), PackError> {
        self.write(frame)?;
        let raw = self.raw_at..self.raw_at + raw_bytes;
        let stored = self.stored_at - frame.len() as u64..self.stored_at;
        self.raw_at = raw.end;
        // Chunks are 16 MiB at most, and a frame is hardly larger than what it holds.
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        self.table.frames.push(Frame { stored: small(frame.len() as u64), raw: small(raw_bytes), checksum: None });
        let full = self.chunks.len() == MAX_CHUNKS;
        match self.chunks.last_mut() {
            Some(last) if kind == ChunkKind::Zero && last.kind == ChunkKind::Zero => {
                last.raw.end = raw.end;
                last.stored.end = stored.end;
            }
            _ if full => {
                return Err(IndexError::TooLarge { limit: MAX_CHUNKS as u64, unit: "chunks" }.into());
            }
            _ => self.chunks.push(Chunk { raw, stored, kind }),
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.stored_hash.update(bytes);
        self.stored_at += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|source| OutputError { path: self.path.to_owned(), source })
    }

    fn finish(mut self) -> Result<Index, PackError> {
        let table = self.table.to_bytes()?;
        self.write(&table)?;
        self.out.flush().map_err(|source| OutputError { path: self.path.to_owned(), source })?;
        Ok(Index {
            raw_bytes: self.raw_at,
            stored_bytes: self.stored_at,
            format: StoredAs::Zstd,
            chunk_bytes: self.chunk_bytes,
            stored_digest: Some(Digest::from_sha256(self.stored_hash.finalize().into())),
            raw_digest: Some(Digest::from_sha256(self.raw_hash.finalize().into())),
            chunks: self.chunks,
        })
    }
}
