//! Makes a partition longer, into the free space behind it, while it may be in use.
//!
//! At whatever instant the power goes, the disk has a valid primary table: the old one or the new one. A table is two parts, a
//! header and the array that its checksum covers, so writing one over the other would leave none in between. Therefore the
//! backup is written first, with its array; then the primary header alone, which leads to the *backup's* array; then the primary
//! array, to which nothing leads at that time; then the primary header alone, which leads to its own array again. Each flushed.

use std::{io, ops::Range, path::Path};

use crate::gpt::{Table, TableError, plausible_table};
use crate::{BlockDevice, RealDevice, exact, sys};

/// Where partitions end, bytes: what every partitioning program of today aligns to.
const ALIGNMENT: u64 = 1 << 20;
/// Where the entries of a table of the old kind begin in its sector, and how long each is.
const LEGACY: (usize, usize) = (446, 16);

/// A partition, before and after. Bytes of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grown {
    /// What it covered.
    pub before: Range<u64>,
    /// What it covers.
    pub after: Range<u64>,
    /// There is more free space behind it than a table of the old kind can state.
    pub capped: bool,
}

/// Why a partition stays as it is.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The disk's.
    #[error("cannot {action} the disk")]
    Io {
        action: &'static str,
        #[source]
        source: io::Error,
    },
    /// There is no table that could be changed.
    #[error("the disk has no usable partition table: {0}")]
    Table(String),
    /// It is not in the table, or is a logical partition of a table of the old kind.
    #[error("the partition table has no entry of its own for the partition that begins at byte {0}")]
    NoEntry(u64),
    /// The free space behind it is too small.
    #[error("the partition can have {possible} bytes, and {wanted} are wanted")]
    NoRoom {
        /// As stated, bytes.
        wanted: u64,
        /// To the next partition or the end of the disk, bytes.
        possible: u64,
    },
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> GrowError {
    move |source| GrowError::Io { action, source }
}

/// Makes the partition that begins at byte `start` of the disk at `path` as long as `size` states, else as the free space behind
/// it allows, and tells the kernel. `number` is the kernel's number of it. One that is as long already, or longer, stays as it is.
///
/// **Blocking.** The partition may be mounted.
///
/// # Errors
/// [`GrowError`]; the table is the old one or the new one then.
pub fn grow_partition(path: &Path, number: u32, start: u64, size: Option<u64>) -> Result<Grown, GrowError> {
    let device = RealDevice::open_shared(path).map_err(failed("open"))?;
    let grown = grow_on(&device, start, size)?;
    device.resize_partition(number, &grown.after).map_err(failed("tell the kernel of a longer partition on"))?;
    Ok(grown)
}

/// The same on any device, without a word to the kernel.
///
/// # Errors
/// [`GrowError`]
pub fn grow_on(device: &dyn BlockDevice, start: u64, size: Option<u64>) -> Result<Grown, GrowError> {
    let sector = device.logical_sector();
    match Table::read(device, 1, sector) {
        Ok(table) => grow_gpt(device, table, start, size),
        Err(TableError::Absent) => grow_legacy(device, start, size),
        Err(TableError::Io(error)) => Err(failed("read the partition table of")(error)),
        Err(error) => Err(GrowError::Table(error.to_string())),
    }
}

/// The last sector that it gets: of those from `first` to `last`, with room up to `most`.
fn end(first: u64, last: u64, most: u64, size: Option<u64>, sector: u32) -> Result<u64, GrowError> {
    let bytes = u64::from(sector);
    let most = most.max(last);
    let Some(size) = size else {
        let aligned = (most + 1) * bytes / ALIGNMENT * ALIGNMENT / bytes;
        return Ok(aligned.saturating_sub(1).max(last));
    };
    let wanted = first.saturating_add(size.div_ceil(bytes)).saturating_sub(1);
    if wanted > most {
        return Err(GrowError::NoRoom { wanted: size, possible: (most - first + 1) * bytes });
    }
    Ok(wanted.max(last))
}

fn grown(first: u64, before: u64, after: u64, sector: u32) -> Grown {
    let range = |last: u64| first * u64::from(sector)..(last + 1) * u64::from(sector);
    Grown { before: range(before), after: range(after), capped: false }
}

fn grow_gpt(device: &dyn BlockDevice, mut table: Table, start: u64, size: Option<u64>) -> Result<Grown, GrowError> {
    let sector = device.logical_sector();
    let sectors = device.size() / u64::from(sector);
    let length = table.entries_sectors(sector);
    // An attempt that was interrupted left its header leading to the backup's array, which is behind what partitions may use.
    let interrupted = table.header.entries_lba > table.header.last_usable;
    if interrupted {
        table.header.entries_lba = 2;
    }
    let too_small = || GrowError::Table("there is no room for its entries".into());
    if table.header.entries_lba != 2 || table.header.first_usable < 2 + length {
        return Err(GrowError::Table("its entries are not in the sectors behind its header".into()));
    }
    if interrupted {
        home(device, &table)?;
    }
    let last_usable = sectors.checked_sub(length + 2).ok_or_else(too_small)?;
    let entry = table.used().find(|entry| entry.first.checked_mul(sector.into()) == Some(start));
    let entry = entry.ok_or(GrowError::NoEntry(start))?;
    let next = table.used().map(|other| other.first).filter(|first| *first > entry.first).min();
    let most = next.map_or(last_usable, |next| next - 1).min(last_usable);
    let last = end(entry.first, entry.last, most, size, sector)?;
    if last > last_usable || table.used().any(|other| other.last > last_usable) {
        return Err(GrowError::Table("a partition lies beyond the disk's end".into()));
    }

    let mut new = table.clone();
    let at = entry.index as usize * new.header.entry_size as usize + 40;
    if let Some(field) = new.entries.get_mut(at..at + 8) {
        field.copy_from_slice(&last.to_le_bytes());
    }
    (new.header.alternate_lba, new.header.last_usable) = (sectors - 1, last_usable);
    let backup = new.backup(sectors - 1, sector);
    let stands = Table::read(device, sectors - 1, sector).is_ok_and(|there| there == backup);
    if !stands || table != new {
        write(device, backup.header.entries_lba, &backup.entries_padded(sector))?;
        write(device, backup.header.my_lba, &backup.header_sector(sector))?;
        flush(device)?;
        let mut between = new.clone();
        between.header.entries_lba = backup.header.entries_lba;
        write(device, 1, &between.header_sector(sector))?;
        flush(device)?;
        home(device, &new)?;
    }
    Ok(grown(entry.first, entry.last, last, sector))
}

/// Writes the array to which the header is to lead, then that header.
fn home(device: &dyn BlockDevice, table: &Table) -> Result<(), GrowError> {
    let sector = device.logical_sector();
    write(device, table.header.entries_lba, &table.entries_padded(sector))?;
    flush(device)?;
    write(device, 1, &table.header_sector(sector))?;
    flush(device)
}

/// A table of the old kind is one sector, which is there or is not.
fn grow_legacy(device: &dyn BlockDevice, start: u64, size: Option<u64>) -> Result<Grown, GrowError> {
    let sector = device.logical_sector();
    let mut lba0 = vec![0; sector as usize];
    device.read_at(0, &mut lba0).map_err(failed("read the partition table of"))?;
    // A boot sector without a table has that signature too.
    let parts = plausible_table(&lba0).filter(|parts| parts.iter().all(|part| part.kind != 0xee));
    let none = || GrowError::Table("neither a GPT nor a table of the old kind is there".into());
    let parts = parts.ok_or_else(none)?;
    let found = parts.iter().find(|part| u64::from(part.start).checked_mul(sector.into()) == Some(start));
    let found = found.filter(|part| part.count > 0).ok_or(GrowError::NoEntry(start))?;
    let (first, count) = (u64::from(found.start), u64::from(found.count));
    let next = parts.iter().map(|part| u64::from(part.start)).filter(|other| *other > first).min();
    // Its fields have 32 bits.
    let sectors = device.size() / u64::from(sector);
    let usable = sectors.min(u64::from(u32::MAX));
    let last = end(first, first + count - 1, next.unwrap_or(usable).min(usable) - 1, size, sector)?;
    let at = LEGACY.0 + LEGACY.1 * found.slot as usize + 12;
    let count = u32::try_from(last - first + 1).map_err(|error| GrowError::Table(error.to_string()))?;
    if let Some(field) = lba0.get_mut(at..at + 4).filter(|field| **field != count.to_le_bytes()) {
        field.copy_from_slice(&count.to_le_bytes());
        write(device, 0, &lba0)?;
        flush(device)?;
    }
    let capped = sectors > usable && next.is_none() && size.is_none();
    Ok(Grown { capped, ..grown(first, first + u64::from(found.count) - 1, last, sector) })
}

fn write(device: &dyn BlockDevice, lba: u64, bytes: &[u8]) -> Result<(), GrowError> {
    let offset = lba * u64::from(device.logical_sector());
    exact::write(device, offset, bytes).map_err(failed("write the partition table to"))
}

fn flush(device: &dyn BlockDevice) -> Result<(), GrowError> {
    device.flush().map_err(failed("flush the partition table to"))
}

impl RealDevice {
    /// Tells the kernel how long a partition is now; one that is in use, too.
    fn resize_partition(&self, number: u32, bytes: &Range<u64>) -> io::Result<()> {
        sys::resize_partition(self.file(), number, bytes)
    }
}
