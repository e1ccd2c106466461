//! MBR partition tables, in LBA 0 and in the extended boot records that it leads to (there is no specification; as
//! Linux' block/partitions/msdos.c reads and numbers them).

use std::{io, ops::Range};

use crate::ReadAt;

/// Linux has the same limit; it bounds what a ring of records makes us read.
const MOST_LOGICAL: usize = 128;
/// The kernel's number of the first logical partition, however few primary ones there are.
const FIRST_LOGICAL: u32 = 5;
const TABLE: Range<usize> = 446..510;
/// The content of LBA 0 while only its entries are still needed. A few BIOSes start a sector without checking its
/// signature; this code sends them to the next device: `int 18h`, and if that returns, `hlt` for ever.
const RETIRED: &[u8; 16] = b"\xcd\x18\xf4\xeb\xfd\0\0\0LANDFALL";

/// The beginning of LBA 0 while a disk is held back: the same code, in front of the rest of the disk's boot code. What it covers
/// stands where the entries of the old table will be again.
const HELD_BACK: &[u8; 16] = b"\xcd\x18\xf4\xeb\xfd\0\0\0HELDBACK";
/// The boot code in LBA 0; behind it is the disk's identity of the old kind.
const BOOT_CODE: Range<usize> = 0..440;
const COVERED: Range<usize> = TABLE.start..TABLE.start + HELD_BACK.len();

/// LBA 0 that starts nothing and has no table, with the boot code that it had: a program of the installed system wrote that, and
/// it is written once.
pub(crate) fn held_back(lba0: &[u8]) -> Vec<u8> {
    let mut held = vec![0; lba0.len()];
    held[BOOT_CODE].copy_from_slice(&lba0[BOOT_CODE]);
    if !is_held_back(lba0) {
        held[COVERED].copy_from_slice(&lba0[..HELD_BACK.len()]);
        held[..HELD_BACK.len()].copy_from_slice(HELD_BACK);
    } else {
        held[COVERED].copy_from_slice(&lba0[COVERED]);
    }
    held
}

/// Gives LBA 0 of a finished disk the boot code that it had before it was held back.
pub(crate) fn put_boot_code(held: &[u8], lba0: &mut [u8]) {
    if is_held_back(held) {
        lba0[BOOT_CODE].copy_from_slice(&held[BOOT_CODE]);
        lba0[..HELD_BACK.len()].copy_from_slice(&held[COVERED]);
    }
}

fn is_held_back(lba0: &[u8]) -> bool {
    lba0.starts_with(HELD_BACK)
}

/// An entry of a partition table of the old kind. Sectors are the disk's logical ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LegacyPartition {
    /// Its entry in its table, from 0.
    pub(crate) slot: u32,
    pub(crate) boot: u8,
    pub(crate) kind: u8,
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl LegacyPartition {
    /// Whether it is plausible: the first sector of a file system without a table has text in its place.
    pub(crate) fn is_plausible(&self) -> bool {
        self.boot & 0x7f == 0 && self.start > 0 && self.count > 0
    }

    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

/// The used entries of the old table in a disk's first sector.
pub(crate) fn legacy_partitions(sector: &[u8]) -> Vec<LegacyPartition> {
    entries(sector).filter(|p| p.kind != 0).collect()
}

fn entries(sector: &[u8]) -> impl Iterator<Item = LegacyPartition> {
    let table = sector.get(TABLE).unwrap_or_default();
    let number = |b: &[u8]| b.try_into().map_or(0, u32::from_le_bytes);
    (0..).zip(table.chunks_exact(16)).map(move |(slot, e)| LegacyPartition {
        slot,
        boot: e[0],
        kind: e[4],
        start: number(&e[8..12]),
        count: number(&e[12..]),
    })
}

/// The partitions of a first sector that is plausibly a table of the old kind: it carries the boot signature and at least
/// one partition, and no entry, unused ones included, has a flag that no tool writes.
pub(crate) fn plausible_table(sector: &[u8]) -> Option<Vec<LegacyPartition>> {
    let parts = legacy_partitions(sector);
    let flags = sector.get(TABLE)?.chunks_exact(16).all(|entry| entry[0] & 0x7f == 0);
    let plausible = !parts.is_empty() && parts.iter().all(LegacyPartition::is_plausible);
    (has_signature(sector) && flags && plausible).then_some(parts)
}

/// Whether a disk's first sector carries the boot signature.
pub(crate) fn has_signature(sector: &[u8]) -> bool {
    sector.get(510..512) == Some(&[0x55, 0xaa])
}

/// What a table of the old kind leads to, bytes of the disk.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Legacy {
    /// Primary and logical partitions, and the extended ones that hold these, each with the kernel's number: 5 is that of
    /// `/dev/sda5`.
    pub(crate) partitions: Vec<(u32, Range<u64>)>,
    /// Extended boot records: without one, those behind it cannot be found.
    pub(crate) records: Vec<Range<u64>>,
    /// What LBA 0 is to hold until the partitions are cleared; empty if there are none.
    pub(crate) retired: Vec<u8>,
}

impl Legacy {
    /// Reads the table in LBA 0, as it was or retired, and follows the chains of extended boot records. A protective or
    /// implausible table counts as absent.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn read(disk: &(impl ReadAt + ?Sized), sector: u32) -> io::Result<Self> {
        let mut first = vec![0; sector as usize];
        disk.read_at(0, &mut first)?;
        let parts =
            if has_signature(&first) || first.starts_with(RETIRED) { legacy_partitions(&first) } else { vec![] };
        if parts.is_empty() || parts.iter().any(|p| p.kind == 0xee || !p.is_plausible()) {
            return Ok(Self::default());
        }
        let mut legacy = Self { retired: retired(&first), ..Self::default() };
        let unit = u64::from(sector);
        let mut next = FIRST_LOGICAL;
        for part in &parts {
            let start = u64::from(part.start);
            legacy.add(disk, part.slot + 1, start * unit..(start + u64::from(part.count)) * unit);
            if part.is_extended() {
                legacy.follow(disk, part, unit, &mut next)?;
            }
        }
        Ok(legacy)
    }

    fn add(&mut self, disk: &(impl ReadAt + ?Sized), number: u32, range: Range<u64>) {
        let range = range.start..range.end.min(disk.size());
        if !range.is_empty() {
            self.partitions.push((number, range));
        }
    }

    /// Each record has its partition first, counted from the record, and then the next record, counted from the extended
    /// partition's start. `number` is that of the next logical partition.
    fn follow(
        &mut self, disk: &(impl ReadAt + ?Sized), extended: &LegacyPartition, unit: u64, number: &mut u32,
    ) -> io::Result<()> {
        let (first, sectors) = (u64::from(extended.start), u64::from(extended.count));
        let (mut record, mut length) = (first, sectors);
        while self.records.len() < MOST_LOGICAL {
            let place = record * unit..(record + 1) * unit;
            if place.end > disk.size() || self.records.contains(&place) {
                break;
            }
            let mut bytes = vec![0; unit as usize];
            disk.read_at(place.start, &mut bytes)?;
            if !has_signature(&bytes) {
                break;
            }
            self.records.push(place);
            let mut next = None;
            // The kernel looks at no type here: an entry with a length takes a number.
            for part in entries(&bytes).filter(|part| part.count > 0) {
                let end = u64::from(part.start) + u64::from(part.count);
                if part.is_extended() {
                    next = next.or(Some(part));
                } else if part.slot < 2 || (end <= length && record + end <= first + sectors) {
                    // The third and the fourth entry may be garbage.
                    if part.kind != 0 && part.is_plausible() {
                        self.add(disk, *number, (record + u64::from(part.start)) * unit..(record + end) * unit);
                    }
                    *number += 1;
                }
            }
            let Some(next) = next else { break };
            (record, length) = (first + u64::from(next.start), next.count.into());
        }
        Ok(())
    }
}

/// The first sector with its entries, but without its boot code and its signature: no firmware starts it.
fn retired(first: &[u8]) -> Vec<u8> {
    let mut out = vec![0; first.len()];
    out[..RETIRED.len()].copy_from_slice(RETIRED);
    out[TABLE].copy_from_slice(&first[TABLE]);
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(sector: &mut [u8], slot: usize, kind: u8, start: u32, count: u32) {
        let at = 446 + 16 * slot;
        sector[at + 4] = kind;
        sector[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        sector[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
        sector[510..512].copy_from_slice(&[0x55, 0xaa]);
    }

    fn disk() -> Vec<u8> {
        let mut disk = vec![0; 512 * 1000];
        entry(&mut disk, 0, 0x83, 100, 50);
        entry(&mut disk, 1, 0x0f, 200, 600);
        entry(&mut disk[200 * 512..], 0, 0x83, 10, 90);
        entry(&mut disk[200 * 512..], 1, 0x05, 150, 200);
        entry(&mut disk[350 * 512..], 0, 0x83, 10, 90);
        disk
    }

    #[test]
    fn logical_partitions_are_found_even_in_a_retired_table() {
        let mut disk = disk();
        let legacy = Legacy::read(&disk, 512).unwrap();
        let sectors = |r: &Range<u64>| (r.start / 512, r.end / 512);
        let found: Vec<_> = legacy.partitions.iter().map(|(_, range)| sectors(range)).collect();
        assert_eq!(found, [(100, 150), (200, 800), (210, 300), (360, 450)]);
        assert_eq!(legacy.records.iter().map(sectors).collect::<Vec<_>>(), [(200, 201), (350, 351)]);
        disk[..512].copy_from_slice(&legacy.retired);
        assert!(!has_signature(&disk));
        assert_eq!(Legacy::read(&disk, 512).unwrap(), legacy);
    }

    #[test]
    fn partitions_have_the_numbers_that_the_kernel_gives_them() {
        let numbers = |disk: &Vec<u8>| -> Vec<u32> {
            Legacy::read(disk, 512).unwrap().partitions.iter().map(|(number, _)| *number).collect()
        };
        let mut disk = disk();
        assert_eq!(numbers(&disk), [1, 2, 5, 6]);
        // Slots 2 and 4 alone, and a first logical partition whose type says that it is unused.
        disk[446..446 + 64].fill(0);
        entry(&mut disk, 1, 0x05, 200, 600);
        entry(&mut disk, 3, 0x83, 100, 50);
        entry(&mut disk[200 * 512..], 0, 0, 10, 90);
        // Garbage in the third entry of a record takes no number.
        entry(&mut disk[200 * 512..], 2, 0x83, 10, 700);
        assert_eq!(numbers(&disk), [2, 6, 4]);
    }

    #[test]
    fn a_ring_of_records_ends() {
        let mut disk = disk();
        entry(&mut disk[350 * 512..], 1, 0x05, 150, 10);
        assert_eq!(Legacy::read(&disk, 512).unwrap().records.len(), 2);
    }

    #[test]
    fn what_only_looks_like_a_table_is_none() {
        let mut text = disk();
        text[446..510].fill(b'x');
        let mut protective = disk();
        protective[450] = 0xee;
        for disk in [text, protective, vec![0; 4096]] {
            assert_eq!(Legacy::read(&disk, 512).unwrap(), Legacy::default());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_tables_never_panic(
            entries in prop::collection::vec((0_usize..4, any::<u8>(), any::<u32>(), any::<u32>()), 0..8),
            near in prop::collection::vec((0_usize..4, 0_u32..40, 0_u32..40), 0..8),
        ) {
            let mut disk = vec![0; 512 * 40];
            for (slot, kind, start, count) in entries {
                entry(&mut disk, slot, kind, start, count);
            }
            for (at, (slot, start, count)) in near.into_iter().enumerate() {
                entry(&mut disk[at * 5 * 512..], slot, 0x05, start, count);
            }
            let legacy = Legacy::read(&disk, 512).unwrap();
            prop_assert!(legacy.records.len() <= MOST_LOGICAL);
            prop_assert!(legacy.partitions.iter().all(|(_, r)| r.end <= disk.len() as u64));
        }
    }
}
