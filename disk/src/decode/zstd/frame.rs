//! Where a Zstandard frame ends and what it declares, without decoding it (RFC 8878, 3.1.1).

use super::super::DecodeError;
use super::super::reader::{Reader, bad, cut};

/// First bytes of a frame.
pub(super) const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// A block has at most this many bytes, stored or raw.
const BLOCK_MAX: usize = 128 * 1024;
const MIDDLE: &str = "middle of a zstd frame";

/// What a frame's header declares.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of raw content.
    pub(super) content: Option<u64>,
    /// Bytes that must be kept to decode it as a stream.
    pub(super) window: u64,
    checksum: bool,
    dictionary: bool,
}

impl Header {
    /// Takes a header from `input` and appends it to `frame`, which holds the magic.
    pub(super) fn take(input: &mut Reader<'_>, frame: &mut Vec<u8>) -> Result<Self, DecodeError> {
        let [descriptor] = input.take(MIDDLE)?;
        frame.push(descriptor);
        let single_segment = descriptor & 0b10_0000 != 0;
        if descriptor & 0b1000 != 0 {
            return Err(bad("sets a reserved bit"));
        }
        let mut field = |bytes: usize| {
            let at = frame.len();
            if !input.gather(frame, bytes)? {
                return Err(cut(MIDDLE));
            }
            Ok(frame[at..].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let exponent_mantissa = if single_segment { 0 } else { field(1)? };
        let dictionary = field([0, 1, 2, 4][usize::from(descriptor & 0b11)])? != 0;
        let content = match (descriptor >> 6, single_segment) {
            (0, false) => None,
            (0, true) => Some(field(1)?),
            (1, _) => Some(field(2)? + 256),
            (2, _) => Some(field(4)?),
            _ => Some(field(8)?),
        };
        let window = match content {
            Some(content) if single_segment => content,
            _ => {
                let base = 1_u64 << (10 + (exponent_mantissa >> 3));
                base + base / 8 * (exponent_mantissa & 7)
            }
        };
        Ok(Self { content, window, checksum: descriptor & 0b100 != 0, dictionary })
    }

    /// Whether content of at most `most` bytes is declared and can be decoded by itself.
    pub(super) fn content_up_to(&self, most: u64) -> Option<usize> {
        let content = self.content.filter(|content| *content <= most && !self.dictionary)?;
        usize::try_from(content).ok()
    }

    /// Appends the rest of the frame to what [`Header::take`] left; false where it would be more than `most` bytes: then
    /// it holds the frame's start.
    pub(super) fn gather_rest(
        &self, input: &mut Reader<'_>, frame: &mut Vec<u8>, most: usize,
    ) -> Result<bool, DecodeError> {
        loop {
            let block = input.take::<3>(MIDDLE)?;
            frame.extend(block);
            let [low, middle, high] = block;
            let number = u32::from_le_bytes([low, middle, high, 0]);
            let (last, kind, size) = (number & 1 == 1, number >> 1 & 0b11, (number >> 3) as usize);
            if kind == 3 || size > BLOCK_MAX {
                return Err(bad("has a block of an invalid type"));
            }
            // The size of a run is that of its content.
            let stored = if kind == 1 { 1 } else { size } + if last && self.checksum { 4 } else { 0 };
            if frame.len() + stored > most {
                return Ok(false);
            }
            if !input.gather(frame, stored)? {
                return Err(cut(MIDDLE));
            }
            if last {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::testing::{Pieces, sample};
    use super::*;

    fn walk(stored: &[u8], most: usize) -> Result<(Header, bool, Vec<u8>), DecodeError> {
        let mut pieces = Pieces { bytes: stored, step: 5 };
        let mut input = Reader::new(&mut pieces);
        let mut frame = input.take::<4>("magic")?.to_vec();
        let header = Header::take(&mut input, &mut frame)?;
        let whole = header.gather_rest(&mut input, &mut frame, most)?;
        Ok((header, whole, frame))
    }

    proptest! {
        #[test]
        fn a_frame_is_gathered_to_its_last_byte_whatever_follows(
            length in 0_usize..200_000, level in 1..19, checksum: bool, sized: bool, after in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let raw = &sample()[..length];
            let mut compressor = zstd::bulk::Compressor::new(level).unwrap();
            compressor.include_checksum(checksum).unwrap();
            compressor.include_contentsize(sized).unwrap();
            let frame = compressor.compress(raw).unwrap();
            let (header, whole, gathered) = walk(&[&frame[..], &after].concat(), usize::MAX).unwrap();
            prop_assert!(whole && gathered == frame);
            prop_assert_eq!(header.content, sized.then_some(length as u64));
            prop_assert!(header.window >= length.min(1024) as u64);
        }

        #[test]
        fn arbitrary_frames_are_walked_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            // Only a panic or an endless loop would fail this test.
            let _ = walk(&[&MAGIC[..], &bytes].concat(), 300);
        }
    }

    #[test]
    fn what_is_gathered_never_exceeds_the_limit() {
        let stored = zstd::encode_all(&sample()[..], 1).unwrap();
        let (_, whole, gathered) = walk(&stored, 1000).unwrap();
        assert!(!whole && gathered.len() <= 1003 && stored.starts_with(&gathered));
    }
}
