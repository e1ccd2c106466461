//! Looking at a disk some of whose sectors cannot be read, where a person accepted that these are lost: they read as
//! zeroes and are remembered.
//!
//! A power cut in mid-write can leave sectors that fail every read until they are written again, the first and the last
//! of the disk above all, because tables are written there. A disk that emulates small sectors fails a whole physical one
//! then, and takes a write of a part of it as little as a read.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::{BlockDevice, ReadAt, WriteError, exact};

/// More failing sectors than a torn write or two leaves are a disk that fails; each may take half a minute to fail.
const MOST: usize = 64;
/// The largest physical sector of disks that emulate smaller ones, bytes.
const PHYSICAL: u64 = 4096;

/// A device that forgives reads that fail, or, if no person said so, does not.
pub(crate) struct Forgiving<'a> {
    device: &'a dyn BlockDevice,
    forgives: bool,
    /// Sectors that could not be read, as they were found; bytes of the device.
    lost: Mutex<Vec<Range<u64>>>,
}

impl<'a> Forgiving<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, forgives: bool) -> Self {
        Self { device, forgives, lost: Mutex::default() }
    }

    /// What could not be read so far, joined and in order.
    pub(crate) fn lost(&self) -> Vec<Range<u64>> {
        let mut all = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in all {
            match joined.last_mut() {
                Some(before) if range.start <= before.end => before.end = before.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined
    }

    /// Writes zeroes over physical sectors that were lost whole and are not `spared`, so that parts of them can be
    /// written again. Not flushed.
    ///
    /// # Errors
    /// [`WriteError::DeviceIo`], naming the sector.
    pub(crate) fn mend(&self, name: &str, spared: &[Range<u64>]) -> Result<(), WriteError> {
        let failed = |source| WriteError::DeviceIo {
            device: name.into(),
            action: "write over the unreadable sectors of".into(),
            source,
        };
        // So far only a few sectors of each were looked at.
        for lost in self.lost() {
            let start = lost.start / PHYSICAL * PHYSICAL;
            let end = lost.end.next_multiple_of(PHYSICAL).min(self.size());
            let mut around = vec![0; usize::try_from(end - start).unwrap_or_default()];
            self.read_at(start, &mut around).map_err(failed)?;
        }
        for lost in self.lost() {
            let blocks = lost.start.next_multiple_of(PHYSICAL)..lost.end / PHYSICAL * PHYSICAL;
            for start in blocks.step_by(PHYSICAL as usize) {
                let block = start..start + PHYSICAL;
                if spared.iter().any(|kept| kept.start < block.end && kept.end > block.start) {
                    continue;
                }
                exact::zero(self.device, block).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Reads what can be read, in halves down to the sector; the rest is zero.
    fn read_parts(&self, offset: u64, buffer: &mut [u8], error: io::Error) -> io::Result<()> {
        let sector = self.device.logical_sector() as usize;
        if buffer.len() > sector && (offset as usize).is_multiple_of(sector) {
            let middle = (buffer.len() / sector).div_ceil(2) * sector;
            let (first, second) = buffer.split_at_mut(middle);
            self.read_at(offset, first)?;
            return self.read_at(offset + middle as u64, second);
        }
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let here = offset / sector as u64 * sector as u64;
        let there = here..(offset + buffer.len() as u64).next_multiple_of(sector as u64);
        if !lost.contains(&there) {
            if lost.len() == MOST {
                return Err(error);
            }
            lost.push(there);
        }
        buffer.fill(0);
        Ok(())
    }
}

/// What the kernel says of a sector that the disk cannot read (block/blk-core.c, blk_errors): not of a disk that is gone.
fn of_medium(error: &io::Error) -> bool {
    use nix::libc::{EBADMSG, EILSEQ, EIO, ENODATA, EREMOTEIO};
    error.raw_os_error().is_some_and(|code| [EIO, ENODATA, EILSEQ, EREMOTEIO, EBADMSG].contains(&code))
}

impl ReadAt for Forgiving<'_> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.device.read_at(offset, buffer) {
            Err(error) if self.forgives && of_medium(&error) => self.read_parts(offset, buffer, error),
            other => other,
        }
    }
}

impl BlockDevice for Forgiving<'_> {
    fn logical_sector(&self) -> u32 {
        self.device.logical_sector()
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, data)
    }
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.device.zero_range(offset, length)
    }
    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
    fn reread_table(&self) -> io::Result<()> {
        self.device.reread_table()
    }
}
