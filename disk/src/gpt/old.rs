//! What a disk held before: its old tables, read as a restart after a power cut must be able to read them again.
//!
//! An install destroys the old headers first and needs the old list of partitions longer than that: their signatures are
//! to be cleared, and partitions that are kept must stay findable. So the header in LBA 1 is *retired* rather than zeroed:
//! one sector, so at every instant it is the old header or the retired one. It keeps all fields and checksums, under a
//! magic that no firmware knows, and leads to the old entries, which stay where they are until they are needed no more.

use std::{io, ops::Range};

use super::legacy::{Legacy, has_signature};
use super::{RECEIPT_TYPE, Table, TableError};
use crate::{ReadAt, receipt};

/// Which copy of the old table was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copy {
    Primary,
    /// The primary, retired by an install that did not end.
    Retired,
    Backup,
}

/// The old tables of a disk.
#[derive(Debug, Clone)]
pub(crate) struct Old {
    sector: u64,
    disk_size: u64,
    /// The GPT that counts: the primary, else the retired one, else the backup.
    pub(crate) table: Option<(Copy, Table)>,
    /// The backup, where it is valid beside another copy.
    beside: Option<Table>,
    /// The table of the old kind.
    pub(crate) legacy: Legacy,
    /// Whether LBA 0 carries the boot signature.
    pub(crate) boot_signature: bool,
}

/// What makes the old entries findable without either header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retirement {
    /// Where the entries are from then on, bytes of the disk.
    pub(crate) array: Range<u64>,
    /// Written there first, and flushed: the backup's entries, if only the backup is left.
    pub(crate) entries: Option<Vec<u8>>,
    /// LBA 1 from then on.
    pub(crate) header: Vec<u8>,
}

impl Old {
    /// Reads all tables of a disk with logical sectors of `sector` bytes.
    ///
    /// # Errors
    /// The disk's. Damaged tables are none.
    pub(crate) fn read(disk: &(impl ReadAt + ?Sized), sector: u32) -> io::Result<Self> {
        let valid = |read: Result<Table, TableError>| match read {
            Ok(table) => Ok(Some(table)),
            Err(TableError::Absent | TableError::Damaged(_)) => Ok(None),
            Err(TableError::Io(error)) => Err(error),
        };
        let last = (disk.size() / u64::from(sector)).saturating_sub(1);
        let backup = valid(Table::read(disk, last, sector))?;
        let primary = valid(Table::read(disk, 1, sector))?.map(|table| (Copy::Primary, table));
        let front = match primary {
            Some(found) => Some(found),
            None => valid(Table::read_retired(disk, sector))?.map(|table| (Copy::Retired, table)),
        };
        let (table, beside) = match front {
            Some(found) => (Some(found), backup),
            None => (backup.map(|table| (Copy::Backup, table)), None),
        };
        let mut first = vec![0; sector as usize];
        disk.read_at(0, &mut first)?;
        Ok(Self {
            sector: sector.into(),
            disk_size: disk.size(),
            table,
            beside,
            legacy: Legacy::read(disk, sector)?,
            boot_signature: has_signature(&first),
        })
    }

    /// Every partition in any of the tables, bytes of the disk, without the receipt's. At most 512 KiB of entries a
    /// copy.
    pub(crate) fn partitions(&self) -> Vec<Range<u64>> {
        let mut all: Vec<Range<u64>> = self.legacy.partitions.iter().map(|(_, range)| range.clone()).collect();
        let sector = self.sector as u32;
        for table in self.table.iter().map(|(_, table)| table).chain(&self.beside) {
            all.extend(table.used().filter(|e| e.kind != RECEIPT_TYPE).map(|e| e.bytes(sector)));
        }
        let whole = self.disk_size / self.sector * self.sector;
        let inside = |r: Range<u64>| r.start..r.end.min(whole);
        let mut all: Vec<_> = all.into_iter().map(inside).filter(|r| !r.is_empty()).collect();
        all.sort_unstable_by_key(|r| (r.start, r.end));
        all.dedup();
        all
    }

    /// Bytes of the disk.
    pub(crate) fn disk_size(&self) -> u64 {
        self.disk_size
    }

    /// Where the entries of the table that counts are, bytes of the disk.
    pub(crate) fn array(&self) -> Option<Range<u64>> {
        let (_, table) = self.table.as_ref()?;
        Some(self.array_of(table, table.header.entries_lba))
    }

    fn array_of(&self, table: &Table, lba: u64) -> Range<u64> {
        let sectors = table.entries_sectors(self.sector as u32);
        lba.saturating_mul(self.sector)..lba.saturating_add(sectors).saturating_mul(self.sector)
    }

    /// How the table can outlive its headers; `None`: there is none, or its entries would be in the way.
    pub(crate) fn retirement(&self) -> Option<Retirement> {
        let (copy, table) = self.table.as_ref().filter(|(_, table)| table.used().next().is_some())?;
        let sector = self.sector as u32;
        let mut retired = table.clone();
        // The growth of a partition that was interrupted (`grow.rs`) left the first header leading to the backup's entries.
        let moved = *copy == Copy::Backup || retired.header.entries_lba > retired.header.last_usable;
        if *copy == Copy::Backup {
            (retired.header.alternate_lba, retired.header.my_lba) = (retired.header.my_lba, 1);
        }
        if moved {
            retired.header.entries_lba = 2;
        }
        let array = self.array_of(&retired, retired.header.entries_lba);
        let overlaps = |r: Range<u64>| r.start < array.end && r.end > array.start;
        if array.end > receipt::PLACE.start || table.used().any(|e| overlaps(e.bytes(sector))) {
            return None;
        }
        let entries = moved.then(|| retired.entries_padded(sector));
        Some(Retirement { array, entries, header: retired.retired_sector(sector) })
    }

    /// Where a backup header stands that is not in the last sector, because the disk was smaller once; bytes of the disk.
    pub(crate) fn stray_backup(&self) -> Option<Range<u64>> {
        let (_, table) = self.table.as_ref().filter(|(copy, _)| *copy != Copy::Backup)?;
        let at = table.header.alternate_lba.checked_mul(self.sector)?;
        let inside = at.checked_add(self.sector).is_some_and(|end| end < self.disk_size / self.sector * self.sector);
        (inside && table.header.alternate_lba > 1).then_some(at..at + self.sector)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::table::tests, *};

    const SECTOR: usize = 512;
    const LAST: u64 = 4095;

    fn table() -> Table {
        tests::table((2048, 2057), LAST)
    }

    fn put(disk: &mut [u8], table: &Table) {
        let at = table.header.entries_lba as usize * SECTOR;
        disk[at..at + table.entries.len()].copy_from_slice(&table.entries);
        let at = table.header.my_lba as usize * SECTOR;
        disk[at..at + SECTOR].copy_from_slice(&table.header_sector(512));
    }

    fn backup() -> Table {
        table().backup(LAST, 512)
    }

    fn blank() -> Vec<u8> {
        vec![0; (LAST as usize + 1) * SECTOR]
    }

    #[test]
    fn a_retired_table_does_not_boot_and_reads_back_equal() {
        let mut disk = blank();
        put(&mut disk, &table());
        let old = Old::read(&disk, 512).unwrap();
        let retirement = old.retirement().unwrap();
        assert_eq!((retirement.array.clone(), retirement.entries), (1024..1024 + 128 * 128, None));
        disk[SECTOR..2 * SECTOR].copy_from_slice(&retirement.header);
        assert!(matches!(Table::read(&disk, 1, 512), Err(TableError::Absent)));
        let again = Old::read(&disk, 512).unwrap();
        assert_eq!(again.table.as_ref().map(|(copy, _)| *copy), Some(Copy::Retired));
        assert_eq!(again.partitions(), old.partitions());
        assert_eq!(again.retirement().unwrap().header, disk[SECTOR..2 * SECTOR]);
        disk[1024] ^= 1;
        assert!(Old::read(&disk, 512).unwrap().table.is_none(), "changed entries are not trusted");
    }

    /// With the retired table at the front and no backup, the same partitions are found.
    fn assert_found_retired(mut disk: Vec<u8>, old: &Old, retirement: Retirement) {
        let entries = retirement.entries.unwrap();
        disk[1024..1024 + entries.len()].copy_from_slice(&entries);
        disk[SECTOR..2 * SECTOR].copy_from_slice(&retirement.header);
        let end = disk.len();
        disk[end - 33 * SECTOR..].fill(0);
        assert_eq!(Old::read(&disk, 512).unwrap().partitions(), old.partitions());
    }

    #[test]
    fn a_lone_backup_is_retired_to_the_front() {
        let mut disk = blank();
        put(&mut disk, &backup());
        let old = Old::read(&disk, 512).unwrap();
        let retirement = old.retirement().unwrap();
        assert_found_retired(disk, &old, retirement);
    }

    #[test]
    fn an_interrupted_growths_table_is_retired_to_the_front() {
        let mut disk = blank();
        put(&mut disk, &table());
        put(&mut disk, &backup());
        let mut between = table();
        between.header.entries_lba = LAST - 32;
        disk[SECTOR..2 * SECTOR].copy_from_slice(&between.header_sector(512));
        let old = Old::read(&disk, 512).unwrap();
        let retirement = old.retirement().unwrap();
        assert_eq!(retirement.array.start, 1024);
        assert_found_retired(disk, &old, retirement);
    }

    #[test]
    fn a_backup_that_differs_adds_its_partitions() {
        let mut disk = blank();
        put(&mut disk, &table());
        let mut other = backup();
        other.entries[32] = 1;
        put(&mut disk, &other);
        assert_eq!(Old::read(&disk, 512).unwrap().partitions().len(), 2);
    }

    proptest! {
        #[test]
        fn tables_with_wild_fields_and_right_checksums_never_panic(
            fields in prop::array::uniform4(prop_oneof![any::<u64>(), 0_u64..200]), first in any::<u64>(),
            last in prop_oneof![any::<u64>(), 0_u64..5000], lone in any::<bool>(),
        ) {
            let mut wild = if lone { backup() } else { table() };
            wild.entries[32..40].copy_from_slice(&first.to_le_bytes());
            wild.entries[40..48].copy_from_slice(&last.to_le_bytes());
            let mut disk = blank();
            put(&mut disk, &wild);
            let h = &mut wild.header;
            [h.alternate_lba, h.first_usable, h.last_usable, _] = fields;
            let at = h.my_lba as usize * SECTOR;
            disk[at..at + SECTOR].copy_from_slice(&wild.header_sector(512));
            let old = Old::read(&disk, 512).unwrap();
            // Only a panic would fail this test.
            let _ = (old.retirement(), old.stray_backup(), old.array());
            prop_assert!(old.partitions().iter().all(|r| r.start < r.end && r.end <= disk.len() as u64));
        }
    }
}
