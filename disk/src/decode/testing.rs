//! Decoding in tests: everything in memory, fed in pieces.

use std::sync::Arc;

use crossbeam_channel::unbounded;

use super::{DecodeError, Decoded, Limits, Sink, decode};
pub(crate) use crate::fuzzing::Pieces;
use crate::{Format, buffer::Pool};

/// Runs `run` on a sink with blocks of 64 KiB and puts together what came out. The first piece must be the start, and no
/// byte may come twice.
pub(crate) fn collect(run: impl FnOnce(&mut Sink) -> Result<(), DecodeError>) -> Result<Vec<u8>, DecodeError> {
    let (out, pieces) = unbounded();
    let mut sink = Sink::new(Arc::new(Pool::new(64 * 1024)), out);
    run(&mut sink)?;
    sink.flush()?;
    let mut image = vec![0; sink.end() as usize];
    let mut seen = vec![false; image.len()];
    drop(sink);
    for (i, piece) in pieces.iter().enumerate() {
        let (offset, length) = match piece.unwrap() {
            Decoded::Block { offset, bytes } => {
                let at = offset as usize;
                image[at..at + bytes.len].copy_from_slice(bytes.data());
                (offset, bytes.len)
            }
            Decoded::Zeroes(range) => (range.start, (range.end - range.start) as usize),
        };
        assert!(i > 0 || offset == 0, "the first piece is the image's start");
        let marks = &mut seen[offset as usize..offset as usize + length];
        assert!(marks.iter().all(|seen| !seen), "a byte came twice");
        marks.fill(true);
    }
    assert!(seen.iter().all(|seen| *seen), "the pieces cover the image");
    Ok(image)
}

/// Everything `stored` decodes to.
pub(crate) fn decode_all(format: Format, stored: &[u8], step: usize) -> Result<Vec<u8>, DecodeError> {
    collect(|sink| decode(format, &mut Pieces { bytes: stored, step }, sink, Limits::default()))
}

/// Bytes that compress, with runs of zeroes.
pub(crate) fn sample() -> Vec<u8> {
    (0..50_000_u32).flat_map(|i| if i % 20_000 < 6_000 { [0; 4] } else { (i / 7).to_le_bytes() }).collect()
}

/// Truncated at many lengths, it never succeeds; complete, it decodes correctly in steps of any size.
pub(crate) fn check_format(format: Format, stored: &[u8], raw: &[u8]) {
    for step in [1, 7, 4096, stored.len()] {
        assert!(decode_all(format, stored, step).unwrap() == raw, "{format} in steps of {step}");
    }
    for length in (1..stored.len()).step_by(stored.len() / 61 + 1).chain([stored.len() - 1]) {
        let cut = decode_all(format, &stored[..length], 4096);
        assert!(
            matches!(cut, Err(DecodeError::Unfinished(_))),
            "{format} cut at {length}: {:?}",
            cut.map(|raw| raw.len())
        );
    }
    for garbage in [&b"x"[..], b"garbage", &[0xff; 600]] {
        let longer = [stored, garbage].concat();
        assert!(decode_all(format, &longer, 4096).is_err(), "{format} with {garbage:?} after it");
    }
}

/// A disk's content: of every 48 KiB so many eighths are zero, some compress, a quarter does not.
pub(crate) fn content(length: usize, zero: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = match (out.len() / (48 << 10)).wrapping_mul(0x9e37_79b1) >> 7 & 7 {
            part if part < zero => 0,
            0..6 => state & 0x0f0f_0000_0000_0f0f,
            _ => state,
        };
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.truncate(length);
    out
}
