//! Computes from an image's head what goes where on this disk, completely, before the first destructive write.

use std::ops::Range;

use super::place::{add_receipt, drop_receipts};
use super::{Kept, LegacyPartition, Table, legacy_partitions};
use crate::content::{Content, Refusal, decide};
use crate::{Defect, WriteError, receipt};

/// How much of the image's start must be seen to plan: the tables and the receipt's place are in it. The commit alone
/// writes it: some boards start what stands in a fixed sector there, whatever the tables say.
pub(crate) const HEAD: usize = 1 << 20;
/// No disk image is smaller, and the zones cleared at both ends must not overlap.
const SMALLEST_DISK: u64 = 2 << 20;
/// What a backup table of the usual size takes at a disk's end, sectors. Used where the image itself has none.
const USUAL_BACKUP_BYTES: u64 = 128 * 128;

/// Bytes and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset on the disk, bytes.
    pub offset: u64,
    /// Whole sectors.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// The entries and the header of one copy of a table, where its header says that they are.
    pub(super) fn of(table: &Table, sector: u32) -> Vec<Self> {
        let at = |lba: u64| lba * u64::from(sector);
        let entries = Self { offset: at(table.header.entries_lba), bytes: table.entries_padded(sector) };
        vec![entries, Self { offset: at(table.header.my_lba), bytes: table.header_sector(sector) }]
    }
}

/// What becomes of a range of the image's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Written as it comes.
    Write,
    /// Left to the commit, which has bytes of its own for it.
    Skip,
    /// Kept in memory until the commit: the image has data there, but the disk must not hold it earlier.
    Capture,
    /// Zeroed: the image's own backup table, which moves to the disk's end.
    Zero,
    /// Not the image's: a kept partition, or the old table that leads to it. Image data there fails the write.
    Forbidden,
}

/// Data of the image that only the commit may write.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Captured(pub(crate) Vec<Piece>);

/// What goes where, and when.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) sector: u32,
    pub(crate) disk_size: u64,
    /// The first sector: boot code, partition table of the old kind, signature.
    pub(crate) lba0: Vec<u8>,
    /// Header and entries; none in an image without GPT.
    pub(crate) table: Vec<Piece>,
    /// The second copy, at the disk's true end.
    pub(crate) backup: Vec<Piece>,
    /// Looked up in order; ranges that none covers are written.
    fates: Vec<(Range<u64>, Fate)>,
    /// An image shorter than this lacks a part of its last partition.
    pub(crate) least_raw: u64,
    /// The size the image's own table claims, bytes; 0 without GPT.
    pub(crate) claimed: u64,
    /// Whether the receipt has a place of its own, and why not.
    pub(crate) receipt_room: Result<(), String>,
    /// What stays of the old table.
    pub(crate) kept: Kept,
}

impl Layout {
    /// An empty plan: for a disk that is only cleared.
    pub(crate) fn nothing(sector: u32, disk_size: u64, device: &str) -> Result<Self, WriteError> {
        if disk_size < SMALLEST_DISK {
            return Err(WriteError::DiskTooSmall { device: device.into(), needed: SMALLEST_DISK, size: disk_size });
        }
        Ok(Self {
            sector,
            disk_size,
            lba0: vec![0; sector as usize],
            table: Vec::new(),
            backup: Vec::new(),
            fates: Vec::new(),
            least_raw: 0,
            claimed: 0,
            receipt_room: Ok(()),
            kept: Kept::default(),
        })
    }

    /// Plans from the first [`HEAD`] bytes of the image (fewer only if it has no more), around what is kept.
    /// `no_table`: the request states that it has no partition table.
    pub(crate) fn plan(
        head: &[u8], sector: u32, disk_size: u64, device: &str, image: &str, no_table: bool, kept: &Kept,
    ) -> Result<Self, WriteError> {
        let names = Names { device, image, disk_size };
        if disk_size < SMALLEST_DISK {
            return Err(names.small(SMALLEST_DISK));
        }
        match decide(head, sector, no_table) {
            Ok(Content::Gpt(table)) => Self::with_table(head, table, sector, kept, &names),
            Ok(_) if !kept.partitions.is_empty() => {
                let reason = "the image has no GPT, so it has no table that could hold a kept partition";
                Err(names.keep(reason.into()))
            }
            Ok(Content::Mbr(parts)) => Self::without_gpt(head, sector, &parts, &names),
            Ok(Content::NoTable) => Self::without_gpt(head, sector, &[], &names),
            Err(Refusal::Short) => Err(WriteError::Truncated {
                subject: image.into(),
                reason: format!("it holds {} bytes, but a disk image has at least one sector", head.len()),
            }),
            Err(Refusal::SectorSize(size)) => {
                Err(WriteError::WrongSectorSize { device: device.into(), image: size, disk: sector })
            }
            Err(Refusal::Defect(defect, reason)) => Err(names.bad(defect, reason)),
        }
    }

    fn with_table(
        head: &[u8], mut table: Table, sector: u32, kept: &Kept, names: &Names<'_>,
    ) -> Result<Self, WriteError> {
        let disk_size = names.disk_size;
        let bytes = u64::from(sector);
        let claimed = table.header.alternate_lba.saturating_add(1).saturating_mul(bytes);
        if claimed > disk_size {
            return Err(names.small(claimed));
        }
        let entries_sectors = table.entries_sectors(sector);
        let entries_end = table.header.entries_lba.saturating_add(entries_sectors);
        let last = table.used().map(|e| e.last).max().unwrap_or(0);
        if table.used().any(|e| e.first < entries_end) {
            return Err(names.bad(Defect::Table, "a partition overlaps the table's own entries".into()));
        }
        let disk_sectors = disk_size / bytes;
        let last_usable = disk_sectors.saturating_sub(entries_sectors + 2);
        if last > last_usable {
            return Err(names.small(last.saturating_add(entries_sectors + 2).saturating_mul(bytes)));
        }
        let old_backup = (table.header.alternate_lba.saturating_sub(entries_sectors)).max(last + 1) * bytes..claimed;
        drop_receipts(&mut table);
        let receipt_room = add_receipt(&mut table, head, sector, entries_end);
        table.header.alternate_lba = disk_sectors - 1;
        table.header.last_usable = last_usable;
        kept.merge(&mut table, sector).map_err(|reason| names.keep(reason))?;
        let backup = table.backup(disk_sectors - 1, sector);
        let place = receipt::PLACE;
        let mut fates = Vec::new();
        for range in kept.ranges(sector) {
            // The image's own backup table may fall there: it has moved, so nothing of the image is lost.
            fates.push((range.start.max(old_backup.start)..range.end.min(old_backup.end), Fate::Skip));
            fates.push((range, Fate::Forbidden));
        }
        fates.extend([
            (0..2 * bytes, Fate::Skip),
            (table.header.entries_lba * bytes..entries_end * bytes, Fate::Skip),
            ((last_usable + 1) * bytes..u64::MAX, Fate::Skip),
            (kept.array.clone(), Fate::Forbidden),
            (place, if receipt_room.is_ok() { Fate::Skip } else { Fate::Capture }),
            (old_backup, Fate::Zero),
            (0..HEAD as u64, Fate::Capture),
        ]);
        fates.retain(|(range, _)| !range.is_empty());
        let layout = Self {
            sector,
            disk_size,
            lba0: protective(&head[..sector as usize], disk_sectors),
            table: Piece::of(&table, sector),
            backup: Piece::of(&backup, sector),
            fates,
            least_raw: last.saturating_add(1).saturating_mul(bytes).min(claimed),
            claimed,
            receipt_room,
            kept: kept.clone(),
        };
        // Data in the head can be checked now, before the old system is destroyed.
        for (part, fate) in layout.split(0..head.len() as u64) {
            if fate == Fate::Forbidden {
                layout
                    .must_spare(part.start, &head[part.start as usize..part.end as usize])
                    .map_err(|r| names.keep(r))?;
            }
        }
        Ok(layout)
    }

    /// A table of the old kind with these partitions, or none at all.
    fn without_gpt(head: &[u8], sector: u32, parts: &[LegacyPartition], names: &Names<'_>) -> Result<Self, WriteError> {
        let Names { device, disk_size, .. } = *names;
        let tail = disk_size - USUAL_BACKUP_BYTES - u64::from(sector);
        let end = |p: &LegacyPartition| (u64::from(p.start) + u64::from(p.count)) * 512;
        let least_raw = parts.iter().map(end).max().unwrap_or(0);
        if least_raw > disk_size {
            return Err(WriteError::DiskTooSmall { device: device.into(), needed: least_raw, size: disk_size });
        }
        Ok(Self {
            sector,
            disk_size,
            lba0: head[..sector as usize].to_vec(),
            table: Vec::new(),
            backup: Vec::new(),
            fates: vec![
                (0..u64::from(sector), Fate::Skip),
                (tail..disk_size, Fate::Capture),
                (0..HEAD as u64, Fate::Capture),
            ],
            least_raw,
            claimed: 0,
            receipt_room: Err("the image has no GPT, so it has no entry for a receipt".into()),
            kept: Kept::default(),
        })
    }

    /// Whether data of the image at this byte, where something is kept, is all zero; if not, what it would have
    /// overwritten.
    pub(crate) fn must_spare(&self, offset: u64, data: &[u8]) -> Result<(), String> {
        let Some(at) = data.iter().position(|byte| *byte != 0) else { return Ok(()) };
        let at = offset + at as u64;
        let mut parts = self.kept.partitions.iter();
        let whose = match parts.find(|part| part.bytes(self.sector).contains(&at)) {
            Some(part) => format!("\"{}\"", part.label),
            None => "the old table".into(),
        };
        Err(format!("the image has data at byte {at}, which belongs to {whose}"))
    }

    /// Cuts a range of the image by what becomes of its parts.
    pub(crate) fn split(&self, range: Range<u64>) -> Vec<(Range<u64>, Fate)> {
        let mut cuts: Vec<u64> = self.fates.iter().flat_map(|(r, _)| [r.start, r.end]).collect();
        cuts.retain(|cut| range.contains(cut));
        cuts.extend([range.start, range.end]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts: Vec<(Range<u64>, Fate)> = Vec::new();
        for pair in cuts.windows(2) {
            let fate = self.fates.iter().find(|(r, _)| r.contains(&pair[0])).map_or(Fate::Write, |(_, fate)| *fate);
            match parts.last_mut() {
                Some((before, same)) if *same == fate => before.end = pair[1],
                _ => parts.push((pair[0]..pair[1], fate)),
            }
        }
        parts
    }
}

/// What refusals name.
struct Names<'a> {
    device: &'a str,
    image: &'a str,
    disk_size: u64,
}

impl Names<'_> {
    fn bad(&self, defect: Defect, reason: String) -> WriteError {
        WriteError::BadFormat { subject: self.image.into(), reason, defect }
    }
    fn small(&self, needed: u64) -> WriteError {
        WriteError::DiskTooSmall { device: self.device.into(), needed, size: self.disk_size }
    }
    fn keep(&self, reason: String) -> WriteError {
        WriteError::KeepRefused { device: self.device.into(), reason }
    }
}

/// The first sector, its protective entry stretched over the whole disk. A hybrid table is left as it is: its entries
/// mirror partitions.
fn protective(sector: &[u8], disk_sectors: u64) -> Vec<u8> {
    let mut out = sector.to_vec();
    if let [only] = legacy_partitions(sector).as_slice()
        && only.kind == 0xee
    {
        let count = u32::try_from(disk_sectors - 1).unwrap_or(u32::MAX);
        for entry in out[446..510].chunks_exact_mut(16).filter(|e| e[4] == 0xee) {
            entry[12..16].copy_from_slice(&count.to_le_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Layout {
        let mut head = vec![1; HEAD];
        head[446..512].fill(0);
        (head[450], head[454], head[458]) = (0x83, 64, 64);
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        Layout::plan(&head, 512, 8 << 20, "disk", "image", false, &Kept::default()).unwrap()
    }

    #[test]
    fn a_range_is_cut_by_what_becomes_of_its_parts() {
        let head = HEAD as u64;
        let parts = plain().split(0..3 * head);
        assert_eq!(parts, [(0..512, Fate::Skip), (512..head, Fate::Capture), (head..3 * head, Fate::Write)]);
    }

    #[test]
    fn an_image_without_gpt_gets_no_receipt_and_says_why() {
        assert!(plain().receipt_room.unwrap_err().contains("no GPT"));
    }

    #[test]
    fn a_head_that_announces_a_missing_gpt_is_refused() {
        let mut head = vec![0; HEAD];
        head[450] = 0xee;
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        let error = Layout::plan(&head, 512, 8 << 20, "disk", "image", false, &Kept::default()).unwrap_err();
        assert!(matches!(error, WriteError::BadFormat { .. }), "{error}");
    }
}
