//! Which format content has, by its first bytes and never by its name.

use crate::Format;

const ZSTD: u32 = 0xfd2f_b528;
const ZSTD_SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

/// What we decode, by the first bytes.
const DECODED: [(Format, &[u8]); 5] = [
    (Format::Gzip, &[0x1f, 0x8b]),
    (Format::Xz, &[0xfd, b'7', b'z', b'X', b'Z', 0]),
    (Format::Bzip2, b"BZh"),
    (Format::Lz4, &[0x04, 0x22, 0x4d, 0x18]),
    (Format::Qcow2, b"QFI\xfb"),
];

/// Known formats that are refused by name rather than written as raw data.
const REFUSED: [(&str, usize, &[u8]); 10] = [
    ("in the legacy LZ4 format (lz4 -l)", 0, &[0x02, 0x21, 0x4c, 0x18]),
    ("a VMDK", 0, b"KDMV"),
    ("a VMDK descriptor", 0, b"# Disk DescriptorFile"),
    ("a VHDX", 0, b"vhdxfile"),
    ("a VHD", 0, b"conectix"),
    ("a ZIP archive", 0, b"PK\x03\x04"),
    ("a tar archive", 257, b"ustar"),
    ("a web page", 0, b"<!DOCTYPE"),
    ("a web page", 0, b"<html"),
    ("XML", 0, b"<?xml"),
];

/// The format of content that starts like this; a reason if it is known to be unusable.
pub(crate) fn format_of(start: &[u8]) -> Result<Format, String> {
    let refused = REFUSED.iter().find(|(_, at, magic)| start.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    if let Some((name, ..)) = refused {
        return Err(format!("it is {name}, which cannot be written to a disk as it is"));
    }
    if let Some((format, _)) = DECODED.iter().find(|(_, magic)| start.starts_with(magic)) {
        return Ok(*format);
    }
    let magic = start.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let zstd = magic.is_some_and(|magic| magic == ZSTD || ZSTD_SKIPPABLE.contains(&magic));
    Ok(if zstd { Format::Zstd } else { Format::Raw })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_non_images_are_refused_by_name() {
        let mut tar = vec![0; 600];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(format_of(&tar).unwrap_err().contains("tar"));
        assert!(format_of(b"<!DOCTYPE html>").unwrap_err().contains("web page"));
    }

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        for (format, magic) in DECODED {
            assert_eq!(format_of(magic), Ok(format));
        }
        assert_eq!(format_of(&ZSTD.to_le_bytes()), Ok(Format::Zstd));
        assert_eq!(format_of(&0x184d_2a53_u32.to_le_bytes()), Ok(Format::Zstd));
        for raw in [&b""[..], b"\x1f", &[0; 512], b"BZ"] {
            assert_eq!(format_of(raw), Ok(Format::Raw));
        }
    }
}
