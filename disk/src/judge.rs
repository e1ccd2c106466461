//! The judge: what would firmware make of a disk as it stands, and is that old, nothing, or the verified new?
//!
//! Used by the crash tests on a recording device and by those with QEMU's `blklogwrites` alike, so that one set of rules
//! decides:
//!
//! - BIOS starts whatever is behind a boot signature (55 AA) in LBA 0.
//! - UEFI as OVMF does it wants that signature and a valid primary or a valid backup table.
//! - UEFI at its most lenient goes by a valid primary or backup table alone. None is known to; the order must hold even
//!   then.
//!
//! LBA 0 without its signature starts nothing, whatever else is in it (see `gpt/legacy.rs` for what an install leaves
//! there for a moment), and neither does a GPT header under another magic (`gpt/old.rs`).
//!
//! A disk that any of the three would start must hold exactly the old or exactly the new content: every byte of every
//! partition, of the gap before the first one, and of the boot sector it would start from. The receipt's place,
//! where no partition covers it, belongs to neither.

use std::{fmt, io, ops::Range};

use crate::gpt::RECEIPT_TYPE;
use crate::{ReadAt, Table, TableError, gpt, receipt, signature};

/// What firmware finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// LBA 0 carries 55 AA.
    pub boot_signature: bool,
    /// The table at LBA 1, if it is valid.
    pub primary: Option<Table>,
    /// The table in the last sector, if it is valid.
    pub backup: Option<Table>,
}

impl Findings {
    /// Looks at a disk with logical sectors of `sector` bytes.
    ///
    /// # Errors
    /// The disk's.
    pub fn of(disk: &dyn ReadAt, sector: u32) -> io::Result<Self> {
        let mut first = vec![0; sector as usize];
        disk.read_at(0, &mut first)?;
        let table = |lba| match Table::read(disk, lba, sector) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::Absent | TableError::Damaged(_)) => Ok(None),
            Err(TableError::Io(error)) => Err(error),
        };
        let last = (disk.size() / u64::from(sector)).saturating_sub(1);
        Ok(Self { boot_signature: gpt::has_signature(&first), primary: table(1)?, backup: table(last)? })
    }
    /// Whether a BIOS would start it.
    pub fn bios_boots(&self) -> bool {
        self.boot_signature
    }
    /// Whether UEFI as OVMF does it would look for a system on it.
    pub fn uefi_boots(&self) -> bool {
        self.boot_signature && self.table().is_some()
    }
    /// Whether some firmware, the most lenient imaginable, would.
    pub fn anything_boots(&self) -> bool {
        self.boot_signature || self.table().is_some()
    }
    /// The table firmware goes by: the primary, else the backup.
    pub fn table(&self) -> Option<&Table> {
        self.primary.as_ref().or(self.backup.as_ref())
    }
}

/// The signatures of `region` (bytes of the disk) by which a kernel or a tool would take it for something: what each is
/// of, and where its magic stands.
///
/// # Errors
/// The disk's.
pub fn signatures(disk: &dyn ReadAt, region: &Range<u64>) -> io::Result<Vec<(&'static str, u64)>> {
    Ok(signature::find(disk, region)?.into_iter().map(|found| (found.name, found.offset)).collect())
}

/// The verdict on a disk after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It starts what was there before, untouched.
    Old,
    /// No firmware would start it.
    Unbootable,
    /// It starts the new content, all of it.
    VerifiedNew,
    /// It starts something that is neither: rule 1 is broken.
    Broken,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Old => "old",
            Self::Unbootable => "unbootable",
            Self::VerifiedNew => "verified-new",
            Self::Broken => "BROKEN: bootable, and neither old nor verified-new",
        })
    }
}

/// Judges `disk` against the disk before the install (`old`) and after it (`new`). All three have sectors of `sector`
/// bytes and the same size.
///
/// # Errors
/// Reading one of them failed.
pub fn judge(disk: &dyn ReadAt, old: &dyn ReadAt, new: &dyn ReadAt, sector: u32) -> io::Result<State> {
    let found = Findings::of(disk, sector)?;
    if !found.anything_boots() {
        return Ok(State::Unbootable);
    }
    for (reference, state) in [(new, State::VerifiedNew), (old, State::Old)] {
        if same_system(disk, &found, reference, sector)? {
            return Ok(state);
        }
    }
    Ok(State::Broken)
}

/// Whether what firmware would start from `disk` is what it would start from `reference`.
fn same_system(disk: &dyn ReadAt, found: &Findings, reference: &dyn ReadAt, sector: u32) -> io::Result<bool> {
    let wanted = Findings::of(reference, sector)?;
    if !wanted.anything_boots() {
        return Ok(false);
    }
    // The boot sector is part of the system wherever a firmware would start it.
    if found.boot_signature && !same_bytes(disk, reference, 0..u64::from(sector))? {
        return Ok(false);
    }
    // A table that stands must list the same partitions as the reference's.
    for table in [&found.primary, &found.backup].into_iter().flatten() {
        let same = |other: &Table| comparable(other) == comparable(table);
        if !wanted.primary.as_ref().or(wanted.backup.as_ref()).is_some_and(same) {
            return Ok(false);
        }
    }
    // A BIOS goes by LBA 0 alone and a boot loader then by the table: it must be there if the reference has one.
    if wanted.table().is_some() && found.table().is_none() {
        return Ok(false);
    }
    system_ranges(reference, &wanted, sector)?.into_iter().try_fold(true, |same, range| {
        // Once different, nothing more is read.
        Ok(same && same_bytes(disk, reference, range)?)
    })
}

/// The entries, without what tells two installs of one image apart: the identity of the receipt's own, new each time.
fn comparable(table: &Table) -> Vec<u8> {
    let mut entries = table.entries.clone();
    let size = table.header.entry_size as usize;
    for entry in entries.chunks_exact_mut(size).filter(|entry| entry.starts_with(&RECEIPT_TYPE)) {
        if let Some(identity) = entry.get_mut(16..32) {
            identity.fill(0);
        }
    }
    entries
}

/// The bytes that make up the system on a disk: the gap behind the tables, without the receipt's place, and every partition
/// but the receipt's.
fn system_ranges(disk: &dyn ReadAt, found: &Findings, sector: u32) -> io::Result<Vec<Range<u64>>> {
    let bytes = u64::from(sector);
    let mut ranges = Vec::new();
    let place = receipt::PLACE;
    if let Some(table) = found.table() {
        let entries = table.entries_sectors(sector);
        ranges.push((2 + entries) * bytes..place.start);
        ranges.extend(table.used().filter(|e| e.kind != RECEIPT_TYPE).map(|e| e.bytes(sector)));
    } else {
        let mut first = vec![0; sector as usize];
        disk.read_at(0, &mut first)?;
        ranges.push(bytes..place.start);
        for part in gpt::legacy_partitions(&first) {
            let start = u64::from(part.start) * bytes;
            ranges.push(start..start + u64::from(part.count) * bytes);
        }
    }
    let inside = |r: Range<u64>| r.start..r.end.min(disk.size());
    Ok(ranges.into_iter().map(inside).filter(|r| !r.is_empty()).collect())
}

fn same_bytes(a: &dyn ReadAt, b: &dyn ReadAt, range: Range<u64>) -> io::Result<bool> {
    let mut at = range.start;
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    while at < range.end {
        let now = usize::try_from(range.end - at).map_or(left.len(), |n| n.min(left.len()));
        a.read_at(at, &mut left[..now])?;
        b.read_at(at, &mut right[..now])?;
        if left[..now] != right[..now] {
            return Ok(false);
        }
        at += now as u64;
    }
    Ok(true)
}
