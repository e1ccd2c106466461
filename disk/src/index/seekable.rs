//! The seek table of the seekable zstd format (zstd's contrib/seekable_format/zstd_seekable_compression_format.md, version
//! 0.1.0): a skippable frame at the end of the file that lists all frames before it. Our writer goes by its own manifest,
//! which has digests too; the table is there for every other reader of the format.

/// Little-endian magic number of the skippable frame the table is in.
const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
/// The last four bytes of the file.
const FOOTER_MAGIC: u32 = 0x8f92_eab1;
/// Magic number and length of the skippable frame.
const HEADER_BYTES: u64 = 8;
/// Number of frames, descriptor, magic number.
const FOOTER_BYTES: u64 = 9;
/// Descriptor bit: entries have a checksum.
const HAS_CHECKSUMS: u8 = 0x80;
/// Descriptor bits that must be zero.
const RESERVED: u8 = 0x7c;
/// The most frames a table may have (`ZSTD_SEEKABLE_MAXFRAMES`).
const MAX_FRAMES: u64 = 0x0800_0000;

/// One frame, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the frame.
    pub stored: u32,
    /// Bytes it decodes to.
    pub raw: u32,
    /// The lower half of the raw bytes' XXH64, if the table has it.
    pub checksum: Option<u32>,
}

/// All frames of a file but the one the table is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeekTable {
    /// From the beginning of the file, without a gap.
    pub frames: Vec<Frame>,
}

/// There is no seek table to read.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeekTableError {
    /// The file does not end in one.
    #[error("there is no seek table at the end")]
    Absent,
    /// It begins before the bytes that were given.
    #[error("the seek table begins earlier: the last {needed} bytes are needed")]
    Short { needed: u64 },
    /// It contradicts itself.
    #[error("the seek table is damaged: {0}")]
    Damaged(&'static str),
}

impl SeekTable {
    /// Reads the table at the end of `tail`, the last bytes of a file. Nine of them tell how many are needed.
    ///
    /// # Errors
    /// See [`SeekTableError`].
    pub fn parse(tail: &[u8]) -> Result<Self, SeekTableError> {
        let damaged = SeekTableError::Damaged;
        let Some((rest, [n0, n1, n2, n3, descriptor, magic @ ..])) = tail.split_last_chunk::<9>() else {
            return Err(SeekTableError::Absent);
        };
        if u32::from_le_bytes(*magic) != FOOTER_MAGIC {
            return Err(SeekTableError::Absent);
        }
        let frames = u64::from(u32::from_le_bytes([*n0, *n1, *n2, *n3]));
        if frames > MAX_FRAMES {
            return Err(damaged("it lists more frames than a table may"));
        }
        if descriptor & RESERVED != 0 {
            return Err(damaged("it sets reserved bits"));
        }
        let checksums = descriptor & HAS_CHECKSUMS != 0;
        let entry_bytes = if checksums { 12_usize } else { 8 };
        let entries = frames * entry_bytes as u64;
        let needed = HEADER_BYTES + entries + FOOTER_BYTES;
        // What was given holds the whole table, so its size bounds what is allocated.
        let start = usize::try_from(needed).ok().and_then(|needed| tail.len().checked_sub(needed));
        let Some(table) = start.and_then(|start| rest.get(start..)) else {
            return Err(SeekTableError::Short { needed });
        };
        let Some(([m0, m1, m2, m3, l0, l1, l2, l3], list)) = table.split_first_chunk::<8>() else {
            return Err(damaged("it has no header"));
        };
        if u32::from_le_bytes([*m0, *m1, *m2, *m3]) != SKIPPABLE_MAGIC {
            return Err(damaged("it is not in a skippable frame of its own"));
        }
        if u64::from(u32::from_le_bytes([*l0, *l1, *l2, *l3])) != entries + FOOTER_BYTES {
            return Err(damaged("its frame has another length"));
        }
        let word = |entry: &[u8], at: usize| {
            entry.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let frames = list
            .chunks_exact(entry_bytes)
            .map(|entry| Frame {
                stored: word(entry, 0),
                raw: word(entry, 4),
                checksum: checksums.then(|| word(entry, 8)),
            })
            .collect();
        Ok(Self { frames })
    }

    /// The skippable frame to end a file with. Checksums are written if every frame has one.
    ///
    /// # Errors
    /// [`SeekTableError::Damaged`]: more frames than a table may have.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SeekTableError> {
        let count = u32::try_from(self.frames.len())
            .ok()
            .filter(|count| u64::from(*count) <= MAX_FRAMES)
            .ok_or(SeekTableError::Damaged("it lists more frames than a table may"))?;
        let checksums = count > 0 && self.frames.iter().all(|frame| frame.checksum.is_some());
        let entry_bytes = if checksums { 12 } else { 8 };
        // 0x0800_0000 frames of 12 bytes are less than 4 GiB.
        let length = count * entry_bytes + FOOTER_BYTES as u32;
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize + length as usize);
        bytes.extend(SKIPPABLE_MAGIC.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        for frame in &self.frames {
            bytes.extend(frame.stored.to_le_bytes());
            bytes.extend(frame.raw.to_le_bytes());
            if let Some(checksum) = frame.checksum.filter(|_| checksums) {
                bytes.extend(checksum.to_le_bytes());
            }
        }
        bytes.extend(count.to_le_bytes());
        bytes.push(if checksums { HAS_CHECKSUMS } else { 0 });
        bytes.extend(FOOTER_MAGIC.to_le_bytes());
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(frames: &[(u32, u32)], checksum: Option<u32>) -> SeekTable {
        SeekTable {
            frames: frames.iter().map(|(stored, raw)| Frame { stored: *stored, raw: *raw, checksum }).collect(),
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let mut expected = vec![0x5e, 0x2a, 0x4d, 0x18, 17, 0, 0, 0];
        expected.extend([3, 0, 0, 0, 0, 0, 0x10, 0]);
        expected.extend([1, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f]);
        assert_eq!(table(&[(3, 1 << 20)], None).to_bytes().unwrap(), expected);
    }

    #[test]
    fn a_table_reads_back_or_states_how_much_is_missing() {
        for checksum in [None, Some(0xdead_beef)] {
            let table = table(&[(3, 1 << 20), (77, 4096), (u32::MAX, u32::MAX)], checksum);
            let bytes = table.to_bytes().unwrap();
            let mut file = vec![0xaa; 1000];
            file.extend(&bytes);
            assert_eq!(SeekTable::parse(&file), Ok(table.clone()));
            assert_eq!(SeekTable::parse(&bytes), Ok(table));
            for cut in 9..bytes.len() {
                let needed = bytes.len() as u64;
                assert_eq!(SeekTable::parse(&bytes[bytes.len() - cut..]), Err(SeekTableError::Short { needed }));
            }
            assert_eq!(SeekTable::parse(&bytes[..bytes.len() - 1]), Err(SeekTableError::Absent));
        }
    }

    #[test]
    fn a_table_with_a_false_frame_count_allocates_nothing() {
        let mut footer = (MAX_FRAMES as u32).to_le_bytes().to_vec();
        footer.push(0);
        footer.extend(FOOTER_MAGIC.to_le_bytes());
        assert!(matches!(SeekTable::parse(&footer), Err(SeekTableError::Short { needed }) if needed > 1 << 30));
        footer[3] = 0x7f;
        assert!(matches!(SeekTable::parse(&footer), Err(SeekTableError::Damaged(_))));
    }

    #[test]
    fn reserved_bits_and_a_frame_of_another_length_are_refused() {
        let good = table(&[(3, 5)], None).to_bytes().unwrap();
        for (at, byte) in [(good.len() - 5, 0x04), (4, 18), (0, 0x50)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(matches!(SeekTable::parse(&bad), Err(SeekTableError::Damaged(_))), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_ends_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), good_end: bool) {
            if good_end {
                bytes.extend(FOOTER_MAGIC.to_le_bytes());
            }
            // Only a panic would fail this test.
            let _ = SeekTable::parse(&bytes);
        }
    }
}
