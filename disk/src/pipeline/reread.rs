//! One read of what was written, and the sector that does not read.

use super::record::Step;
use crate::{BlockDevice, WriteError, buffer::Buffer};

/// Reads one step of a record; how many bytes it has.
pub(super) fn check(device: &dyn BlockDevice, name: &str, step: &Step, buffer: &mut Buffer) -> Result<u64, WriteError> {
    let (offset, length) = (step.offset, step.length as u64);
    let there = &mut buffer.space()[..step.length];
    if device.read_at(offset, there).is_err() {
        // The parts that come are left in the buffer: if all of them do, the content decides as usual.
        unreadable(device, name, offset, there).map_or(Ok(()), Err)?;
    }
    if step.is(there) { Ok(length) } else { Err(WriteError::ReadBack { device: name.into(), offset, length }) }
}

/// The sector that fails, as is done of a write: a range that failed is read again in halves, and the half that fails is
/// halved again. `None` if every byte came this time: the kernel merges the requests of neighbouring ranges, so that one
/// bad sector fails both, although only one holds it.
fn unreadable(device: &dyn BlockDevice, name: &str, offset: u64, buffer: &mut [u8]) -> Option<WriteError> {
    let sector = device.logical_sector() as usize;
    if buffer.len() <= sector {
        let source = device.read_at(offset, buffer).err()?;
        let action = format!("read back sector {} (byte {offset}) of", offset / sector as u64);
        return Some(WriteError::DeviceIo { device: name.into(), action, source });
    }
    let middle = buffer.len() / sector / 2 * sector;
    let (first, second) = buffer.split_at_mut(middle);
    [(offset, first), (offset + middle as u64, second)]
        .into_iter()
        .find_map(|(start, half)| device.read_at(start, half).err().and_then(|_| unreadable(device, name, start, half)))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::record::{Record, STEP};
    use super::*;
    use crate::ReadAt;

    /// Zeroes; a read fails where the function says so, given its place and its length.
    struct Zeroes<F>(F);

    impl<F: Fn(u64, u64) -> bool + Sync + Send> ReadAt for Zeroes<F> {
        fn size(&self) -> u64 {
            4 << 20
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.fill(0);
            if (self.0)(offset, buffer.len() as u64) { Err(io::Error::other("a bad sector")) } else { Ok(()) }
        }
    }

    impl<F: Fn(u64, u64) -> bool + Sync + Send> BlockDevice for Zeroes<F> {
        fn logical_sector(&self) -> u32 {
            512
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn zero_range(&self, _: u64, _: u64) -> io::Result<bool> {
            Ok(true)
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn step(record: &Record) -> Step {
        record.steps().next().unwrap()
    }

    #[test]
    fn a_sector_that_fails_to_read_back_is_named_anywhere() {
        for at in [0, 511, 512, 700 * 512 + 3, (1 << 20) - 1, (1 << 20) + 70_000] {
            let record = Record::Zeroes(at / STEP * STEP..at / STEP * STEP + STEP);
            let bad = Zeroes(|offset, length| (offset..offset + length).contains(&at));
            let error = check(&bad, "sda", &step(&record), &mut Buffer::new(STEP as usize)).unwrap_err();
            let said = format!("cannot read back sector {} (byte {}) of sda", at / 512, at / 512 * 512);
            assert_eq!(error.to_string(), said);
        }
    }

    #[test]
    fn a_neighbours_bad_sector_fails_no_whole_range() {
        let record = Record::Zeroes(0..STEP);
        // Only the first read fails: the kernel merged it with the read of the bad sector.
        let reads = AtomicUsize::new(0);
        let merged = Zeroes(|_, _| reads.fetch_add(1, Ordering::Relaxed) == 0);
        let read = check(&merged, "sda", &step(&record), &mut Buffer::new(STEP as usize));
        assert_eq!(read.unwrap(), STEP);
    }
}
