//! bzip2: stream after stream. Each block's and each stream's CRC is verified by the library.

use bzip2::{Decompress, Error, Status};

use super::reader::{Reader, Step, bad, cut};
use super::{DecodeError, Input, Limits, Sink};

/// The first bytes of a stream; a digit for the block size follows.
const MAGIC: [u8; 3] = *b"BZh";
/// What the library takes to decompress, and what for each step of that digit, bytes (bzip2's manual, 2.4: 100k + 4 ×
/// block size).
const STATE: u64 = 100_000;
const LEVEL: u64 = 400_000;

pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
    let mut input = Reader::new(input);
    for stream in 1_u64.. {
        let start = input.offset();
        let garbage =
            |_: &[u8]| bad(format!("after {} bzip2 streams, at stored byte {start}, is unknown data", stream - 1));
        if input.begins(&[(MAGIC, ())], garbage)?.is_none() && stream > 1 {
            return Ok(());
        }
        let corrupt =
            |error| bad(format!("bzip2 stream {stream}, which begins at stored byte {start}, {}", describe(error)));
        let mut library = Decompress::new(false);
        // A context of its own for each stream: the library cannot begin again.
        library.decompress(&MAGIC, &mut []).map_err(corrupt)?;
        let [level] = input.take("header of a bzip2 stream")?;
        // Another character is refused by the library.
        let memory = STATE + LEVEL * char::from(level).to_digit(10).map_or(0, u64::from);
        limits.allow(memory)?;
        library.decompress(&[level], &mut []).map_err(corrupt)?;
        let whole = input.pump(sink, |bytes, space| {
            let (taken, made) = (library.total_in(), library.total_out());
            let status = library.decompress(bytes, space).map_err(corrupt)?;
            if status == Status::MemNeeded {
                return Err(DecodeError::Memory(memory));
            }
            Ok(Step {
                taken: (library.total_in() - taken) as usize,
                made: (library.total_out() - made) as usize,
                ended: status == Status::StreamEnd,
            })
        })?;
        if !whole {
            return Err(cut("middle of a bzip2 stream"));
        }
    }
    Ok(())
}

fn describe(error: Error) -> &'static str {
    match error {
        Error::DataMagic => "does not begin as one",
        Error::Data => "is corrupt or fails its own checksum",
        Error::Param | Error::Sequence => "cannot be decoded",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use bzip2::{Compression, write::BzEncoder};
    use proptest::prelude::*;

    use super::super::testing::{check_format, decode_all, sample};
    use super::*;
    use crate::Format;

    fn stream(raw: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = BzEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(raw).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn one_stream_decodes_and_cut_or_extended_ones_fail() {
        for level in [1, 9] {
            check_format(Format::Bzip2, &stream(&sample(), level), &sample());
        }
    }

    #[test]
    fn any_number_of_streams_decode_empty_ones_among_them() {
        let data = sample();
        let parts = [&data[..0], &data[..70_001], &data[70_001..70_002], &data[70_002..], &data[..0]];
        let stored: Vec<u8> = parts.iter().flat_map(|part| stream(part, 9)).collect();
        for step in [1, 7, 4096, stored.len()] {
            assert!(decode_all(Format::Bzip2, &stored, step).unwrap() == data, "step {step}");
        }
        assert!(matches!(decode_all(Format::Bzip2, &stored[..stored.len() - 12], 64), Err(DecodeError::Unfinished(_))));
    }

    #[test]
    fn a_corrupt_stream_is_named_with_its_place() {
        let first = stream(b"first", 9);
        let mut stored = [first.clone(), stream(&sample(), 9)].concat();
        let at = first.len() + 40;
        stored[at] ^= 1;
        let Err(DecodeError::Bad(why)) = decode_all(Format::Bzip2, &stored, 4096) else { panic!("accepted") };
        assert!(why.contains(&format!("bzip2 stream 2, which begins at stored byte {}", first.len())), "{why}");
    }

    proptest! {
        #[test]
        fn arbitrary_streams_never_panic_and_always_end(level in b'0'..=b':', bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let stored = [&b"BZh"[..], &[level], b"1AY&SY", &bytes].concat();
            // Only a panic or an endless loop would fail this test.
            let _ = decode_all(Format::Bzip2, &stored, 64);
        }

        #[test]
        fn an_altered_byte_is_never_a_success_with_other_content(at in any::<prop::sample::Index>(), flip in 1_u8..) {
            let mut stored = stream(&sample()[..20_000], 9);
            let at = at.index(stored.len());
            stored[at] ^= flip;
            if let Ok(raw) = decode_all(Format::Bzip2, &stored, 512) {
                // Of the block size or the padding of the last byte only.
                prop_assert!(raw == sample()[..20_000]);
            }
        }
    }
}
