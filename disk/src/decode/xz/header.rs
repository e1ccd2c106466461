//! What an .xz stream declares before its first compressed byte: its check, and of its first block the dictionary and the
//! size. (Sections 2.1.1 and 3.1 of the specification.)

/// First bytes of a stream's magic.
pub(super) const MAGIC_START: [u8; 4] = [0xfd, b'7', b'z', b'X'];
const MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// Checks the library verifies: none, CRC-32, CRC-64, SHA-256 (2.1.1.2).
const CHECKS: [u8; 4] = [0, 1, 4, 10];
/// Filter ID of LZMA2 (5.3.1).
const LZMA2: u64 = 0x21;
/// The largest encoded dictionary size; it means 4 GiB − 1.
const LARGEST: u8 = 40;

/// The header of a stream.
pub(super) struct StreamHeader;

impl StreamHeader {
    pub(super) const BYTES: usize = 12;

    /// Whether it can be decoded, by its magic and its check. Its CRC is the library's business.
    pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
        if !bytes.starts_with(&MAGIC) {
            return Err("does not begin as one".into());
        }
        match bytes.get(MAGIC.len()..MAGIC.len() + 2) {
            Some([0, check]) if CHECKS.contains(check) => Ok(()),
            Some([0, check @ 0..=15]) => Err(format!("carries check number {check}, which cannot be verified")),
            _ => Err("sets reserved header flags".into()),
        }
    }
}

/// What the header of a block declares.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// Bytes of the dictionary.
    pub(super) dictionary: u64,
    /// Raw bytes of the block, where it says so.
    pub(super) raw: Option<u64>,
}

impl BlockHeader {
    /// Bytes of a header that begins with this one.
    pub(super) const fn bytes(size: u8) -> usize {
        (size as usize + 1) * 4
    }

    /// Reads a whole header. Its CRC is the library's business.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let corrupt = || "has a corrupt block header".to_owned();
        let mut fields = bytes.get(1..).ok_or_else(corrupt)?;
        let flags = byte(&mut fields).ok_or_else(corrupt)?;
        if flags & 0b0011_1100 != 0 {
            return Err("uses a filter or an option that is not supported".into());
        }
        if flags & 0b0100_0000 != 0 {
            number(&mut fields).ok_or_else(corrupt)?;
        }
        let raw = if flags & 0b1000_0000 == 0 { None } else { Some(number(&mut fields).ok_or_else(corrupt)?) };
        let mut dictionary = 0;
        for _ in 0..=flags & 0b11 {
            let id = number(&mut fields).ok_or_else(corrupt)?;
            let length = number(&mut fields).and_then(|n| usize::try_from(n).ok()).ok_or_else(corrupt)?;
            let (properties, rest) = fields.split_at_checked(length).ok_or_else(corrupt)?;
            fields = rest;
            if id == LZMA2 {
                dictionary = properties.first().copied().and_then(dictionary_of).ok_or_else(corrupt)?;
            }
        }
        Ok(Self { dictionary, raw })
    }
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// A multibyte integer (1.2): seven bits a byte, the lowest first, at most nine bytes.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let byte = byte(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Bytes of the dictionary that a property says (5.3.1).
fn dictionary_of(bits: u8) -> Option<u64> {
    match bits {
        LARGEST => Some(u32::MAX.into()),
        0..LARGEST => Some(u64::from(2 | (bits & 1)) << (bits / 2 + 11)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dictionaries_are_as_large_as_the_specification_says() {
        let sizes = [(0, 4096), (1, 6144), (30, 128 << 20), (37, 1536 << 20), (39, 3 << 30), (40, 0xffff_ffff)];
        for (bits, bytes) in sizes {
            assert_eq!(dictionary_of(bits), Some(bytes));
        }
        assert_eq!(dictionary_of(41), None);
    }

    #[test]
    fn sizes_and_dictionary_of_a_block_are_found() {
        // Compressed 300, raw 1000, x86 without properties, LZMA2 with a dictionary of 8 MiB.
        let header = [4, 0xc1, 0xac, 0x02, 0xe8, 0x07, 0x04, 0x00, 0x21, 1, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(BlockHeader::bytes(header[0]), header.len());
        assert_eq!(BlockHeader::parse(&header), Ok(BlockHeader { dictionary: 8 << 20, raw: Some(1000) }));
    }

    proptest! {
        #[test]
        fn arbitrary_headers_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            // Only a panic would fail this test.
            let _ = (BlockHeader::parse(&bytes), StreamHeader::check(&bytes));
        }
    }
}
