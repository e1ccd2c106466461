//! gzip (RFC 1952): member after member, each with its checksum and length verified.

use crc32fast::Hasher;
use flate2::{Decompress, FlushDecompress, Status};

use super::reader::{Reader, Step, bad, cut};
use super::{DecodeError, Input, Sink};

/// RFC 1952, 2.3.1: the two first bytes of a member.
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The only compression method that exists.
const DEFLATE: u8 = 8;
/// A header's flags; the text flag (bit 0) says nothing about the format.
const HEADER_CRC: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;
/// Most bytes of a name or comment. The format states no limit; a file name has at most 4096.
const TEXT_MAX: usize = 64 * 1024;

pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink) -> Result<(), DecodeError> {
    let mut input = Reader::new(input);
    let mut inflate = Decompress::new(false);
    for member in 1_u64.. {
        let start = input.offset();
        let garbage =
            |_: &[u8]| bad(format!("after {} gzip members, at stored byte {start}, is unknown data", member - 1));
        if input.begins(&[(MAGIC, ())], garbage)?.is_none() && member > 1 {
            return Ok(());
        }
        let at = || format!("gzip member {member}, which begins at stored byte {start}");
        header(&mut input).map_err(|error| match error {
            DecodeError::Bad(reason) => bad(format!("{} {reason}", at())),
            other => other,
        })?;
        inflate.reset(false);
        let (mut crc, mut raw) = (Hasher::new(), 0_u64);
        let whole = input.pump(sink, |bytes, space| {
            let (taken, made) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(bytes, space, FlushDecompress::None);
            let status = status.map_err(|error| bad(format!("{} is corrupt: {error}", at())))?;
            let (taken, made) = ((inflate.total_in() - taken) as usize, (inflate.total_out() - made) as usize);
            crc.update(&space[..made]);
            raw += made as u64;
            Ok(Step { taken, made, ended: status == Status::StreamEnd })
        })?;
        if !whole {
            return Err(cut("middle of a gzip member"));
        }
        let expected = u32::from_le_bytes(input.take("trailer of a gzip member")?);
        // ISIZE is the length modulo 2³².
        let length = u32::from_le_bytes(input.take("trailer of a gzip member")?);
        if crc.finalize() != expected {
            return Err(bad(format!("{} fails its own checksum", at())));
        }
        if raw as u32 != length {
            return Err(bad(format!("{} is longer or shorter than its trailer states", at())));
        }
    }
    Ok(())
}

/// Reads what follows the magic. The text of a `Bad` continues a sentence that starts with the member's name.
fn header(input: &mut Reader<'_>) -> Result<(), DecodeError> {
    const WITHIN: &str = "header of a gzip member";
    let mut crc = Hasher::new();
    crc.update(&MAGIC);
    let fixed: [u8; 8] = input.take(WITHIN)?;
    crc.update(&fixed);
    let [method, flags, ..] = fixed;
    if method != DEFLATE {
        return Err(bad(format!("uses compression method {method}; only deflate (8) exists")));
    }
    if flags & RESERVED != 0 {
        return Err(bad("sets reserved header flags"));
    }
    if flags & EXTRA != 0 {
        let length: [u8; 2] = input.take(WITHIN)?;
        crc.update(&length);
        let mut extra = Vec::new();
        if !input.gather(&mut extra, u16::from_le_bytes(length).into())? {
            return Err(cut(WITHIN));
        }
        crc.update(&extra);
    }
    for field in [NAME, COMMENT] {
        if flags & field != 0 {
            text(input, &mut crc, WITHIN)?;
        }
    }
    if flags & HEADER_CRC != 0 {
        // The lower half of the CRC-32 of all before it.
        let actual = crc.finalize() as u16;
        if u16::from_le_bytes(input.take(WITHIN)?) != actual {
            return Err(bad("has a header that fails its own checksum"));
        }
    }
    Ok(())
}

/// Passes over a text that ends with a zero byte.
fn text(input: &mut Reader<'_>, crc: &mut Hasher, within: &str) -> Result<(), DecodeError> {
    let mut left = TEXT_MAX;
    loop {
        let bytes = input.fill()?;
        if bytes.is_empty() {
            return Err(cut(within));
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        let n = end.map_or(bytes.len(), |end| end + 1);
        crc.update(&bytes[..n]);
        input.consume(n);
        if n > left {
            return Err(bad("has a name or comment that does not end"));
        }
        left -= n;
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, GzBuilder, write::GzEncoder};
    use proptest::prelude::*;

    use super::super::testing::{check_format, decode_all, sample};
    use super::*;
    use crate::Format;

    fn member(raw: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(raw).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn one_member_decodes_and_cut_or_extended_ones_fail() {
        for level in [0, 1, 6, 9] {
            check_format(Format::Gzip, &member(&sample(), level), &sample());
        }
    }

    #[test]
    fn nothing_at_all_is_a_cut_in_every_format() {
        for format in [Format::Gzip, Format::Xz, Format::Zstd, Format::Bzip2, Format::Lz4] {
            let nothing = decode_all(format, b"", 1);
            assert!(matches!(nothing, Err(DecodeError::Unfinished(_))), "{format}: {nothing:?}");
        }
    }

    #[test]
    fn any_number_of_members_decode_empty_ones_among_them() {
        let data = sample();
        let parts = [&data[..0], &data[..70_001], &data[70_001..70_002], &data[70_002..], &data[..0]];
        let stored: Vec<u8> = parts.iter().flat_map(|part| member(part, 6)).collect();
        for step in [1, 7, 4096, stored.len()] {
            assert!(decode_all(Format::Gzip, &stored, step).unwrap() == data, "step {step}");
        }
        assert!(matches!(decode_all(Format::Gzip, &stored[..stored.len() - 19], 64), Err(DecodeError::Unfinished(_))));
    }

    /// A handmade header with every field: flate2 writes no header checksum.
    fn every_field() -> Vec<u8> {
        let plain = member(&sample(), 6);
        let mut stored = plain[..10].to_vec();
        stored[3] = HEADER_CRC | EXTRA | NAME | COMMENT | 1;
        stored.extend(b"\x05\0ab\x01\0c");
        stored.extend(b"disk.img\0made by hand\0");
        let crc = crc32fast::hash(&stored) as u16;
        stored.extend(crc.to_le_bytes());
        stored.extend(&plain[10..]);
        stored
    }

    #[test]
    fn every_header_field_is_passed_over_and_its_checksum_holds() {
        check_format(Format::Gzip, &every_field(), &sample());
        let mut named = GzBuilder::new().filename("disk.img").write(Vec::new(), Compression::fast());
        named.write_all(b"raw").unwrap();
        assert_eq!(decode_all(Format::Gzip, &named.finish().unwrap(), 3).unwrap(), b"raw");
        let mut altered = every_field();
        altered[20] ^= 1;
        assert!(matches!(decode_all(Format::Gzip, &altered, 64), Err(DecodeError::Bad(why)) if why.contains("header")));
    }

    #[test]
    fn a_wrong_checksum_or_length_names_the_members_place() {
        let first = member(b"first", 6);
        let mut stored = [first.clone(), member(&sample(), 6)].concat();
        let crc = stored.len() - 8;
        for at in [crc, crc + 4] {
            stored[at] ^= 1;
            let Err(DecodeError::Bad(why)) = decode_all(Format::Gzip, &stored, 4096) else { panic!("accepted") };
            assert!(why.contains(&format!("gzip member 2, which begins at stored byte {}", first.len())), "{why}");
            stored[at] ^= 1;
        }
    }

    #[test]
    fn methods_flags_and_texts_that_are_none_are_refused() {
        let mut endless = vec![0x1f, 0x8b, DEFLATE, NAME, 0, 0, 0, 0, 0, 3];
        endless.resize(200_000, b'x');
        let (mut method, mut flags) = (member(b"raw", 6), member(b"raw", 6));
        (method[2], flags[3]) = (7, 0x80);
        for stored in [endless, method, flags] {
            assert!(matches!(decode_all(Format::Gzip, &stored, 4096), Err(DecodeError::Bad(_))));
        }
    }

    #[test]
    fn zeroes_after_the_last_member_are_garbage() {
        let stored = [member(b"raw", 6), vec![0; 512]].concat();
        assert!(matches!(decode_all(Format::Gzip, &stored, 4096), Err(DecodeError::Bad(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_members_never_panic_and_always_end(flags in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let stored = [&[0x1f, 0x8b, DEFLATE, flags, 0, 0, 0, 0, 0, 3][..], &bytes].concat();
            // Only a panic or an endless loop would fail this test.
            let _ = decode_all(Format::Gzip, &stored, 64);
        }

        #[test]
        fn an_altered_byte_is_never_a_success_with_other_content(at in any::<prop::sample::Index>(), flip in 1_u8..) {
            let mut stored = member(&sample()[..20_000], 6);
            let at = at.index(stored.len());
            stored[at] ^= flip;
            if let Ok(raw) = decode_all(Format::Gzip, &stored, 512) {
                // Of the header or of the bits that fill the last byte only.
                prop_assert!(raw == sample()[..20_000]);
            }
        }
    }
}
