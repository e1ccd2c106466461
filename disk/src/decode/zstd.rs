//! Zstandard (RFC 8878): frame after frame, skippable ones among them. Frames that declare a small content are decoded
//! several at once; all others as they come.

mod frame;
mod workers;

use std::{ops::RangeInclusive, thread};

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::reader::{Reader, Step, bad, cut};
use super::{DecodeError, Input, Limits, Sink, WINDOW_MAX};
use frame::Header;
use workers::{FRAME_MAX, Shared, Workers};

/// Magic numbers of skippable frames.
const SKIPPABLE: RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;
/// Magic numbers of the formats of zstd 0.2 to 0.7.
const LEGACY: RangeInclusive<u32> = 0xfd2f_b522..=0xfd2f_b527;

#[derive(Clone, Copy)]
enum Begins {
    Frame,
    Skippable,
    Legacy,
}

/// Which frame it is, for messages.
#[derive(Debug, Clone, Copy)]
struct Place {
    number: u64,
    /// Stored offset of its first byte.
    start: u64,
}

impl Place {
    /// Puts the frame's name before a clause such as "is corrupt".
    fn bad(self, reason: &str) -> DecodeError {
        bad(format!("zstd frame {}, which begins at stored byte {}, {reason}", self.number, self.start))
    }

    fn name(self, error: DecodeError) -> DecodeError {
        match error {
            DecodeError::Bad(reason) => self.bad(&reason),
            other => other,
        }
    }
}

pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
    let shared = Shared::default();
    let walked = thread::scope(|scope| walk(input, sink, Workers::new(scope, &shared, limits), limits));
    // What a worker found lies before where the walk stopped.
    shared.into_error().map_or(walked, Err)
}

fn walk(
    input: &mut dyn Input, sink: &mut Sink, mut workers: Workers<'_, '_>, limits: Limits,
) -> Result<(), DecodeError> {
    let mut input = Reader::new(input);
    let mut stream = Stream::new()?;
    let mut known = vec![(frame::MAGIC, Begins::Frame)];
    known.extend(SKIPPABLE.map(|magic| (magic.to_le_bytes(), Begins::Skippable)));
    known.extend(LEGACY.map(|magic| (magic.to_le_bytes(), Begins::Legacy)));
    let mut stored = Vec::new();
    for number in 1_u64.. {
        let place = Place { number, start: input.offset() };
        let garbage = |_: &[u8]| {
            bad(format!("after {} zstd frames, at stored byte {}, is unknown data", number - 1, place.start))
        };
        match input.begins(&known, garbage)? {
            None if number == 1 => return Err(cut("first zstd frame")),
            None => break,
            Some(Begins::Skippable) => {
                let length = u32::from_le_bytes(input.take("header of a skippable zstd frame")?);
                input.skip(length.into(), "middle of a skippable zstd frame")?;
            }
            Some(Begins::Legacy) => {
                return Err(place.bad("is in a format from before zstd 0.8; compress it again with a newer zstd"));
            }
            Some(Begins::Frame) => {
                stored.clear();
                stored.extend(frame::MAGIC);
                let header = Header::take(&mut input, &mut stored).map_err(|error| place.name(error))?;
                if header.window > WINDOW_MAX {
                    let (wanted, most) = (header.window.div_ceil(1 << 20), WINDOW_MAX >> 20);
                    return Err(place.bad(&format!("needs a window of {wanted} MiB; the limit is {most} MiB")));
                }
                limits.allow(header.window)?;
                if let Some(content) = workers.would_take(&header, sink)
                    && header.gather_rest(&mut input, &mut stored, FRAME_MAX).map_err(|e| place.name(e))?
                {
                    workers.give(&mut stored, content, place, sink)?;
                } else {
                    workers.settle()?;
                    stream.frame(&mut input, sink, &stored, place)?;
                }
            }
        }
    }
    workers.settle()
}

/// Decodes a frame as it comes, in memory of its window.
struct Stream(Decoder<'static>);

impl Stream {
    fn new() -> Result<Self, DecodeError> {
        let mut context = Decoder::new().map_err(|e| bad(format!("zstd cannot start: {e}")))?;
        let limit = DParameter::WindowLogMax(WINDOW_MAX.ilog2());
        context.set_parameter(limit).map_err(|e| bad(format!("zstd refuses the window limit: {e}")))?;
        Ok(Self(context))
    }

    /// Decodes the frame that begins with `ahead` and goes on in `input`.
    fn frame(
        &mut self, input: &mut Reader<'_>, sink: &mut Sink, mut ahead: &[u8], place: Place,
    ) -> Result<(), DecodeError> {
        let whole = input.pump(sink, |bytes, space| {
            let first = !ahead.is_empty();
            let mut from = InBuffer::around(if first { ahead } else { bytes });
            let mut to = OutBuffer::around(space);
            let hint =
                self.0.run(&mut from, &mut to).map_err(|error| place.bad(&format!("cannot be decoded: {error}")))?;
            let (mut taken, made) = (from.pos(), to.pos());
            if first {
                ahead = &ahead[taken..];
                taken = 0;
            }
            Ok(Step { taken, made, ended: hint == 0 })
        })?;
        if whole { Ok(()) } else { Err(cut("middle of a zstd frame")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{Pieces, check_format, collect, decode_all, sample};
    use super::*;
    use crate::Format;

    fn skippable(length: u32) -> Vec<u8> {
        let mut frame = 0x184d_2a53_u32.to_le_bytes().to_vec();
        frame.extend(length.to_le_bytes());
        frame.resize(8 + length as usize, 9);
        frame
    }

    /// A frame that declares its content's size and has a checksum.
    fn sized(raw: &[u8]) -> Vec<u8> {
        let mut compressor = zstd::bulk::Compressor::new(3).unwrap();
        compressor.include_checksum(true).unwrap();
        compressor.compress(raw).unwrap()
    }

    /// As `landfall-image pack` makes it: frames of `each` raw bytes.
    fn packed(raw: &[u8], each: usize) -> Vec<u8> {
        raw.chunks(each).flat_map(sized).collect()
    }

    fn decode_with(limits: Limits, stored: &[u8], step: usize) -> Result<Vec<u8>, DecodeError> {
        collect(|sink| decode(&mut Pieces { bytes: stored, step }, sink, limits))
    }

    const EVERY: [Limits; 4] = [
        Limits { ordered: false, threads: 2, window: WINDOW_MAX },
        Limits { ordered: true, threads: 2, window: WINDOW_MAX },
        Limits { ordered: false, threads: 5, window: WINDOW_MAX },
        Limits { ordered: true, threads: 1, window: WINDOW_MAX },
    ];

    #[test]
    fn one_frame_decodes_and_cut_or_extended_ones_fail() {
        check_format(Format::Zstd, &zstd::encode_all(&sample()[..], 3).unwrap(), &sample());
        check_format(Format::Zstd, &sized(&sample()), &sample());
    }

    #[test]
    fn many_frames_decode_in_parallel_and_cut_ones_fail() {
        for each in [4096, 40_960, 65_536, 131_072] {
            let stored = packed(&sample(), each);
            for length in [stored.len() - 1, stored.len() / 2 + 1, 3, 4, 5] {
                for limits in EVERY {
                    let cut = decode_with(limits, &stored[..length], 4096);
                    assert!(matches!(cut, Err(DecodeError::Unfinished(_))), "{each}, cut at {length}, {limits:?}");
                }
            }
            for limits in EVERY {
                for step in [1, 7, 4096, stored.len()] {
                    assert!(decode_with(limits, &stored, step).unwrap() == sample(), "{each}, {step}, {limits:?}");
                }
                assert!(matches!(
                    decode_with(limits, &[&stored[..], b"garbage"].concat(), 64),
                    Err(DecodeError::Bad(_))
                ));
            }
        }
    }

    #[test]
    fn frames_of_every_kind_and_size_decode_side_by_side() {
        let data: Vec<u8> = sample().into_iter().cycle().take(1_500_000).collect();
        let mut stored = skippable(100);
        let mut at = 0;
        // Aligned, unaligned, empty, larger than a block, without a size, and aligned again.
        for (length, with_size) in [
            (8192, true),
            (65_536, true),
            (4096, true),
            (5000, true),
            (0, true),
            (3192, true),
            (200_704, true),
            (70_000, false),
            (1, true),
            (131_072, true),
            (4095, true),
            (4096, true),
            (12_288, true),
            (69_632, false),
        ] {
            let part = &data[at..at + length];
            stored.extend(if with_size { sized(part) } else { zstd::encode_all(part, 3).unwrap() });
            stored.extend(skippable(at as u32 % 7));
            at += length;
        }
        stored.extend(packed(&data[at..], 32_768));
        for limits in EVERY {
            for step in [61, 4096, stored.len()] {
                assert!(decode_with(limits, &stored, step).unwrap() == data, "step {step}, {limits:?}");
            }
        }
    }

    #[test]
    fn pieces_come_in_order_where_that_is_asked_for() {
        // Every other frame takes much longer than the one after it.
        let slow = (0..65_536_u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 25) as u8 & 0x3f);
        let data: Vec<u8> = slow.chain([0; 65_536]).collect::<Vec<_>>().repeat(20);
        let stored = packed(&data, 65_536);
        let (out, pieces) = crossbeam_channel::unbounded();
        let mut sink = Sink::new(std::sync::Arc::new(crate::buffer::Pool::new(64 * 1024)), out);
        let limits = Limits { ordered: true, threads: 4, ..Limits::default() };
        decode(&mut Pieces { bytes: &stored, step: 4096 }, &mut sink, limits).unwrap();
        sink.flush().unwrap();
        drop(sink);
        let mut next = 0;
        for piece in pieces {
            let super::super::Decoded::Block { offset, bytes } = piece.unwrap() else { panic!("no block") };
            assert_eq!(offset, next);
            next += bytes.len as u64;
        }
        assert_eq!(next, data.len() as u64);
    }

    #[test]
    fn a_corrupt_frame_is_named_in_parallel_too() {
        let frames: Vec<_> = sample().chunks(4096).map(sized).collect();
        let start: usize = frames[..30].iter().map(Vec::len).sum();
        let mut stored = frames.concat();
        // Its checksum.
        stored[start + frames[30].len() - 1] ^= 1;
        for limits in EVERY {
            let Err(DecodeError::Bad(why)) = decode_with(limits, &stored, 4096) else { panic!("accepted") };
            assert!(why.contains(&format!("zstd frame 31, which begins at stored byte {start},")), "{why}");
        }
    }

    #[test]
    fn a_closed_output_ends_the_decoding() {
        let stored = packed(&sample(), 4096);
        for limits in EVERY {
            let (out, pieces) = crossbeam_channel::bounded(1);
            let mut sink = Sink::new(std::sync::Arc::new(crate::buffer::Pool::new(4096)), out);
            let result = thread::scope(|scope| {
                scope.spawn(move || pieces.into_iter().take(3).count());
                decode(&mut Pieces { bytes: &stored, step: 4096 }, &mut sink, limits)
            });
            assert!(matches!(result, Err(DecodeError::Abandoned)), "{limits:?}: {result:?}");
        }
    }

    #[test]
    fn any_number_of_frames_and_skippable_ones_decode() {
        let data = sample();
        let mut stored = skippable(100);
        stored.extend(zstd::encode_all(&data[..70_000], 3).unwrap());
        stored.extend(skippable(3));
        stored.extend(zstd::encode_all(&data[70_000..], 3).unwrap());
        stored.extend(skippable(0));
        for step in [1, 7, 4096, stored.len()] {
            assert!(decode_all(Format::Zstd, &stored, step).unwrap() == data, "step {step}");
        }
        stored.extend(&skippable(9)[..12]);
        assert!(matches!(decode_all(Format::Zstd, &stored, 64), Err(DecodeError::Unfinished(_))));
    }

    #[test]
    fn a_window_over_the_limit_is_refused_before_any_output() {
        let mut encoder = zstd::stream::raw::Encoder::new(1).unwrap();
        encoder.set_parameter(zstd::stream::raw::CParameter::WindowLog(28)).unwrap();
        let mut stored = Vec::new();
        let mut writer = zstd::stream::zio::Writer::new(&mut stored, encoder);
        std::io::Write::write_all(&mut writer, &sample()).unwrap();
        writer.finish().unwrap();
        let error = decode_all(Format::Zstd, &stored, 4096).unwrap_err();
        assert!(matches!(error, DecodeError::Bad(why) if why.contains("256 MiB") && why.contains("128 MiB")));
    }

    #[test]
    fn the_formats_of_old_are_refused_by_name() {
        for magic in LEGACY {
            let stored = [&sized(b"raw")[..], &magic.to_le_bytes(), &[0; 50]].concat();
            assert!(matches!(decode_all(Format::Zstd, &stored, 64), Err(DecodeError::Bad(why)) if why.contains("0.8")));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic_and_always_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            // First and streamed, and later and in parallel.
            let before = sized(&sample()[..65_536]);
            for before in [&[][..], &before] {
                // Only a panic or an endless loop would fail this test.
                let _ = decode_all(Format::Zstd, &[before, &frame::MAGIC, &bytes].concat(), 64);
            }
        }

        #[test]
        fn an_altered_byte_is_never_a_success_with_other_content(at in any::<prop::sample::Index>(), flip in 1_u8..) {
            let mut stored = packed(&sample(), 16_384);
            let at = at.index(stored.len());
            stored[at] ^= flip;
            for limits in EVERY {
                if let Ok(raw) = decode_with(limits, &stored, 512) {
                    prop_assert!(raw == sample());
                }
            }
        }
    }
}
