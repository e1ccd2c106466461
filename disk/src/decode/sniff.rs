//! Which format content has, by its first bytes and never by its name.

use crate::Format;

const ZSTD: u32 = 0xfd2f_b528;
const ZSTD_SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

/// What we decode, by the first bytes.
const DECODED: [(Format, &[u8]); 6] = [
    (Format::Gzip, &[0x1f, 0x8b]),
    (Format::Xz, &[0xfd, b'7', b'z', b'X', b'Z', 0]),
    (Format::Bzip2, b"BZh"),
    (Format::Lz4, &[0x04, 0x22, 0x4d, 0x18]),
    (Format::Qcow2, b"QFI\xfb"),
    (Format::Vmdk, b"KDMV"),
];

/// The format of content that starts like this; what is not decoded is raw.
pub(crate) fn format_of(start: &[u8]) -> Format {
    if let Some((format, _)) = DECODED.iter().find(|(_, magic)| start.starts_with(magic)) {
        return *format;
    }
    let magic = start.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let zstd = magic.is_some_and(|magic| magic == ZSTD || ZSTD_SKIPPABLE.contains(&magic));
    if zstd { Format::Zstd } else { Format::Raw }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        for (format, magic) in DECODED {
            assert_eq!(format_of(magic), format);
        }
        assert_eq!(format_of(&ZSTD.to_le_bytes()), Format::Zstd);
        assert_eq!(format_of(&0x184d_2a53_u32.to_le_bytes()), Format::Zstd);
        for raw in [&b""[..], b"\x1f", &[0; 512], b"BZ"] {
            assert_eq!(format_of(raw), Format::Raw);
        }
    }
}
