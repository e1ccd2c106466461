//! Installs from an index: every chunk is proven before it is written, only what the disk lacks is fetched, decoding is
//! parallel, and zero chunks cost nothing.
//!
//! head → plan → invalidate → compare (what does the disk hold already?) → fetch and prove → decode in parallel →
//! write. A chunk that arrives altered is requested again, because each chunk can be fetched alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use sha2::{Digest as _, Sha256};

use super::{Check, Context, body::Body, compare, evidence::Evidence, meter::Wait, spawn};
use crate::buffer::{Buffer, Pool};
use crate::decode::Decoded;
use crate::gpt::{HEAD, Layout};
use crate::index::{Chunk, ChunkKind, Index, MAX_CHUNK_BYTES};
use crate::source::ImageSource;
use crate::{BlockDevice, Defect, WriteError};

/// Threads that decode.
const THREADS: usize = 2;
/// A chunk over this is decoded by one thread alone, with one in reserve, so that memory stays within its bound.
const LARGE_CHUNK: u64 = 4 << 20;
/// A gap in the stored file up to this is read over; a new request costs more.
const GAP: u64 = 64 << 10;
/// How often a chunk that arrives altered is requested, in total.
const TRIES: u32 = 3;
/// What zstd may need beyond the raw bytes where they do not compress, generously.
const STORED_MAX: u64 = MAX_CHUNK_BYTES + (1 << 20);

/// One index, being installed.
pub(super) struct Indexed<'a> {
    pub(super) index: &'a Index,
    pub(super) context: Context<'a>,
}

/// A chunk as it is stored, proven.
struct Stored {
    chunk: usize,
    bytes: Buffer,
}

impl Indexed<'_> {
    /// The first [`HEAD`] bytes of the image (fewer only if it has no more), proven.
    pub(super) fn head(&self, source: &mut dyn ImageSource) -> Result<Buffer, WriteError> {
        let covering = self.index.chunks.iter().take_while(|chunk| chunk.raw.start < HEAD as u64);
        let mut head = Buffer::new(HEAD);
        head.len = HEAD.min(usize::try_from(self.index.raw_bytes).unwrap_or(HEAD));
        let pool = Pool::new(self.stored_capacity()?);
        for chunk in covering.filter(|chunk| chunk.is_data()) {
            source.seek(chunk.stored.clone(), self.context.stop)?;
            let stored = self.proven(source, chunk, &pool)?;
            let mut raw = vec![0; chunk.raw_bytes() as usize];
            self.decode(chunk, stored.data(), &mut raw, &mut decompressor()?)?;
            let at = chunk.raw.start as usize;
            let length = raw.len().min(head.len - at);
            head.space()[at..at + length].copy_from_slice(&raw[..length]);
        }
        self.same_length(source)?;
        Ok(head)
    }

    /// Which chunks must be fetched; the others are zero, came completely with the head, or `compare` found them on the
    /// disk.
    pub(super) fn wanted(
        &self, device: &dyn BlockDevice, layout: &Layout, compare: bool, may_act: Check<'_>,
    ) -> Result<Vec<usize>, WriteError> {
        let chunks = self.index.chunks.iter().enumerate();
        let data: Vec<_> = chunks.filter(|(_, chunk)| chunk.is_data() && chunk.raw.end > HEAD as u64).collect();
        if compare {
            self.context.meter.stage("compare");
            return compare::missing(device, layout, data, self.context.meter, may_act);
        }
        Ok(data.into_iter().map(|(i, _)| i).collect())
    }

    /// Everything that is zero by the index.
    pub(super) fn zeroes(&self, body: &mut Body<'_, '_>, may_act: Check<'_>) -> Result<(), WriteError> {
        for chunk in self.index.chunks.iter().filter(|chunk| !chunk.is_data()) {
            // The head was handed over as a block.
            let start = chunk.raw.start.max(HEAD as u64);
            if start < chunk.raw.end {
                may_act()?;
                body.zeroes(start..chunk.raw.end)?;
            }
        }
        Ok(())
    }

    /// Starts fetching and decoding.
    pub(super) fn start<'scope>(
        &'scope self, scope: &'scope Scope<'scope, '_>, source: &'scope mut dyn ImageSource, wanted: &'scope [usize],
        blocks: &Arc<Pool>,
    ) -> Result<Running, WriteError> {
        let (threads, depth) = self.shape();
        let stored = Arc::new(Pool::new(self.stored_capacity()?));
        let (fetched_in, fetched) = bounded(depth);
        let (pieces_in, pieces) = bounded(2 * THREADS);
        let decoded = Arc::new(AtomicUsize::new(0));
        for _ in 0..threads {
            let (fetched, pieces, stored) = (fetched.clone(), pieces_in.clone(), Arc::clone(&stored));
            let (blocks, decoded) = (Arc::clone(blocks), Arc::clone(&decoded));
            let run = move || {
                if let Err(error) = self.decode_all(&fetched, &pieces, &stored, &blocks, &decoded) {
                    // If the writer has gone, it needs no reason.
                    let _ = pieces.send(Err(error));
                }
            };
            spawn(scope, "decode", run)?;
        }
        let run = move || {
            if let Err(error) = self.fetch(source, wanted, &fetched_in, &stored) {
                // As above.
                let _ = pieces_in.send(Err(error));
            }
        };
        spawn(scope, "fetch", run)?;
        Ok(Running { pieces, decoded, wanted: wanted.len() })
    }

    fn fetch(
        &self, source: &mut dyn ImageSource, wanted: &[usize], out: &Sender<Stored>, pool: &Pool,
    ) -> Result<(), WriteError> {
        let place = |i: usize| self.index.chunks[wanted[i]].stored.clone();
        let mut at = None;
        for i in 0..wanted.len() {
            let chunk = &self.index.chunks[wanted[i]];
            match at {
                Some(at) if (at..=at + GAP).contains(&chunk.stored.start) => {
                    self.skip(source, chunk.stored.start - at)?;
                }
                _ => {
                    let far = |j: &usize| place(*j).start > place(j - 1).end + GAP;
                    let last = (i + 1..wanted.len()).find(far).unwrap_or(wanted.len()) - 1;
                    source.seek(chunk.stored.start..place(last).end, self.context.stop)?;
                }
            }
            let bytes = self.proven(source, chunk, pool)?;
            at = Some(chunk.stored.end);
            let waiting = Instant::now();
            if out.send(Stored { chunk: wanted[i], bytes }).is_err() {
                return Ok(());
            }
            // Proving is a part of fetching here: waiting for room is waiting for the decoders.
            self.context.meter.waited(Wait::Fetched, waiting);
            self.context.meter.waited(Wait::Hashed, waiting);
        }
        Ok(())
    }

    /// The chunk that the source stands before; requested again if it does not match the index.
    fn proven(&self, source: &mut dyn ImageSource, chunk: &Chunk, pool: &Pool) -> Result<Buffer, WriteError> {
        let ChunkKind::Data { stored_digest: Some(expected), .. } = chunk.kind else {
            return Err(WriteError::Internal("a chunk without a digest cannot be proven".into()));
        };
        let mut bytes = pool.take();
        for tried in 1.. {
            bytes.len = chunk.stored_bytes() as usize;
            self.read(source, bytes.space_used())?;
            self.context.meter.stored(bytes.len as u64, None);
            if Sha256::digest(bytes.data())[..] == expected {
                break;
            }
            if tried == TRIES {
                return Err(WriteError::ChunkMismatch {
                    url: self.context.image.into(),
                    offset: chunk.stored.start,
                    length: chunk.stored_bytes(),
                });
            }
            // The rest of the image follows it as before.
            source.seek(chunk.stored.start..u64::MAX, self.context.stop)?;
        }
        Ok(bytes)
    }

    fn read(&self, source: &mut dyn ImageSource, mut into: &mut [u8]) -> Result<(), WriteError> {
        while !into.is_empty() {
            let n = source.read(into, self.context.stop)?;
            if n == 0 {
                let reason = format!("the index says {} bytes", self.index.stored_bytes);
                return Err(WriteError::Truncated { subject: self.context.image.into(), reason });
            }
            into = &mut into[n..];
        }
        Ok(())
    }

    fn skip(&self, source: &mut dyn ImageSource, mut bytes: u64) -> Result<(), WriteError> {
        let mut scrap = [0; 4096];
        while bytes > 0 {
            let n = bytes.min(scrap.len() as u64) as usize;
            self.read(source, &mut scrap[..n])?;
            bytes -= n as u64;
        }
        Ok(())
    }

    fn decode_all(
        &self, fetched: &Receiver<Stored>, pieces: &Sender<Result<Decoded, WriteError>>, stored: &Pool, blocks: &Pool,
        decoded: &AtomicUsize,
    ) -> Result<(), WriteError> {
        let mut context = decompressor()?;
        let mut scratch = Vec::new();
        for Stored { chunk, bytes } in fetched {
            let chunk = &self.index.chunks[chunk];
            let length = chunk.raw_bytes() as usize;
            if length <= blocks.capacity() {
                let mut block = blocks.take();
                block.len = length;
                self.decode(chunk, bytes.data(), block.space_used(), &mut context)?;
                stored.give(bytes);
                if !hand_on(pieces, blocks, chunk.raw.start, block) {
                    return Ok(());
                }
            } else {
                scratch.resize(length, 0);
                self.decode(chunk, bytes.data(), &mut scratch, &mut context)?;
                stored.give(bytes);
                for (part, at) in scratch.chunks(blocks.capacity()).zip((chunk.raw.start..).step_by(blocks.capacity()))
                {
                    let mut block = blocks.take();
                    block.len = part.len();
                    block.space_used().copy_from_slice(part);
                    if !hand_on(pieces, blocks, at, block) {
                        return Ok(());
                    }
                }
            }
            decoded.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn decode(
        &self, chunk: &Chunk, stored: &[u8], raw: &mut [u8], context: &mut zstd::bulk::Decompressor<'_>,
    ) -> Result<(), WriteError> {
        // These bytes have the digest from the index, so a failure is an error of the packer.
        let bad = |why: String| WriteError::BadFormat {
            subject: self.context.image.into(),
            reason: format!("the chunk at byte {} of it {why}", chunk.stored.start),
            defect: Defect::Content,
        };
        let made =
            context.decompress_to_buffer(stored, raw).map_err(|error| bad(format!("does not decode: {error}")))?;
        if made == raw.len() { Ok(()) } else { Err(bad(format!("holds {made} bytes instead of {}", raw.len()))) }
    }

    /// The server's file is as long as the one that was packed.
    fn same_length(&self, source: &dyn ImageSource) -> Result<(), WriteError> {
        match source.total() {
            Some(total) if total != self.index.stored_bytes => Err(WriteError::Truncated {
                subject: self.context.image.into(),
                reason: format!("it has {total} bytes, but its index states {}", self.index.stored_bytes),
            }),
            _ => Ok(()),
        }
    }

    /// Threads that decode, and chunks that wait for them.
    fn shape(&self) -> (usize, usize) {
        if self.index.chunk_bytes > LARGE_CHUNK { (1, 1) } else { (THREADS, 2 * THREADS) }
    }

    /// What chunks take while they are fetched and decoded, bytes: in each queue and in the hand at its end.
    pub(super) fn memory(&self) -> u64 {
        let data = || self.index.chunks.iter().filter(|chunk| chunk.is_data());
        let stored = data().map(Chunk::stored_bytes).max().unwrap_or(0);
        let raw = data().map(Chunk::raw_bytes).max().unwrap_or(0);
        let (threads, depth) = self.shape();
        // One is fetched, so many wait, and each thread has one, stored and raw.
        (1 + depth + threads) as u64 * stored + threads as u64 * raw
    }

    fn stored_capacity(&self) -> Result<usize, WriteError> {
        let largest = self.index.chunks.iter().filter(|chunk| chunk.is_data()).map(Chunk::stored_bytes).max();
        let largest = largest.unwrap_or(0);
        if largest > STORED_MAX {
            let reason = format!("its index has a chunk of {largest} stored bytes; the limit is {STORED_MAX}");
            return Err(WriteError::BadFormat { subject: self.context.image.into(), reason, defect: Defect::Content });
        }
        Ok(largest as usize)
    }
}

/// The running stages.
pub(super) struct Running {
    pub(super) pieces: Receiver<Result<Decoded, WriteError>>,
    decoded: Arc<AtomicUsize>,
    wanted: usize,
}

impl Running {
    /// Once the pieces have ended without an error: proof that each wanted chunk was proven and handed on.
    pub(super) fn evidence(&self, index: &Index) -> Result<Evidence, WriteError> {
        let decoded = self.decoded.load(Ordering::Acquire);
        if decoded != self.wanted {
            return Err(WriteError::Internal(format!("{decoded} of {} chunks were written", self.wanted)));
        }
        Ok(Evidence::by_chunks(index.raw_bytes))
    }
}

fn decompressor() -> Result<zstd::bulk::Decompressor<'static>, WriteError> {
    zstd::bulk::Decompressor::new().map_err(|source| WriteError::Start { what: "zstd decoder", source })
}

/// False: the receiver has gone.
fn hand_on(pieces: &Sender<Result<Decoded, WriteError>>, blocks: &Pool, offset: u64, bytes: Buffer) -> bool {
    if offset < HEAD as u64 {
        // Its bytes went ahead with the head.
        return hand_on_after_head(pieces, blocks, offset, bytes);
    }
    pieces.send(Ok(Decoded::Block { offset, bytes })).is_ok()
}

fn hand_on_after_head(
    pieces: &Sender<Result<Decoded, WriteError>>, blocks: &Pool, offset: u64, mut bytes: Buffer,
) -> bool {
    let skip = (HEAD as u64 - offset) as usize;
    let sent = if skip < bytes.len {
        let mut rest = blocks.take();
        rest.len = bytes.len - skip;
        rest.space_used().copy_from_slice(&bytes.data()[skip..]);
        pieces.send(Ok(Decoded::Block { offset: HEAD as u64, bytes: rest })).is_ok()
    } else {
        true
    };
    bytes.len = 0;
    blocks.give(bytes);
    sent
}
