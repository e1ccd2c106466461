//! Checks what every index must promise, independent of its source format.

use super::{ALIGNMENT, ChunkKind, Index, IndexError, MAX_CHUNK_BYTES, MAX_CHUNKS, MIN_CHUNK_BYTES, StoredAs, damaged};

/// The largest image, bytes: file offsets are signed.
const MAX_BYTES: u64 = i64::MAX as u64;

/// Whether a packed image may have chunks of so many raw bytes.
pub(super) fn chunk_size(bytes: u64) -> Result<(), IndexError> {
    if bytes.is_power_of_two() && (MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(damaged(format!("chunks of {bytes} bytes; they are powers of two from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}")))
}

impl Index {
    /// The promises of the type.
    pub(super) fn check(&self) -> Result<(), IndexError> {
        let packed = self.format == StoredAs::Zstd;
        if self.raw_bytes == 0 || self.raw_bytes > MAX_BYTES || self.stored_bytes > MAX_BYTES {
            return Err(damaged(format!("an image of {} bytes, stored in {}", self.raw_bytes, self.stored_bytes)));
        }
        if packed {
            chunk_size(self.chunk_bytes)?;
        }
        if self.chunks.len() > MAX_CHUNKS {
            return Err(IndexError::TooLarge { limit: MAX_CHUNKS as u64, unit: "chunks" });
        }
        let (mut raw, mut stored) = (0, 0);
        for (number, chunk) in self.chunks.iter().enumerate() {
            let wrong = |what: &str| Err(damaged(format!("chunk {number} {what}")));
            if chunk.raw.start != raw || chunk.raw.end <= raw {
                return wrong("does not begin where the one before it ends");
            }
            if chunk.raw.end > self.raw_bytes {
                return wrong("extends beyond the end of the image");
            }
            let end = if packed { self.chunk_bytes } else { ALIGNMENT };
            if !chunk.raw.end.is_multiple_of(end) && chunk.raw.end != self.raw_bytes {
                return wrong("ends in the middle of a chunk");
            }
            raw = chunk.raw.end;
            if !packed {
                if chunk.stored != (0..0) {
                    return wrong("has a place in a file that is stored as a whole");
                }
                continue;
            }
            if chunk.stored.start != stored || chunk.stored.end <= stored {
                return wrong("is not stored right behind the one before it");
            }
            if chunk.stored.end > self.stored_bytes {
                return wrong("is stored behind the end of the file");
            }
            stored = chunk.stored.end;
            if let ChunkKind::Data { stored_digest, raw_digest } = chunk.kind {
                if chunk.raw_bytes() > self.chunk_bytes {
                    return wrong("is larger than a chunk");
                }
                // One digest is enough to write it; without the other, a restart would fetch data that the disk already
                // holds.
                if stored_digest.is_none() || raw_digest.is_none() {
                    return wrong("has no digest");
                }
            }
        }
        if raw == self.raw_bytes {
            return Ok(());
        }
        Err(damaged(format!("its chunks end at byte {raw} of an image of {}", self.raw_bytes)))
    }
}
