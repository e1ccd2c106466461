//! One copy of a GUID partition table (UEFI specification 2.10, section 5.3).

use std::{io, ops::Range};

use crate::ReadAt;

const SIGNATURE: &[u8; 8] = b"EFI PART";
/// What stands in its place in a header that is to be found by us and by no firmware.
const RETIRED: &[u8; 8] = b"LFOLDGPT";
/// Bytes of a header that have a meaning; the rest of its sector is zero.
const HEADER_BYTES: usize = 92;
/// No table of a disk has more; bounds what damaged headers can make us read.
const MAX_ENTRIES_BYTES: u64 = 512 * 1024;

/// Why there is no valid table at a place.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Reading failed.
    #[error("cannot read the partition table")]
    Io(#[from] io::Error),
    /// The signature is missing: there is no table.
    #[error("there is no partition table")]
    Absent,
    /// The table is damaged.
    #[error("the table is damaged: {0}")]
    Damaged(&'static str),
}

/// A header's fields. Addresses are in logical sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Where this copy is.
    pub my_lba: u64,
    /// Where the other copy is.
    pub alternate_lba: u64,
    /// First sector partitions may use.
    pub first_usable: u64,
    /// Last sector partitions may use.
    pub last_usable: u64,
    /// The disk's identity.
    pub disk_guid: [u8; 16],
    /// First sector of the entries.
    pub entries_lba: u64,
    /// How many entries there are.
    pub entry_count: u32,
    /// Bytes of each.
    pub entry_size: u32,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its slot, from 0.
    pub index: u32,
    /// Its type, in the mixed byte order of the disk.
    pub kind: [u8; 16],
    /// Its own GUID (PARTUUID), in the mixed byte order of the disk.
    pub guid: [u8; 16],
    /// Its name (PARTLABEL).
    pub label: String,
    /// First sector.
    pub first: u64,
    /// Last sector, inclusive.
    pub last: u64,
}

/// One valid copy of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its header.
    pub header: Header,
    /// The entries as they stand on the disk.
    pub entries: Vec<u8>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn guid_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes.get(at..at + 16).and_then(|b| b.try_into().ok()).unwrap_or_default()
}

/// 36 units of UTF-16, up to the first that is zero.
fn label_at(bytes: &[u8], at: usize) -> String {
    let units = bytes.get(at..at + 72).unwrap_or_default().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    String::from_utf16_lossy(&units.take_while(|unit| *unit != 0).collect::<Vec<u16>>())
}

impl Entry {
    /// The bytes of the disk it covers; sectors have `sector` bytes.
    pub fn bytes(&self, sector: u32) -> Range<u64> {
        bytes_of(self.first, self.last, sector)
    }
}

/// What the sectors `first` to `last`, inclusive, cover.
pub(super) fn bytes_of(first: u64, last: u64, sector: u32) -> Range<u64> {
    let sector = u64::from(sector);
    first.saturating_mul(sector)..last.saturating_add(1).saturating_mul(sector)
}

impl Table {
    /// Reads and checks the copy at `lba` of a disk with sectors of `sector` bytes.
    ///
    /// # Errors
    /// [`TableError`]: absent, damaged, or unreadable.
    pub fn read(disk: &(impl ReadAt + ?Sized), lba: u64, sector: u32) -> Result<Self, TableError> {
        Self::read_as(disk, lba, sector, *SIGNATURE)
    }

    /// Reads and checks the retired copy at LBA 1, with the very same checks.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_retired(disk: &(impl ReadAt + ?Sized), sector: u32) -> Result<Self, TableError> {
        Self::read_as(disk, 1, sector, *RETIRED)
    }

    fn read_as(disk: &(impl ReadAt + ?Sized), lba: u64, sector: u32, signature: [u8; 8]) -> Result<Self, TableError> {
        let damaged = TableError::Damaged;
        let at = lba.checked_mul(u64::from(sector)).ok_or(TableError::Absent)?;
        if at.checked_add(u64::from(sector)).is_none_or(|end| end > disk.size()) {
            return Err(TableError::Absent);
        }
        let mut bytes = vec![0; sector as usize];
        disk.read_at(at, &mut bytes)?;
        if !bytes.starts_with(&signature) {
            return Err(TableError::Absent);
        }
        bytes[..SIGNATURE.len()].copy_from_slice(SIGNATURE);
        let size = u32_at(&bytes, 12) as usize;
        if !(HEADER_BYTES..=bytes.len()).contains(&size) {
            return Err(damaged("its header's size is out of range"));
        }
        let stated = u32_at(&bytes, 16);
        bytes[16..20].fill(0);
        if crc32fast::hash(&bytes[..size]) != stated {
            return Err(damaged("its header's checksum is wrong"));
        }
        let header = Header {
            my_lba: u64_at(&bytes, 24),
            alternate_lba: u64_at(&bytes, 32),
            first_usable: u64_at(&bytes, 40),
            last_usable: u64_at(&bytes, 48),
            disk_guid: guid_at(&bytes, 56),
            entries_lba: u64_at(&bytes, 72),
            entry_count: u32_at(&bytes, 80),
            entry_size: u32_at(&bytes, 84),
        };
        if header.my_lba != lba {
            return Err(damaged("its header is not where it says"));
        }
        if header.entry_size < 128 || !header.entry_size.is_power_of_two() || header.entry_count == 0 {
            return Err(damaged("its entries have an impossible size"));
        }
        let length = u64::from(header.entry_count) * u64::from(header.entry_size);
        if length > MAX_ENTRIES_BYTES {
            return Err(damaged("it has more entries than any disk needs"));
        }
        let start = header.entries_lba.checked_mul(u64::from(sector)).filter(|_| header.entries_lba > 1);
        let start = start.ok_or(damaged("its entries are in an impossible place"))?;
        if start.checked_add(length).is_none_or(|end| end > disk.size()) {
            return Err(damaged("its entries are beyond the end"));
        }
        let mut entries = vec![0; usize::try_from(length).map_err(|_| damaged("its entries have an impossible size"))?];
        disk.read_at(start, &mut entries)?;
        if crc32fast::hash(&entries) != u32_at(&bytes, 88) {
            return Err(damaged("its entries' checksum is wrong"));
        }
        let table = Self { header, entries };
        let usable = table.header.first_usable..=table.header.last_usable;
        if table.used().any(|e| e.first > e.last || !usable.contains(&e.first) || !usable.contains(&e.last)) {
            return Err(damaged("a partition lies outside the usable range"));
        }
        Ok(table)
    }

    /// The entries in use.
    pub fn used(&self) -> impl Iterator<Item = Entry> {
        (0..).zip(self.entries.chunks_exact(self.header.entry_size as usize)).filter_map(|(index, bytes)| {
            let kind = guid_at(bytes, 0);
            (kind != [0; 16]).then(|| Entry {
                index,
                kind,
                guid: guid_at(bytes, 16),
                label: label_at(bytes, 56),
                first: u64_at(bytes, 32),
                last: u64_at(bytes, 40),
            })
        })
    }

    /// The second copy of a primary table, which has its header in sector `last` and its entries before that.
    pub(crate) fn backup(&self, last: u64, sector: u32) -> Self {
        let mut backup = self.clone();
        (backup.header.my_lba, backup.header.alternate_lba) = (last, 1);
        backup.header.entries_lba = last - self.entries_sectors(sector);
        backup
    }

    /// Sectors the entries take.
    pub fn entries_sectors(&self, sector: u32) -> u64 {
        (self.entries.len() as u64).div_ceil(u64::from(sector))
    }

    /// The header's sector, with its checksums.
    pub fn header_sector(&self, sector: u32) -> Vec<u8> {
        let h = &self.header;
        let mut out = Vec::with_capacity(sector as usize);
        out.extend_from_slice(SIGNATURE);
        out.extend_from_slice(&0x0001_0000_u32.to_le_bytes());
        out.extend_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        for n in [h.my_lba, h.alternate_lba, h.first_usable, h.last_usable] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&h.disk_guid);
        out.extend_from_slice(&h.entries_lba.to_le_bytes());
        for n in [h.entry_count, h.entry_size, crc32fast::hash(&self.entries)] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        let crc = crc32fast::hash(&out);
        out[16..20].copy_from_slice(&crc.to_le_bytes());
        out.resize(sector as usize, 0);
        out
    }

    /// The header's sector, retired: it keeps all fields, but firmware does not accept it as a table.
    pub(crate) fn retired_sector(&self, sector: u32) -> Vec<u8> {
        let mut out = self.header_sector(sector);
        out[..RETIRED.len()].copy_from_slice(RETIRED);
        out
    }

    /// The entries, filled up to whole sectors.
    pub fn entries_padded(&self, sector: u32) -> Vec<u8> {
        let mut out = self.entries.clone();
        out.resize(out.len().next_multiple_of(sector as usize), 0);
        out
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A primary table with one partition, of a disk whose last sector is `last`.
    pub(crate) fn table(partition: (u64, u64), last: u64) -> Table {
        let mut entries = vec![0; 128 * 128];
        entries[..16].fill(7);
        entries[32..40].copy_from_slice(&partition.0.to_le_bytes());
        entries[40..48].copy_from_slice(&partition.1.to_le_bytes());
        let header = Header {
            my_lba: 1,
            alternate_lba: last,
            first_usable: 34,
            last_usable: last - 33,
            disk_guid: [3; 16],
            entries_lba: 2,
            entry_count: 128,
            entry_size: 128,
        };
        Table { header, entries }
    }

    fn small() -> Table {
        table((40, 50), 99)
    }

    fn disk(table: &Table, sector: u32) -> Vec<u8> {
        let mut bytes = vec![0; 100 * sector as usize];
        let size = sector as usize;
        bytes[size..2 * size].copy_from_slice(&table.header_sector(sector));
        let entries = table.entries_padded(sector);
        bytes[2 * size..2 * size + entries.len()].copy_from_slice(&entries);
        bytes
    }

    #[test]
    fn what_is_written_is_read_back_at_both_sector_sizes() {
        for sector in [512, 4096] {
            let table = small();
            assert_eq!(Table::read(&disk(&table, sector), 1, sector).unwrap(), table);
            assert_eq!(table.used().map(|e| (e.index, e.first, e.last)).collect::<Vec<_>>(), [(0, 40, 50)]);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096), lba in any::<u64>()) {
            // Only a panic would fail this test.
            let _ = Table::read(&bytes, lba, 512);
        }

        #[test]
        fn a_changed_byte_never_gives_a_valid_table(at in 512_usize..512 + 92, bit in 0..8) {
            let mut bytes = disk(&small(), 512);
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(Table::read(&bytes, 1, 512).is_err());
        }

        #[test]
        fn headers_with_right_checksums_and_wild_fields_never_panic(
            fields in prop::array::uniform5(prop_oneof![any::<u64>(), 0_u64..200]),
            count in prop_oneof![any::<u32>(), 0_u32..300], size in prop_oneof![any::<u32>(), Just(128_u32)],
        ) {
            let mut table = small();
            let h = &mut table.header;
            [h.alternate_lba, h.first_usable, h.last_usable, h.entries_lba, _] = fields;
            (h.entry_count, h.entry_size) = (count, size);
            // Only a panic would fail this test.
            let _ = Table::read(&disk(&table, 512), 1, 512);
        }
    }
}
