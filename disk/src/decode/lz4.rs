//! The LZ4 frame format (version 1.6): frame after frame, skippable ones among them. The library verifies the checksums
//! of headers, blocks and content wherever a frame has them, and its content size.

use std::io::{self, Read};

use lz4_flex::frame::FrameDecoder;

use super::reader::{Reader, bad, cut};
use super::{DecodeError, Input, Limits, Sink};

/// First bytes of a frame.
const FRAME: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// First bytes of a frame of the format before this one (`lz4 -l`), which has neither checksums nor an end.
const LEGACY: [u8; 4] = 0x184c_2102_u32.to_le_bytes();
/// First bytes of a skippable frame but for the lower half of the first, which is anything.
const SKIPPABLE: u32 = 0x184d_2a50;
/// How far back a block may refer to those before it, bytes.
const WINDOW: u64 = 64 << 10;

#[derive(Clone, Copy)]
enum Begins {
    Frame,
    Skippable,
    Legacy,
}

pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
    let mut input = Reader::new(input);
    let mut known = vec![(FRAME, Begins::Frame), (LEGACY, Begins::Legacy)];
    known.extend((0..16).map(|i| ((SKIPPABLE + i).to_le_bytes(), Begins::Skippable)));
    for number in 1_u64.. {
        let start = input.offset();
        let garbage =
            |_: &[u8]| bad(format!("after {} LZ4 frames, at stored byte {start}, is unknown data", number - 1));
        match input.begins(&known, garbage)? {
            None if number == 1 => return Err(cut("first LZ4 frame")),
            None => break,
            Some(Begins::Frame) => frame(&mut input, sink, limits).map_err(|error| match error {
                DecodeError::Bad(reason) => {
                    bad(format!("LZ4 frame {number}, which begins at stored byte {start}, cannot be decoded: {reason}"))
                }
                other => other,
            })?,
            Some(Begins::Skippable) => {
                let length = u32::from_le_bytes(input.take("skippable LZ4 frame")?);
                input.skip(length.into(), "skippable LZ4 frame")?;
            }
            Some(Begins::Legacy) => {
                return Err(bad(
                    "it is in the legacy LZ4 format, which cannot show a cut; compress it again without -l",
                ));
            }
        }
    }
    Ok(())
}

/// One frame, its magic already taken.
fn frame(input: &mut Reader<'_>, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
    let descriptor = input.take("header of an LZ4 frame")?;
    limits.allow(memory(descriptor))?;
    let start = [FRAME.as_slice(), &descriptor].concat();
    let mut feed = Feed { input, stopped: None };
    let mut decoder = FrameDecoder::new(start.chain(&mut feed));
    let failed = loop {
        match decoder.read(sink.space()) {
            // The input may also have ended in a block's header; `stopped` shows that.
            Ok(0) => break None,
            Ok(n) => sink.filled(n)?,
            Err(error) => break Some(error),
        }
    };
    drop(decoder);
    match (feed.stopped, failed) {
        (Some(stopped), _) => Err(stopped),
        (None, Some(error)) => Err(bad(error.to_string())),
        (None, None) => Ok(()),
    }
}

/// What the library takes for a frame whose descriptor begins like this, bytes: a block as stored and one as decoded,
/// and where blocks refer to those before, one more and what they can refer to. (The format's specification, "Frame
/// Descriptor": block independence is bit 5 of the first byte; bits 4 to 6 of the second are 4 to 7 for 64 KiB to 4 MiB,
/// and the library refuses others.)
fn memory([flags, sizes]: [u8; 2]) -> u64 {
    let block = 1_u64 << (8 + 2 * (sizes >> 4 & 7));
    let linked = flags & (1 << 5) == 0;
    2 * block + if linked { block + WINDOW } else { 0 }
}

/// The input in the shape that the library needs. The library reads nothing beyond its frame, so an end of input is a
/// cut.
struct Feed<'r, 'i> {
    input: &'r mut Reader<'i>,
    /// Why it got no data.
    stopped: Option<DecodeError>,
}

impl Read for Feed<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = match self.input.fill() {
            Ok(bytes) => bytes,
            Err(error) => {
                self.stopped = Some(error);
                return Err(io::Error::other("the input failed"));
            }
        };
        let n = bytes.len().min(buffer.len());
        buffer[..n].copy_from_slice(&bytes[..n]);
        self.input.consume(n);
        if n == 0 && !buffer.is_empty() {
            self.stopped = Some(cut("middle of an LZ4 frame"));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use proptest::prelude::*;

    use super::super::testing::{Pieces, check_format, collect, decode_all, sample};
    use super::*;
    use crate::{Format, WriteError};

    fn framed(info: FrameInfo, raw: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(raw).unwrap();
        encoder.finish().unwrap()
    }

    fn skippable(length: u32) -> Vec<u8> {
        let mut frame = 0x184d_2a5f_u32.to_le_bytes().to_vec();
        frame.extend(length.to_le_bytes());
        frame.resize(8 + length as usize, 9);
        frame
    }

    #[test]
    fn every_frame_kind_decodes_and_cut_or_extended_ones_fail() {
        let data = sample();
        let kinds = [
            FrameInfo::new(),
            FrameInfo::new().block_mode(BlockMode::Linked).block_size(BlockSize::Max64KB).content_checksum(true),
            FrameInfo::new().block_size(BlockSize::Max4MB).block_checksums(true).content_size(Some(data.len() as u64)),
        ];
        for info in kinds {
            check_format(Format::Lz4, &framed(info, &data), &data);
        }
    }

    #[test]
    fn any_number_of_frames_and_skippable_ones_decode() {
        let data = sample();
        let info = || FrameInfo::new().content_checksum(true);
        let stored = [
            skippable(100),
            framed(info(), &data[..70_001]),
            skippable(0),
            framed(info(), b""),
            framed(info(), &data[70_001..]),
            skippable(3),
        ];
        let stored = stored.concat();
        for step in [1, 7, 4096, stored.len()] {
            assert!(decode_all(Format::Lz4, &stored, step).unwrap() == data, "step {step}");
        }
        assert!(matches!(decode_all(Format::Lz4, &stored[..stored.len() - 5], 64), Err(DecodeError::Unfinished(_))));
    }

    #[test]
    fn the_legacy_format_is_refused_by_name() {
        let stored = [framed(FrameInfo::new(), b"raw"), LEGACY.to_vec(), vec![0; 100]].concat();
        assert!(matches!(decode_all(Format::Lz4, &stored, 64), Err(DecodeError::Bad(why)) if why.contains("legacy")));
    }

    #[test]
    fn altered_content_fails_its_checksum_and_names_its_place() {
        let first = framed(FrameInfo::new(), b"first");
        let second = framed(FrameInfo::new().content_checksum(true), &sample());
        let mut stored = [first.clone(), second].concat();
        let last = stored.len() - 1;
        stored[last] ^= 1;
        let Err(DecodeError::Bad(why)) = decode_all(Format::Lz4, &stored, 4096) else { panic!("accepted") };
        assert!(why.contains(&format!("LZ4 frame 2, which begins at stored byte {}", first.len())), "{why}");
    }

    /// An input that fails after some bytes.
    struct Failing<'a>(Pieces<'a>);
    impl Input for Failing<'_> {
        fn fill(&mut self) -> Result<&[u8], DecodeError> {
            let failed = || DecodeError::Input(WriteError::Cancelled { device: "a disk".into() });
            if self.0.bytes.is_empty() { Err(failed()) } else { self.0.fill() }
        }
        fn consume(&mut self, bytes: usize) {
            self.0.consume(bytes);
        }
    }

    #[test]
    fn an_error_of_the_input_comes_through_as_it_is() {
        let stored = framed(FrameInfo::new(), &sample());
        for length in [2, 5, 9, 100, stored.len() - 2] {
            let mut input = Failing(Pieces { bytes: &stored[..length], step: 64 });
            let error = collect(|sink| decode(&mut input, sink, Limits::default())).unwrap_err();
            assert!(matches!(error, DecodeError::Input(WriteError::Cancelled { .. })), "after {length}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic_and_always_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            // Both a header of its own and one that is valid.
            for start in [&FRAME[..], &framed(FrameInfo::new(), b"")[..7]] {
                // Only a panic or an endless loop would fail this test.
                let _ = decode_all(Format::Lz4, &[start, &bytes].concat(), 64);
            }
        }
    }
}
