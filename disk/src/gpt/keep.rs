//! Partitions of the old table that stay: chosen by name, checked against the image's table, merged into it.

use std::{collections::BTreeSet, io, ops::Range};

use uuid::Uuid;

use super::{Entry, Old, RECEIPT_TYPE, Table, table};
use crate::{ReadAt, WriteError};

/// Bytes of an entry that have a meaning (UEFI 2.10, table 5.6); what a table with larger entries has beyond is reserved.
const ENTRY: usize = 128;

/// A partition that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPartition {
    /// Its name.
    pub label: String,
    /// Its entry as it stands on the disk: type, GUID, range, attributes, name.
    pub entry: [u8; 128],
    /// First sector.
    pub first: u64,
    /// Last sector, inclusive.
    pub last: u64,
    /// Its number, from 1.
    pub number: u32,
}

impl KeptPartition {
    /// The bytes of the disk it covers.
    pub fn bytes(&self, sector: u32) -> Range<u64> {
        table::bytes_of(self.first, self.last, sector)
    }

    fn guid(&self) -> &[u8] {
        &self.entry[16..32]
    }

    /// Its type.
    pub fn kind(&self) -> Uuid {
        Uuid::from_slice_le(&self.entry[..16]).unwrap_or_default()
    }

    /// Its GUID (PARTUUID).
    pub fn part_uuid(&self) -> Uuid {
        Uuid::from_slice_le(self.guid()).unwrap_or_default()
    }
}

/// All that stay.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) partitions: Vec<KeptPartition>,
    /// Where the old entries must stay until the commit, bytes of the disk.
    pub(crate) array: Range<u64>,
}

/// The partitions with these labels on a disk with sectors of `sector` bytes, as an install that keeps them finds them:
/// also after a power cut, at whatever instant.
///
/// # Errors
/// [`WriteError::KeepRefused`] naming what is there, or the device's.
pub fn find_kept(
    disk: &(impl ReadAt + ?Sized), sector: u32, labels: &[String], device: &str,
) -> Result<Vec<KeptPartition>, WriteError> {
    let io = |source: io::Error| WriteError::DeviceIo {
        device: device.into(),
        action: "read the partition table of".into(),
        source,
    };
    let old = Old::read(disk, sector).map_err(io)?;
    let kept = Kept::choose(&old, labels, sector);
    kept.map(|kept| kept.partitions).map_err(|reason| WriteError::KeepRefused { device: device.into(), reason })
}

impl Kept {
    /// The partitions with these labels; or why not.
    pub(crate) fn choose(old: &Old, labels: &[String], sector: u32) -> Result<Self, String> {
        if labels.is_empty() {
            return Ok(Self::default());
        }
        let Some((_, table)) = &old.table else {
            return Err("it has no valid partition table (GPT) to find them in".into());
        };
        if old.boot_signature && !old.legacy.partitions.is_empty() {
            // Without a protective entry every kernel uses the table in the first sector, and the GPT is obsolete.
            return Err("its first sector lists other partitions than its GPT".into());
        }
        let there: Vec<KeptPartition> = table.used().filter_map(|entry| with_name(table, entry)).collect();
        let mut partitions: Vec<KeptPartition> = Vec::new();
        for label in labels.iter().collect::<BTreeSet<_>>() {
            let mut matching = there.iter().filter(|part| part.label == *label);
            match (matching.next(), matching.next()) {
                (Some(part), None) => partitions.push(part.clone()),
                (None, _) => return Err(format!("no partition is named \"{label}\"; {}", names(&there))),
                (Some(_), Some(_)) => {
                    return Err(format!("more than one partition is named \"{label}\"; {}", names(&there)));
                }
            }
        }
        partitions.sort_by_key(|part| part.first);
        for pair in partitions.windows(2) {
            if let [a, b] = pair
                && (a.last >= b.first || a.guid() == b.guid())
            {
                return Err(format!("\"{}\" and \"{}\" overlap or have the same GUID", a.label, b.label));
            }
        }
        if let Some(part) = partitions.iter().find(|part| part.entry[..16] == RECEIPT_TYPE) {
            return Err(format!("\"{}\" is Landfall's own partition and is always created anew", part.label));
        }
        if let Some(part) = partitions.iter().find(|part| part.bytes(sector).end > old.disk_size()) {
            return Err(format!("\"{}\" does not end on the disk", part.label));
        }
        let Some(retirement) = old.retirement() else {
            return Err("its table is in an unusual place, where it could not be found again after a power cut".into());
        };
        Ok(Self { partitions, array: retirement.array })
    }

    /// Their GUIDs.
    pub(crate) fn guids(&self) -> Vec<Uuid> {
        self.partitions.iter().map(KeptPartition::part_uuid).collect()
    }

    /// What the partitions cover, bytes of the disk.
    pub(crate) fn ranges(&self, sector: u32) -> Vec<Range<u64>> {
        self.partitions.iter().map(|part| part.bytes(sector)).collect()
    }

    /// Puts the entries into the image's table, which is already planned for a disk with this last usable sector; or says
    /// why they cannot stay.
    pub(super) fn merge(&self, table: &mut Table, sector: u32) -> Result<(), String> {
        if self.partitions.is_empty() {
            return Ok(());
        }
        let image: Vec<Entry> = table.used().collect();
        let body_starts = image.iter().filter(|e| e.kind != RECEIPT_TYPE).map(|e| e.first).min();
        let array_end = self.array.end.div_ceil(sector.into());
        if body_starts.is_some_and(|first| first < array_end) {
            return Err("the image has a partition at the place where the old table must stay until the commit".into());
        }
        let free_from =
            image.iter().map(|e| e.last + 1).max().unwrap_or(0).max(array_end).max(table.header.first_usable);
        let last_usable = table.header.last_usable;
        for part in &self.partitions {
            let place = format!("\"{}\" (sectors {} to {})", part.label, part.first, part.last);
            if part.first < free_from {
                return Err(format!("{place} starts before the end of the image's last partition, {free_from}"));
            }
            if part.last > last_usable {
                return Err(format!("{place} reaches into the new backup table, behind sector {last_usable}"));
            }
        }
        // After a restart, two partitions of one name could not be distinguished.
        if let Some(twin) = image.iter().find(|there| self.partitions.iter().any(|part| part.label == there.label)) {
            return Err(format!("the image has a partition named \"{}\" too", twin.label));
        }
        let size = table.header.entry_size as usize;
        for part in &self.partitions {
            let guids = table.entries.chunks_exact(size).filter(|e| e[..16] != [0; 16]);
            if guids.into_iter().any(|e| e[16..32] == *part.guid()) {
                return Err(format!("a partition of the image has the GUID of \"{}\"", part.label));
            }
        }
        // Behind the image's own entries, so that their numbers do not change; the receipt's slot is the highest.
        let used = image.iter().filter(|e| e.kind != RECEIPT_TYPE).map(|e| e.index as usize + 1).max().unwrap_or(0);
        let mut slots = table.entries.chunks_exact_mut(size).skip(used).filter(|e| e[..16] == [0; 16]);
        for part in &self.partitions {
            let Some(slot) = slots.next() else {
                return Err(format!("the image's table has no free entry for \"{}\"", part.label));
            };
            slot.fill(0);
            slot[..ENTRY].copy_from_slice(&part.entry);
        }
        Ok(())
    }
}

fn with_name(table: &Table, entry: Entry) -> Option<KeptPartition> {
    let bytes = table.entries.chunks_exact(table.header.entry_size as usize).nth(entry.index as usize)?;
    let bytes: [u8; ENTRY] = bytes.get(..ENTRY)?.try_into().ok()?;
    Some(KeptPartition {
        label: entry.label,
        entry: bytes,
        first: entry.first,
        last: entry.last,
        number: entry.index + 1,
    })
}

fn names(there: &[KeptPartition]) -> String {
    /// Readers ignore entries beyond this.
    const MOST: usize = 40;
    let names: Vec<String> = there.iter().take(MOST).map(|part| format!("\"{}\"", part.label)).collect();
    match names.as_slice() {
        [] => "its table has no named partition".into(),
        _ => format!("there are {}{}", names.join(", "), if there.len() > MOST { ", …" } else { "" }),
    }
}
