//! The blocks of a bmap, checked as raw bytes pass: mapped ones by their digest, the others made zero.

use sha2::{Digest as _, Sha256};

use super::hasher::ZEROES;
use crate::decode::Decoded;
use crate::index::{Chunk, ChunkKind, Index};
use crate::{Defect, WriteError};

/// Where the check is. Bytes must come in order.
pub(super) struct Blocks<'a> {
    index: &'a Index,
    image: &'a str,
    /// The chunk the next byte belongs to.
    chunk: usize,
    /// Offset of the next byte.
    at: u64,
    hasher: Sha256,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(index: &'a Index, image: &'a str) -> Self {
        Self { index, image, chunk: 0, at: 0, hasher: Sha256::new() }
    }

    /// Checks a piece, and makes zero what the map does not name.
    pub(super) fn check(&mut self, piece: &mut Decoded) -> Result<(), WriteError> {
        let range = piece.range();
        if range.start != self.at {
            return Err(WriteError::Internal("raw bytes came out of order".into()));
        }
        while self.at < range.end {
            let Some(chunk) = self.index.chunks.get(self.chunk) else {
                let reason = format!("it goes on after the {} bytes of its map", self.index.raw_bytes);
                return Err(WriteError::BadFormat { subject: self.image.into(), reason, defect: Defect::Beside });
            };
            let part = self.at..chunk.raw.end.min(range.end);
            let within = (part.start - range.start) as usize..(part.end - range.start) as usize;
            match (piece as &mut Decoded, chunk.is_data()) {
                (Decoded::Block { bytes, .. }, true) => self.hasher.update(&bytes.data()[within]),
                (Decoded::Block { bytes, .. }, false) => bytes.space_used()[within].fill(0),
                (Decoded::Zeroes(_), true) => {
                    let mut rest = part.end - part.start;
                    while rest > 0 {
                        let now = rest.min(ZEROES.len() as u64);
                        self.hasher.update(&ZEROES[..now as usize]);
                        rest -= now;
                    }
                }
                (Decoded::Zeroes(_), false) => {}
            }
            self.at = part.end;
            if self.at == chunk.raw.end {
                self.finish(chunk)?;
                self.chunk += 1;
            }
        }
        Ok(())
    }

    /// All bytes have come: was the last block among them?
    pub(super) fn end(&self) -> Result<(), WriteError> {
        if self.at == self.index.raw_bytes {
            return Ok(());
        }
        let reason = format!("it holds {} bytes and its map says {}", self.at, self.index.raw_bytes);
        Err(WriteError::Truncated { subject: self.image.into(), reason })
    }

    fn finish(&mut self, chunk: &Chunk) -> Result<(), WriteError> {
        let found = std::mem::take(&mut self.hasher).finalize();
        match chunk.kind {
            ChunkKind::Data { raw_digest: Some(expected), .. } if found[..] != expected => {
                Err(WriteError::ChunkMismatch {
                    url: self.image.into(),
                    offset: chunk.raw.start,
                    length: chunk.raw_bytes(),
                })
            }
            ChunkKind::Data { raw_digest: None, .. } => {
                Err(WriteError::Internal("a block without a digest cannot be proven".into()))
            }
            _ => Ok(()),
        }
    }
}
