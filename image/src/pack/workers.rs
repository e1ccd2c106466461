//! Chunks compressed side by side and handed on in the order they were read, whatever the number of threads.

use std::{io, num::NonZeroUsize, thread};

use crossbeam_channel::{Receiver, Sender, bounded};
use sha2::{Digest as _, Sha256};
use zstd::{bulk::Compressor, zstd_safe::CParameter};

use super::source::{Piece, Source};

/// A chunk as it will be stored.
pub(super) struct Compressed {
    /// Its bytes on the disk.
    pub(super) raw: Vec<u8>,
    /// SHA-256 of them.
    pub(super) raw_digest: [u8; 32],
    /// One zstd frame.
    pub(super) frame: Vec<u8>,
    /// SHA-256 of it.
    pub(super) frame_digest: [u8; 32],
}

/// What comes next on the disk.
pub(super) enum Next {
    /// So many zero bytes, one chunk at most.
    Zeros(u64),
    /// A chunk with something in it.
    Data(Compressed),
}

/// Which side failed.
pub(super) enum Failure<E> {
    Read(io::Error),
    Compress(io::Error),
    Take(E),
}

type Reply = io::Result<Compressed>;

enum Queued {
    Zeros(u64),
    Data(Receiver<Reply>),
    Failed(io::Error),
}

/// Compresses frame by frame: with its content size and a checksum, so that any zstd tool reads and checks it.
pub(super) fn compressor(level: i32) -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(level)?;
    compressor.set_parameter(CParameter::ChecksumFlag(true))?;
    compressor.set_parameter(CParameter::ContentSizeFlag(true))?;
    Ok(compressor)
}

/// Reads `source` to its end and gives every chunk to `take`, in order. In memory are `threads` + 2 chunks and as many
/// frames at most.
pub(super) fn run<E>(
    mut source: Source, chunk: usize, level: i32, threads: NonZeroUsize, mut take: impl FnMut(&Next) -> Result<(), E>,
) -> Result<(), Failure<E>> {
    let window = threads.get().saturating_add(2);
    let (buffers, free) = bounded(window);
    for _ in 0..window {
        // It has room for exactly these.
        let _ = buffers.send(Vec::new());
    }
    let (order, queue) = bounded(window);
    let (jobs, work) = bounded::<(Vec<u8>, Sender<Reply>)>(window);
    thread::scope(|scope| {
        for _ in 0..threads.get() {
            let work = work.clone();
            scope.spawn(move || compress_all(level, &work));
        }
        drop(work);
        scope.spawn(move || read_all(&mut source, chunk, &free, &jobs, &order));
        // Whatever ends this function drops `queue` and `buffers`: then the reader ends, and with its jobs the workers.
        let buffers = buffers;
        for queued in queue {
            let next = match queued {
                Queued::Zeros(bytes) => Next::Zeros(bytes),
                Queued::Failed(error) => return Err(Failure::Read(error)),
                Queued::Data(reply) => Next::Data(
                    reply
                        .recv()
                        .unwrap_or_else(|_| Err(io::Error::other("a compression thread has ended")))
                        .map_err(Failure::Compress)?,
                ),
            };
            take(&next).map_err(Failure::Take)?;
            if let Next::Data(chunk) = next {
                // The reader may have come to its end, and wants no buffer any more.
                let _ = buffers.send(chunk.raw);
            }
        }
        Ok(())
    })
}

/// Ends at the source's end, at its first error, or when the receiver has gone.
fn read_all(
    source: &mut Source, chunk: usize, free: &Receiver<Vec<u8>>, jobs: &Sender<(Vec<u8>, Sender<Reply>)>,
    order: &Sender<Queued>,
) {
    let mut spare = None;
    loop {
        let Some(mut buffer) = spare.take().or_else(|| free.recv().ok()) else { return };
        let queued = match source.next(chunk, &mut buffer) {
            Ok(None) => return,
            Err(error) => {
                // If the receiver has gone, another thread failed first.
                let _ = order.send(Queued::Failed(error));
                return;
            }
            Ok(Some(Piece::Zeros(bytes))) => {
                spare = Some(buffer);
                Queued::Zeros(bytes)
            }
            Ok(Some(Piece::Data)) => {
                let (reply, receiver) = bounded(1);
                if jobs.send((buffer, reply)).is_err() {
                    return;
                }
                Queued::Data(receiver)
            }
        };
        if order.send(queued).is_err() {
            return;
        }
    }
}

fn compress_all(level: i32, work: &Receiver<(Vec<u8>, Sender<Reply>)>) {
    let mut compressor = compressor(level);
    for (raw, reply) in work {
        let result = match &mut compressor {
            Ok(compressor) => compressor.compress(&raw).map(|frame| Compressed {
                raw_digest: Sha256::digest(&raw).into(),
                frame_digest: Sha256::digest(&frame).into(),
                raw,
                frame,
            }),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        // If the receiver has gone, another thread failed first.
        let _ = reply.send(result);
    }
}
