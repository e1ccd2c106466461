//! A table that no image brings: its sectors from the list of its partitions.

use std::ops::Range;

use uuid::Uuid;

use super::{Header, Kept, Layout, Piece, Table};
use crate::WriteError;

/// Entries of a GPT, and bytes of each: UEFI 2.10, section 5.3.2.
const ENTRIES: u32 = 128;
const ENTRY: u32 = 128;
/// Boot code that tells a BIOS to go on to its next device: `int 18h`, and if that returns, `hlt` for ever. Zeroes would hang it.
const NOTHING_TO_START: &[u8; 5] = b"\xcd\x18\xf4\xeb\xfd";

/// A partition table to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTable {
    /// Which kind.
    pub kind: TableKind,
    /// The disk's identity; of a table of the old kind its first four bytes.
    pub guid: Uuid,
    /// Its entries, with the receipt's and those that stay.
    pub partitions: Vec<NewPartition>,
}

/// The kind of a partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt,
    /// A table of the old kind, with primary partitions alone.
    Mbr,
}

/// One entry of a new table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPartition {
    /// From 1: to 128 in a GPT, to 4 in a table of the old kind.
    pub number: u32,
    /// Its label, 36 units of UTF-16 at most.
    pub label: String,
    /// Its type in a GPT.
    pub kind: Uuid,
    /// Its type in a table of the old kind.
    pub mbr_kind: u8,
    /// Its own GUID.
    pub guid: Uuid,
    /// First sector.
    pub first: u64,
    /// Last sector, inclusive.
    pub last: u64,
    /// The flag by which a BIOS finds what to start, in a table of the old kind.
    pub active: bool,
    /// It was there, and its entry stays as it is.
    pub kept: bool,
}

impl NewPartition {
    /// What it covers, bytes of the disk.
    pub(crate) fn bytes(&self, sector: u32) -> Range<u64> {
        super::table::bytes_of(self.first, self.last, sector)
    }
}

impl NewTable {
    /// What the new partitions cover, bytes of the disk.
    pub(crate) fn new_ranges(&self, sector: u32) -> Vec<Range<u64>> {
        self.partitions.iter().filter(|part| !part.kept).map(|part| part.bytes(sector)).collect()
    }

    /// What goes where on a disk of this size. `kept`: what was found of the partitions that stay.
    pub(crate) fn layout(&self, sector: u32, size: u64, kept: &Kept, device: &str) -> Result<Layout, WriteError> {
        let mut layout = Layout::nothing(sector, size, device)?;
        let refused = |reason: String| WriteError::KeepRefused { device: device.into(), reason };
        self.same_kept(kept).map_err(refused)?;
        let sectors = size / u64::from(sector);
        let entries_sectors = u64::from(ENTRIES * ENTRY).div_ceil(sector.into());
        let usable = match self.kind {
            TableKind::Gpt => 2 + entries_sectors..sectors.saturating_sub(entries_sectors + 1),
            TableKind::Mbr => 1..sectors.min(u64::from(u32::MAX)),
        };
        self.check(&usable).map_err(|reason| WriteError::Internal(format!("the table for {device}: {reason}")))?;
        layout.kept = kept.clone();
        match self.kind {
            TableKind::Mbr => layout.lba0 = self.old_kind(sector),
            TableKind::Gpt => {
                let header = Header {
                    my_lba: 1,
                    alternate_lba: sectors - 1,
                    first_usable: usable.start,
                    last_usable: usable.end - 1,
                    disk_guid: self.guid.to_bytes_le(),
                    entries_lba: 2,
                    entry_count: ENTRIES,
                    entry_size: ENTRY,
                };
                let table = Table { header, entries: self.entries(kept) };
                let backup = table.backup(sectors - 1, sector);
                (layout.table, layout.backup) = (Piece::of(&table, sector), Piece::of(&backup, sector));
                layout.lba0 = protective(sector, sectors);
            }
        }
        Ok(layout)
    }

    /// The partitions that stay are those that were found, where they were found.
    fn same_kept(&self, kept: &Kept) -> Result<(), String> {
        for part in self.partitions.iter().filter(|part| part.kept) {
            let same = kept.partitions.iter().any(|found| {
                let place = (found.first, found.last, found.number, found.part_uuid());
                found.label == part.label && place == (part.first, part.last, part.number, part.guid)
            });
            if !same {
                return Err(format!("\"{}\" is not where it was when the layout was planned", part.label));
            }
        }
        let planned = self.partitions.iter().filter(|part| part.kept).count();
        if planned == kept.partitions.len() {
            Ok(())
        } else {
            Err("the layout was planned for other partitions".into())
        }
    }

    fn check(&self, usable: &Range<u64>) -> Result<(), &'static str> {
        let most = if self.kind == TableKind::Gpt { ENTRIES } else { 4 };
        let mut parts: Vec<&NewPartition> = self.partitions.iter().collect();
        parts.sort_by_key(|part| part.first);
        if parts.iter().any(|part| part.first > part.last || part.first < usable.start || part.last >= usable.end) {
            return Err("a partition lies outside the usable range");
        }
        if parts.windows(2).any(|pair| pair[0].last >= pair[1].first) {
            return Err("two partitions overlap");
        }
        let mut numbers: Vec<u32> = parts.iter().map(|part| part.number).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) || numbers.iter().any(|n| !(1..=most).contains(n)) {
            return Err("a partition's number is out of range or given twice");
        }
        Ok(())
    }

    /// The array of entries.
    fn entries(&self, kept: &Kept) -> Vec<u8> {
        let mut entries = vec![0; (ENTRIES * ENTRY) as usize];
        for part in &self.partitions {
            let Some(entry) = entries.chunks_exact_mut(ENTRY as usize).nth(part.number as usize - 1) else { continue };
            if let Some(found) = kept.partitions.iter().find(|found| part.kept && found.label == part.label) {
                entry.copy_from_slice(&found.entry);
                continue;
            }
            entry[..16].copy_from_slice(&part.kind.to_bytes_le());
            entry[16..32].copy_from_slice(&part.guid.to_bytes_le());
            entry[32..40].copy_from_slice(&part.first.to_le_bytes());
            entry[40..48].copy_from_slice(&part.last.to_le_bytes());
            for (at, unit) in entry[56..].chunks_exact_mut(2).zip(part.label.encode_utf16()) {
                at.copy_from_slice(&unit.to_le_bytes());
            }
        }
        entries
    }

    /// A first sector with a table of the old kind.
    fn old_kind(&self, sector: u32) -> Vec<u8> {
        let mut out = first_sector(sector);
        out[440..444].copy_from_slice(&self.guid.as_bytes()[..4]);
        for part in &self.partitions {
            // The sectors fit 32 bits: they were checked.
            let count = part.last - part.first + 1;
            let flag = if part.active { 0x80 } else { 0 };
            put(&mut out, part.number as usize - 1, flag, part.mbr_kind, part.first as u32, count as u32);
        }
        out
    }
}

/// The first sector of a disk with a GPT: one entry that covers all of it (UEFI 2.10, section 5.2.3).
fn protective(sector: u32, sectors: u64) -> Vec<u8> {
    let mut out = first_sector(sector);
    put(&mut out, 0, 0, 0xee, 1, u32::try_from(sectors - 1).unwrap_or(u32::MAX));
    // The starting cylinder, head and sector that the specification states for LBA 1.
    out[447..450].copy_from_slice(&[0, 2, 0]);
    out
}

fn first_sector(sector: u32) -> Vec<u8> {
    let mut out = vec![0; sector as usize];
    out[..NOTHING_TO_START.len()].copy_from_slice(NOTHING_TO_START);
    out[510..512].copy_from_slice(&[0x55, 0xaa]);
    out
}

/// An entry of the old kind. Cylinders, heads and sectors are those of a place beyond what they can say; readers go by the LBA.
fn put(out: &mut [u8], index: usize, flag: u8, kind: u8, first: u32, count: u32) {
    let at = 446 + 16 * index;
    out[at..at + 8].copy_from_slice(&[flag, 0xfe, 0xff, 0xff, kind, 0xfe, 0xff, 0xff]);
    out[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
    out[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::gpt::{RECEIPT_TYPE, legacy_partitions};

    const MIB: u64 = 1 << 20;

    pub(crate) fn part(number: u32, label: &str, range: Range<u64>, sector: u32) -> NewPartition {
        NewPartition {
            number,
            label: label.into(),
            kind: Uuid::from_u128(0x0fc63daf_8483_4772_8e79_3d69d8477de4),
            mbr_kind: 0x83,
            guid: Uuid::from_u128(number.into()),
            first: range.start / u64::from(sector),
            last: range.end / u64::from(sector) - 1,
            active: number == 1,
            kept: false,
        }
    }

    pub(crate) fn table(kind: TableKind, sector: u32) -> NewTable {
        let mut partitions = vec![part(1, "esp", MIB..3 * MIB, sector), part(2, "wurzel", 3 * MIB..7 * MIB, sector)];
        if kind == TableKind::Gpt {
            let mut receipt = part(128, "landfall-receipt", MIB - 4096..MIB, sector);
            receipt.kind = landfall_api::RECEIPT_PARTITION;
            partitions.push(receipt);
        }
        NewTable { kind, guid: Uuid::from_u128(9), partitions }
    }

    fn written(table: &NewTable, sector: u32) -> Vec<u8> {
        let layout = table.layout(sector, 8 * MIB, &Kept::default(), "disk").unwrap();
        let mut disk = vec![0; 8 << 20];
        let lba0 = Piece { offset: 0, bytes: layout.lba0.clone() };
        for Piece { offset, bytes } in layout.table.iter().chain(&layout.backup).chain([&lba0]) {
            disk[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
        }
        disk
    }

    #[test]
    fn both_copies_of_a_made_table_read_back() {
        for sector in [512, 4096] {
            let disk = written(&table(TableKind::Gpt, sector), sector);
            let last = 8 * MIB / u64::from(sector) - 1;
            for lba in [1, last] {
                let found = Table::read(&disk, lba, sector).unwrap();
                let used: Vec<_> = found.used().map(|e| (e.index + 1, e.label.clone(), e.bytes(sector))).collect();
                let receipt = (128, "landfall-receipt".to_owned(), MIB - 4096..MIB);
                let esp = (1, "esp".to_owned(), MIB..3 * MIB);
                assert_eq!(used, [esp, (2, "wurzel".into(), 3 * MIB..7 * MIB), receipt]);
                assert_eq!(found.used().last().unwrap().kind, RECEIPT_TYPE);
            }
            let shield = legacy_partitions(&disk);
            assert_eq!((shield[0].kind, shield[0].start, u64::from(shield[0].count)), (0xee, 1, last));
        }
    }

    #[test]
    fn another_program_reads_a_made_table_alike() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &written(&table(TableKind::Gpt, 512), 512)).unwrap();
        let config = gpt::GptConfig::new().writable(false).logical_block_size(gpt::disk::LogicalBlockSize::Lb512);
        let found = config.open(file.path()).unwrap();
        let names: Vec<_> = found.partitions().values().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["esp", "wurzel", "landfall-receipt"]);
    }

    #[test]
    fn an_mbr_marks_its_active_partition_and_has_a_signature() {
        let disk = written(&table(TableKind::Mbr, 512), 512);
        let found: Vec<_> = legacy_partitions(&disk).iter().map(|p| (p.boot, p.kind, p.start, p.count)).collect();
        assert_eq!(found, [(0x80, 0x83, 2048, 4096), (0, 0x83, 6144, 8192)]);
        assert!(disk.starts_with(NOTHING_TO_START) && super::super::has_signature(&disk));
    }

    #[test]
    fn a_table_that_contradicts_itself_is_not_made() {
        type Spoil = fn(&mut NewTable);
        let spoils: [Spoil; 6] = [
            |table| table.partitions[1].first -= 1,
            |table| table.partitions[1].last = 8 * MIB / 512 - 33,
            |table| table.partitions[0].first = 33,
            |table| table.partitions[1].number = 1,
            |table| table.partitions[1].number = 129,
            |table| table.partitions[1].kept = true,
        ];
        for (n, spoil) in spoils.into_iter().enumerate() {
            let mut table = table(TableKind::Gpt, 512);
            spoil(&mut table);
            assert!(table.layout(512, 8 * MIB, &Kept::default(), "disk").is_err(), "{n}");
        }
    }
}
