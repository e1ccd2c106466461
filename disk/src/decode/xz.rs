//! The .xz format (specification 1.2.1): stream after stream with padding between, the blocks of each decoded in parallel
//! where their headers state their sizes and memory allows. The library verifies CRC-32, CRC-64 and SHA-256.

use liblzma::stream::{Action, Error, MtStreamBuilder, Status};

use super::reader::{Reader, Step, bad, cut};
use super::{DecodeError, Input, Limits, Sink, WINDOW_MAX};

mod header;

use header::{BlockHeader, StreamHeader};

/// Beyond what the blocks declare, for decoding several at once. The other stages hold less than 24 MiB.
const PARALLEL: u64 = 40 << 20;
/// What the decoder needs besides its dictionary, at most.
const STATE: u64 = 1 << 20;

pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
    let mut input = Reader::new(input);
    for stream in 1_u64.. {
        let start = input.offset();
        if !next_stream(&mut input, stream)? {
            return Ok(());
        }
        let at = |reason: &str| bad(format!("xz stream {stream}, which begins at stored byte {start}, {reason}"));
        one_stream(&mut input, sink, limits).map_err(|error| match error {
            DecodeError::Bad(reason) => at(&reason),
            other => other,
        })?;
    }
    Ok(())
}

/// Passes over padding and the first half of the magic. False: there is no further stream.
fn next_stream(input: &mut Reader<'_>, stream: u64) -> Result<bool, DecodeError> {
    let mut known = vec![(header::MAGIC_START, true)];
    if stream > 1 {
        // Stream padding comes in fours (2.2), and never first.
        known.push(([0; 4], false));
    }
    loop {
        let start = input.offset();
        let garbage =
            |_: &[u8]| bad(format!("after {} xz streams, at stored byte {start}, is unknown data", stream - 1));
        match input.begins(&known, garbage)? {
            Some(true) => return Ok(true),
            Some(false) => {}
            None if stream > 1 => return Ok(false),
            None => return Err(cut("header of an xz stream")),
        }
    }
}

/// One stream, of which [`header::MAGIC_START`] is already taken. The clause of a `Bad` reads well after the stream's name.
fn one_stream(input: &mut Reader<'_>, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
    const WITHIN: &str = "header of an xz stream";
    let mut start = header::MAGIC_START.to_vec();
    if !input.gather(&mut start, StreamHeader::BYTES - header::MAGIC_START.len() + 1)? {
        return Err(cut(WITHIN));
    }
    StreamHeader::check(&start).map_err(bad)?;
    // Zero: the index follows; there is no block.
    let declared = match start.get(StreamHeader::BYTES).copied() {
        None | Some(0) => BlockHeader::default(),
        Some(size) => {
            if !input.gather(&mut start, BlockHeader::bytes(size) - 1)? {
                return Err(cut("header of an xz block"));
            }
            BlockHeader::parse(&start[StreamHeader::BYTES..]).map_err(bad)?
        }
    };
    if declared.dictionary > WINDOW_MAX {
        let (wanted, most) = (declared.dictionary >> 20, WINDOW_MAX >> 20);
        return Err(bad(format!("needs a dictionary of {wanted} MiB; the limit is {most} MiB (xz -7 and less)")));
    }
    limits.allow(declared.dictionary)?;
    let stop = limits.window + STATE;
    let mut library = MtStreamBuilder::new()
        .threads(u32::try_from(limits.threads.clamp(1, 64)).unwrap_or(1))
        .memlimit_threading((PARALLEL + declared.dictionary).saturating_add(declared.raw.unwrap_or(0)).min(stop))
        .memlimit_stop(stop)
        .decoder()
        .map_err(describe)?;
    let mut ahead = &start[..];
    let whole = input.pump(sink, |bytes, space| {
        let (taken, made) = (library.total_in(), library.total_out());
        let first = !ahead.is_empty();
        let (from, action) = match (first, bytes.is_empty()) {
            (true, _) => (ahead, Action::Run),
            (false, false) => (bytes, Action::Run),
            (false, true) => (bytes, Action::Finish),
        };
        let status = library.process(from, space, action).map_err(describe)?;
        let mut taken = (library.total_in() - taken) as usize;
        if first {
            ahead = &ahead[taken..];
            taken = 0;
        }
        let made = (library.total_out() - made) as usize;
        Ok(Step { taken, made, ended: status == Status::StreamEnd })
    })?;
    if whole { Ok(()) } else { Err(cut("middle of an xz stream")) }
}

fn describe(error: Error) -> DecodeError {
    bad(match error {
        Error::MemLimit => "has a block whose dictionary exceeds the limit, or the memory of this machine".into(),
        Error::Mem => "needs more memory than this machine has".into(),
        Error::Options => "uses a filter or an option that is not supported".into(),
        Error::Data | Error::Format => "is corrupt or fails its own checksum".into(),
        other => format!("cannot be decoded: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use liblzma::stream::{Check, Filters, LzmaOptions, Stream};
    use proptest::prelude::*;

    use super::super::testing::{Pieces, check_format, collect, decode_all, sample};
    use super::*;
    use crate::Format;

    fn encode(mut library: Stream, raw: &[u8]) -> Vec<u8> {
        let mut stored = Vec::with_capacity(raw.len() + 64 * 1024);
        while library.process_vec(&raw[library.total_in() as usize..], &mut stored, Action::Finish).unwrap()
            != Status::StreamEnd
        {}
        stored
    }

    fn plain(raw: &[u8], check: Check) -> Vec<u8> {
        encode(Stream::new_easy_encoder(1, check).unwrap(), raw)
    }

    /// Many blocks that state their sizes.
    fn blocks(raw: &[u8]) -> Vec<u8> {
        let library = MtStreamBuilder::new().threads(2).preset(0).block_size(16 * 1024).check(Check::Crc64).encoder();
        encode(library.unwrap(), raw)
    }

    #[test]
    fn streams_with_each_check_decode_and_cut_ones_fail() {
        for check in [Check::None, Check::Crc32, Check::Crc64, Check::Sha256] {
            check_format(Format::Xz, &plain(&sample(), check), &sample());
        }
    }

    #[test]
    fn many_blocks_decode_in_order_and_cut_ones_fail() {
        check_format(Format::Xz, &blocks(&sample()), &sample());
    }

    #[test]
    fn any_number_of_streams_and_padding_in_fours_decode() {
        let data = sample();
        let parts = [
            plain(&data[..0], Check::Crc32),
            vec![0; 4],
            blocks(&data[..70_001]),
            plain(&data[70_001..70_002], Check::Sha256),
            vec![0; 512],
            blocks(&data[70_002..]),
            vec![0; 8],
        ];
        let stored = parts.concat();
        for step in [1, 7, 4096, stored.len()] {
            assert!(decode_all(Format::Xz, &stored, step).unwrap() == data, "step {step}");
        }
        let odd = [&stored[..], &[0, 0]].concat();
        assert!(matches!(decode_all(Format::Xz, &odd, 64), Err(DecodeError::Unfinished(_))));
        let garbage = [&stored[..], &[0, 0, 0, 1]].concat();
        assert!(matches!(decode_all(Format::Xz, &garbage, 64), Err(DecodeError::Bad(_))));
    }

    #[test]
    fn other_filters_decode() {
        let mut filters = Filters::new();
        filters.x86().lzma2(&LzmaOptions::new_preset(1).unwrap());
        let library = Stream::new_stream_encoder(&filters, Check::Crc32).unwrap();
        check_format(Format::Xz, &encode(library, &sample()), &sample());
    }

    /// The sample, with a block header that states a dictionary of this code.
    fn with_dictionary(code: u8) -> Vec<u8> {
        let mut options = LzmaOptions::new_preset(0).unwrap();
        options.dict_size(4096);
        let mut filters = Filters::new();
        filters.lzma2(&options);
        let mut stored = encode(Stream::new_stream_encoder(&filters, Check::Crc32).unwrap(), &sample());
        // Size, flags, filter, its properties' size, then the dictionary's: 35 is 1.5 GiB.
        let block = StreamHeader::BYTES;
        assert_eq!(stored[block + 2..block + 4], [0x21, 1]);
        stored[block + 4] = code;
        let end = block + BlockHeader::bytes(stored[block]);
        let crc = crc32fast::hash(&stored[block..end - 4]);
        stored[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        stored
    }

    #[test]
    fn a_dictionary_over_the_limit_is_refused_before_any_output() {
        let stored = with_dictionary(37);
        let mut made = 0;
        let result = collect(|sink| {
            let result = decode(&mut Pieces { bytes: &stored, step: 4096 }, sink, Limits::default());
            made = sink.offset();
            result
        });
        assert!(matches!(result, Err(DecodeError::Bad(why)) if why.contains("1536 MiB") && why.contains("128 MiB")));
        assert_eq!(made, 0);
    }

    #[test]
    fn a_dictionary_at_the_limit_is_taken() {
        assert!(decode_all(Format::Xz, &with_dictionary(30), 4096).unwrap() == sample());
    }

    #[test]
    fn an_unknown_check_is_refused_rather_than_skipped() {
        let mut stored = plain(&sample(), Check::Crc32);
        stored[7] = 2;
        let crc = crc32fast::hash(&stored[6..8]);
        stored[8..12].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(decode_all(Format::Xz, &stored, 64), Err(DecodeError::Bad(why)) if why.contains("check")));
    }

    #[test]
    fn a_corrupt_stream_is_named_with_its_place() {
        let first = plain(b"first", Check::Crc32);
        let mut stored = [first.clone(), blocks(&sample())].concat();
        let at = first.len() + 2000;
        stored[at] ^= 1;
        let Err(DecodeError::Bad(why)) = decode_all(Format::Xz, &stored, 4096) else { panic!("accepted") };
        assert!(why.contains(&format!("xz stream 2, which begins at stored byte {}", first.len())), "{why}");
    }

    proptest! {
        #[test]
        fn arbitrary_blocks_never_panic_and_always_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let valid = blocks(&sample()[..1000]);
            for length in [6, StreamHeader::BYTES, 40] {
                // Only a panic or an endless loop would fail this test.
                let _ = decode_all(Format::Xz, &[&valid[..length], &bytes].concat(), 64);
            }
        }
    }
}
