//! Reads what QEMU's `blklogwrites` recorded, and replays the disk states a power cut could have left.
//!
//! The format is that of Linux' dm-log-writes (`Documentation/admin-guide/device-mapper/log-writes.rst`): a superblock
//! in the first sector, then entries of one sector each, followed by their data. All numbers are little-endian.
//!
//! Between two flushes a device with a volatile cache may keep any subset of the writes it completed. So a state is
//! *every* write up to a flush, and *any* choice of those between it and the next.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::LabError;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// One recorded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where on the disk, bytes.
    pub offset: u64,
    /// How much, bytes; 0 for a flush alone.
    pub length: u64,
    /// Everything completed before is durable from here on.
    pub flush: bool,
    /// This write itself is durable when it completes.
    pub fua: bool,
    /// The bytes were given back; they read as zeroes here.
    pub discard: bool,
    /// Where its data is in the recording.
    data_at: u64,
}

impl Entry {
    /// Where it ends in the recording, bytes: a recording that long has it.
    pub const fn end(&self) -> u64 {
        if self.discard { self.data_at } else { self.data_at + self.length }
    }
}

/// A recording.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
}

impl Recording {
    /// Reads a recording's entries (not their data).
    ///
    /// # Errors
    /// [`LabError::Format`] if it is not one, [`LabError::File`] if it cannot be read.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let file = File::open(path).map_err(LabError::file("cannot open recording", path))?;
        let bad = |message: String| LabError::Format { path: path.to_owned(), message };
        let read = |at: u64| -> Result<[u8; 32], LabError> {
            let mut bytes = [0; 32];
            file.read_exact_at(&mut bytes, at).map_err(LabError::file("cannot read recording", path))?;
            Ok(bytes)
        };
        let head = read(0)?;
        if number(&head, 0) != MAGIC || number(&head, 8) != VERSION {
            return Err(bad("not a dm-log-writes recording (was QEMU ended in an orderly way?)".into()));
        }
        let sector = u64::from(u32::from_le_bytes([head[24], head[25], head[26], head[27]]));
        if !sector.is_power_of_two() || sector < 512 {
            return Err(bad(format!("sector size {sector}")));
        }
        let mut entries = Vec::new();
        let mut at = sector;
        for _ in 0..number(&head, 16) {
            let raw = read(at)?;
            let flags = number(&raw, 16);
            let overflow = || bad(format!("entry {} reaches beyond any disk", entries.len()));
            let length = number(&raw, 8).checked_mul(sector).ok_or_else(overflow)?;
            let entry = Entry {
                offset: number(&raw, 0).checked_mul(sector).ok_or_else(overflow)?,
                length,
                flush: flags & FLUSH != 0,
                fua: flags & FUA != 0,
                discard: flags & DISCARD != 0,
                data_at: at + sector,
            };
            at = at.checked_add(sector).ok_or_else(overflow)?;
            if !entry.discard {
                at = at.checked_add(length).ok_or_else(overflow)?;
            }
            entries.push(entry);
        }
        Ok(Self { path: path.to_owned(), file, entries })
    }

    /// What was recorded, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The data of an entry; zeroes for what was discarded.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn data(&self, entry: &Entry) -> Result<Vec<u8>, LabError> {
        let mut bytes = vec![0; usize::try_from(entry.length).unwrap_or(usize::MAX)];
        if !entry.discard {
            self.file
                .read_exact_at(&mut bytes, entry.data_at)
                .map_err(LabError::file("cannot read recording", &self.path))?;
        }
        Ok(bytes)
    }

    /// Applies one entry to a disk.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn apply(&self, entry: &Entry, disk: &File) -> Result<(), LabError> {
        if entry.length == 0 {
            return Ok(());
        }
        disk.write_all_at(&self.data(entry)?, entry.offset).map_err(LabError::file("cannot replay", &self.path))
    }

    /// The recording cut at its flushes: each range of entries is what one volatile cache could hold at once, and ends
    /// with the entry that flushes it (the last one may lack it).
    pub fn epochs(&self) -> Vec<std::ops::Range<usize>> {
        epochs(&self.entries)
    }
}

fn epochs(entries: &[Entry]) -> Vec<std::ops::Range<usize>> {
    let mut epochs = Vec::new();
    let mut from = 0;
    for (i, _) in entries.iter().enumerate().filter(|(_, entry)| entry.flush) {
        epochs.push(from..i + 1);
        from = i + 1;
    }
    if from < entries.len() {
        epochs.push(from..entries.len());
    }
    epochs
}

fn number(bytes: &[u8; 32], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording as QEMU writes it: write "A" at sector 2, flush, discard sectors 8 and 9, FUA write "B" at sector 0.
    fn sample() -> tempfile::NamedTempFile {
        let mut bytes = Vec::new();
        let mut sector = |words: &[u64], tail: &[u8]| {
            let mut one: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            one.extend(tail);
            one.resize(512, 0);
            bytes.extend(one);
        };
        sector(&[MAGIC, VERSION, 4, 512], &[]);
        sector(&[2, 1, 0, 0], &[]);
        sector(&[], &[b'A'; 512]);
        sector(&[0, 0, FLUSH, 0], &[]);
        sector(&[8, 2, DISCARD, 0], &[]);
        sector(&[0, 1, FUA, 0], &[]);
        sector(&[], &[b'B'; 512]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn entries_are_found_and_a_discard_has_no_data() {
        let file = sample();
        let recording = Recording::open(file.path()).unwrap();
        let what: Vec<_> =
            recording.entries().iter().map(|e| (e.offset, e.length, e.flush, e.discard, e.fua)).collect();
        assert_eq!(
            what,
            [
                (1024, 512, false, false, false),
                (0, 0, true, false, false),
                (4096, 1024, false, true, false),
                (0, 512, false, false, true)
            ]
        );
        assert_eq!(recording.data(&recording.entries()[3]).unwrap(), vec![b'B'; 512]);
        assert_eq!(recording.epochs(), [0..2, 2..4]);
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; 4096]).unwrap();
        assert!(Recording::open(file.path()).unwrap_err().to_string().contains("not a dm-log-writes recording"));
    }
}
