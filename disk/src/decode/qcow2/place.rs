//! Puts clusters into their places in the raw image.

use std::ops::Range;

use super::super::{DecodeError, Sink};
use super::header::Header;
use super::inflate::Inflater;
use super::map::Zeroes;

/// Raw bytes of a batch after which order is given up for bounded memory.
pub(super) const MOST: u64 = 4 << 20;

/// A sink that goes to any place, and on without a break where one place follows the other.
pub(super) struct Placer {
    sink: Sink,
}

impl Placer {
    pub(super) fn new(sink: &Sink) -> Self {
        Self { sink: sink.at(0) }
    }

    /// The next bytes go here; a multiple of 4096.
    pub(super) fn go(&mut self, offset: u64) -> Result<(), DecodeError> {
        if self.sink.offset() != offset {
            self.sink.flush()?;
            self.sink = self.sink.at(offset);
        }
        Ok(())
    }

    pub(super) fn copy(&mut self, mut bytes: &[u8]) -> Result<(), DecodeError> {
        while !bytes.is_empty() {
            let space = self.sink.space();
            let n = space.len().min(bytes.len());
            let (now, rest) = bytes.split_at(n);
            space[..n].copy_from_slice(now);
            self.sink.filled(n)?;
            bytes = rest;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), DecodeError> {
        self.sink.flush()
    }
}

/// The parts of the raw image that are zero, handed on no later than what comes after them.
pub(super) struct Gaps<'a> {
    pub(super) rest: &'a [Zeroes],
    pub(super) header: &'a Header,
}

impl Gaps<'_> {
    /// Hands on those that start before this offset.
    pub(super) fn before(&mut self, offset: u64, placer: &mut Placer) -> Result<(), DecodeError> {
        while let [first, after @ ..] = self.rest {
            let place = first.raw(self.header);
            if place.start >= offset {
                break;
            }
            placer.go(place.start)?;
            placer.sink.zeroes(place.end - place.start)?;
            self.rest = after;
        }
        Ok(())
    }
}

/// Stored bytes that were gathered, and what they are.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) stored: Vec<u8>,
    pub(super) items: Vec<Item>,
    /// Raw bytes in all.
    pub(super) raw: u64,
}

/// One run of a [`Batch`].
#[derive(Debug)]
pub(super) struct Item {
    /// Its place in the raw image, bytes.
    pub(super) raw: Range<u64>,
    /// Its place in [`Batch::stored`].
    pub(super) stored: Range<usize>,
    pub(super) compressed: bool,
    /// The file ended within its last sector. Most often nothing but padding is missing.
    pub(super) cut: bool,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.stored.clear();
        self.items.clear();
        self.raw = 0;
    }

    /// End of the furthest raw byte.
    pub(super) fn end(&self) -> u64 {
        self.items.iter().map(|item| item.raw.end).max().unwrap_or_default()
    }

    /// Puts everything into its place, in the order of the raw image; with `gaps` the zeroes between too.
    pub(super) fn place(
        &mut self, placer: &mut Placer, unpack: &mut Unpack, mut gaps: Option<&mut Gaps<'_>>,
    ) -> Result<(), DecodeError> {
        self.items.sort_unstable_by_key(|item| item.raw.start);
        for item in &self.items {
            if let Some(gaps) = gaps.as_deref_mut() {
                gaps.before(item.raw.start, placer)?;
            }
            placer.go(item.raw.start)?;
            // The range was made when the bytes were put there.
            let stored = &self.stored[item.stored.clone()];
            if item.compressed { unpack.cluster(item, stored, placer)? } else { placer.copy(stored)? }
        }
        Ok(())
    }
}

/// Compressed clusters into a [`Placer`].
pub(super) struct Unpack {
    inflater: Inflater,
    /// For clusters that do not fit the rest of a block.
    scratch: Vec<u8>,
}

impl Unpack {
    pub(super) fn new(header: &Header) -> Result<Self, DecodeError> {
        let failed = |reason| DecodeError::Bad(format!("its compressed clusters cannot be unpacked: {reason}"));
        Ok(Self { inflater: Inflater::new(header.compression).map_err(failed)?, scratch: Vec::new() })
    }

    fn cluster(&mut self, item: &Item, stored: &[u8], placer: &mut Placer) -> Result<(), DecodeError> {
        let length = (item.raw.end - item.raw.start) as usize;
        if let Some(space) = placer.sink.space().get_mut(..length) {
            self.unpack(item, stored, space)?;
            return placer.sink.filled(length);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(length, 0);
        let done = self.unpack(item, stored, &mut scratch).and_then(|()| placer.copy(&scratch));
        self.scratch = scratch;
        done
    }

    /// One cluster into memory.
    pub(super) fn unpack(&mut self, item: &Item, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        self.inflater.fill(stored, out).map_err(|reason| {
            let at = item.raw.start;
            if item.cut {
                DecodeError::Unfinished(format!("it stops in the compressed cluster of the guest offset {at}"))
            } else {
                DecodeError::Bad(format!("its compressed cluster of the guest offset {at} does not decode: {reason}"))
            }
        })
    }
}
