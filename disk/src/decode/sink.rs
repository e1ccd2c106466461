//! Where a decoder puts raw bytes: blocks with an offset, handed to the writer through a bounded queue.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;

use super::DecodeError;
use crate::WriteError;
use crate::buffer::{Buffer, Pool};

/// A piece of the raw image. Pieces come in any order, but the first is always the image's start, as much of it as fits a
/// block; no two overlap, and together they cover the image.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// Bytes from this offset on. The offset is a multiple of 4096; the length too, except at the image's end.
    Block { offset: u64, bytes: Buffer },
    /// The raw image is zero here.
    Zeroes(Range<u64>),
}

impl Decoded {
    /// Which part of the raw image it is, bytes.
    pub(crate) fn range(&self) -> Range<u64> {
        match self {
            Self::Block { offset, bytes } => *offset..*offset + bytes.len as u64,
            Self::Zeroes(range) => range.clone(),
        }
    }
}

/// Takes raw bytes from a decoder.
pub(crate) struct Sink {
    pool: Arc<Pool>,
    out: Sender<Result<Decoded, WriteError>>,
    /// Of the next byte to come.
    offset: u64,
    block: Option<Buffer>,
    /// End of the furthest byte of this sink and all its siblings.
    end: Arc<AtomicU64>,
}

impl Sink {
    /// A sink at offset 0.
    pub(crate) fn new(pool: Arc<Pool>, out: Sender<Result<Decoded, WriteError>>) -> Self {
        Self { pool, out, offset: 0, block: None, end: Arc::default() }
    }

    /// A sibling that goes on at another offset, a multiple of 4096; for decoders that work in parallel or out of order.
    pub(crate) fn at(&self, offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(4096), "pieces start at multiples of 4096");
        Self { pool: Arc::clone(&self.pool), out: self.out.clone(), offset, block: None, end: Arc::clone(&self.end) }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// End of the furthest byte so far, by any sibling: the raw image's length once all are done.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Most bytes of one block.
    pub(crate) fn block_size(&self) -> usize {
        self.pool.capacity()
    }

    /// Room for the next bytes; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let pool = &self.pool;
        let block = self.block.get_or_insert_with(|| pool.take());
        let at = block.len;
        &mut block.space()[at..]
    }

    /// So many bytes of [`Sink::space`] were filled. A full block is handed on.
    ///
    /// # Errors
    /// [`DecodeError::Abandoned`].
    pub(crate) fn filled(&mut self, bytes: usize) -> Result<(), DecodeError> {
        let Some(block) = self.block.as_mut() else { return Ok(()) };
        block.len += bytes;
        self.offset += bytes as u64;
        if block.is_full() { self.flush() } else { Ok(()) }
    }

    /// So many zero bytes follow; whole multiples of 4096 from a multiple of 4096 on, except at the image's end.
    ///
    /// # Errors
    /// [`DecodeError::Abandoned`].
    pub(crate) fn zeroes(&mut self, bytes: u64) -> Result<(), DecodeError> {
        self.flush()?;
        let start = self.offset;
        self.offset += bytes;
        self.end.fetch_max(self.offset, Ordering::AcqRel);
        if bytes == 0 { Ok(()) } else { self.send(Decoded::Zeroes(start..start + bytes)) }
    }

    /// Hands on what is there. The decoder calls it once, at the end of what it puts here.
    ///
    /// # Errors
    /// [`DecodeError::Abandoned`].
    pub(crate) fn flush(&mut self) -> Result<(), DecodeError> {
        self.end.fetch_max(self.offset, Ordering::AcqRel);
        match self.block.take() {
            Some(bytes) if bytes.len > 0 => self.send(Decoded::Block { offset: self.offset - bytes.len as u64, bytes }),
            Some(empty) => {
                self.pool.give(empty);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Sends the receiver the reason why the output ended.
    pub(crate) fn fail(&self, error: WriteError) {
        // If the receiver has gone, it needs no reason.
        let _ = self.out.send(Err(error));
    }

    fn send(&self, piece: Decoded) -> Result<(), DecodeError> {
        self.out.send(Ok(piece)).map_err(|_| DecodeError::Abandoned)
    }
}
