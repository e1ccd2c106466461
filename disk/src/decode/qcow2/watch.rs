//! Holds the stream to what was read of the file before it. The tables decide where every byte goes, so the digest of
//! the whole file proves the image only if the file it was made of has the very same tables.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::super::DecodeError;

/// Bytes of the file that were read beforehand.
#[derive(Debug)]
pub(super) struct Watched {
    place: Range<u64>,
    digest: [u8; 32],
}

impl Watched {
    /// These bytes were found from `start` on.
    pub(super) fn new(start: u64, bytes: &[u8]) -> Self {
        Self::hashed(start, bytes.len() as u64, Sha256::new_with_prefix(bytes))
    }

    /// So many bytes from `start` on were hashed.
    pub(super) fn hashed(start: u64, length: u64, hasher: Sha256) -> Self {
        Self { place: start..start + length, digest: hasher.finalize().into() }
    }

    /// Where they are.
    pub(super) fn place(&self) -> Range<u64> {
        self.place.clone()
    }
}

/// Compares the stream with what was read beforehand.
pub(super) struct Watch<'a> {
    /// Still to come to their end; sorted, none overlapping.
    rest: &'a [Watched],
    hasher: Sha256,
}

impl<'a> Watch<'a> {
    pub(super) fn new(watched: &'a [Watched]) -> Self {
        Self { rest: watched, hasher: Sha256::new() }
    }

    /// The stream has these bytes at this offset. They come without gaps.
    pub(super) fn see(&mut self, at: u64, bytes: &[u8]) -> Result<(), DecodeError> {
        let end = at + bytes.len() as u64;
        while let [first, after @ ..] = self.rest {
            let part = first.place.start.max(at)..first.place.end.min(end);
            if !part.is_empty() {
                // Both lie within what `bytes` has.
                self.hasher.update(&bytes[(part.start - at) as usize..(part.end - at) as usize]);
            }
            if first.place.end > end {
                return Ok(());
            }
            let digest: [u8; 32] = self.hasher.finalize_reset().into();
            if digest != first.digest {
                return Err(DecodeError::Bad(format!(
                    "the file changed while it was read: its bytes {} to {} differ from the first read",
                    first.place.start, first.place.end
                )));
            }
            self.rest = after;
        }
        Ok(())
    }

    /// Everything passed by; it has `total` bytes.
    pub(super) fn finish(&self, total: u64) -> Result<(), DecodeError> {
        match self.rest.first() {
            None => Ok(()),
            Some(missing) => Err(DecodeError::Unfinished(format!(
                "it has {total} bytes, but had at least {} when its tables were read",
                missing.place.end
            ))),
        }
    }
}
