//! The headers of EFI programs: PE files of 64 bits (PE Format, Microsoft).

/// Bytes of a section's header ("Section Table").
pub(crate) const SECTION_HEADER: usize = 40;

// Offsets from the signature ("COFF File Header", "Optional Header").
pub(crate) const MACHINE: usize = 4;
pub(crate) const SECTIONS: usize = 6;
pub(crate) const SYMBOLS: usize = 12;
pub(crate) const OPTIONAL_SIZE: usize = 20;
pub(crate) const OPTIONAL: usize = 24;
pub(crate) const SIZE_OF_DATA: usize = OPTIONAL + 8;
pub(crate) const FILE_ALIGNMENT: usize = OPTIONAL + 36;
pub(crate) const SIZE_OF_IMAGE: usize = OPTIONAL + 56;
pub(crate) const SIZE_OF_HEADERS: usize = OPTIONAL + 60;
pub(crate) const CHECKSUM: usize = OPTIONAL + 64;
/// How many data directories follow.
pub(crate) const DIRECTORIES: usize = OPTIONAL + 108;
/// The fifth data directory: place and size of the certificates in the file.
pub(crate) const CERTIFICATES: usize = OPTIONAL + 112 + 4 * 8;

/// Where the headers are.
pub(crate) struct Headers {
    /// The signature, in the file.
    pub(crate) at: usize,
    /// The section table, in the file.
    pub(crate) table: usize,
    pub(crate) sections: usize,
}

impl Headers {
    /// Of a program of 64 bits; `None` for anything else.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        let at = word(file, 0x3c)? as usize;
        if file.get(at..at + 4)? != b"PE\0\0" || half(file, at + OPTIONAL)? != 0x20b {
            return None;
        }
        let table = at + OPTIONAL + usize::from(half(file, at + OPTIONAL_SIZE)?);
        Some(Self { at, table, sections: half(file, at + SECTIONS)?.into() })
    }

    /// Name, place and size in the file of each section, and its size in memory; `None` for one that is cut off.
    pub(crate) fn each<'f>(&self, file: &'f [u8]) -> impl Iterator<Item = Option<(String, u32, u32, u32)>> + use<'f> {
        let (table, sections) = (self.table, self.sections);
        (0..sections).map(move |n| {
            let entry = table + n * SECTION_HEADER;
            let name = file.get(entry..entry + 8)?;
            let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            Some((name, word(file, entry + 20)?, word(file, entry + 16)?, word(file, entry + 8)?))
        })
    }

    /// Whether it names certificates.
    pub(crate) fn is_signed(&self, file: &[u8]) -> bool {
        word(file, self.at + DIRECTORIES).is_some_and(|directories| directories > 4)
            && word(file, self.at + CERTIFICATES + 4).is_some_and(|bytes| bytes > 0)
    }
}

/// Two bytes; `None` beyond the end.
pub(crate) fn half(file: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(file.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Four bytes; `None` beyond the end.
pub(crate) fn word(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
