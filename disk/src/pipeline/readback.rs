//! Read-back: everything that was written is read from the device once more, before the commit. The caches of the host are
//! passed by where the device is opened past them; what the device's own cache holds was flushed before.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
    thread,
};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use xxhash_rust::xxh3::xxh3_128;

use super::{Check, TICK, meter::Meter, zeroes::is_zero};
use crate::{BlockDevice, WriteError, buffer::Buffer};

/// Reads in flight at once.
const THREADS: usize = 4;
/// Bytes of one read.
const STEP: u64 = 1 << 20;

/// Something that was written, and how to recognise it. The sum (XXH3, 128 bits) guards against a device that fails,
/// not against one that is hostile: such a device could answer one thing now and another when it is booted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    Data { offset: u64, length: u32, sum: u128 },
    Zeroes(Range<u64>),
}

impl Record {
    /// Of bytes that were written; no more than [`STEP`].
    pub(super) fn of(offset: u64, bytes: &[u8]) -> Self {
        Self::Data { offset, length: bytes.len() as u32, sum: xxh3_128(bytes) }
    }

    /// Bytes it covers.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Data { length, .. } => u64::from(*length),
            Self::Zeroes(range) => range.end - range.start,
        }
    }

    fn start(&self) -> u64 {
        match self {
            Self::Data { offset, .. } => *offset,
            Self::Zeroes(range) => range.start,
        }
    }
}

/// Puts records in order and joins runs of zeroes that touch: an empty disk has one, not one a piece.
fn merge(records: &mut Vec<Record>) {
    records.sort_unstable_by_key(Record::start);
    records.dedup_by(|next, before| match (before, next) {
        (Record::Zeroes(before), Record::Zeroes(next)) if before.end == next.start => {
            before.end = next.end;
            true
        }
        _ => false,
    });
}

/// What is read at once, one after another: long runs of zeroes in parts, which are not kept in memory.
struct Steps<'a> {
    records: &'a [Record],
    at: usize,
    /// Bytes of the present record that were given out.
    done: u64,
}

impl Iterator for Steps<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let record = self.records.get(self.at)?;
        match record {
            Record::Zeroes(range) if range.start + self.done + STEP < range.end => {
                let start = range.start + self.done;
                self.done += STEP;
                Some(Record::Zeroes(start..start + STEP))
            }
            Record::Zeroes(range) => {
                let start = range.start + self.done;
                (self.at, self.done) = (self.at + 1, 0);
                Some(Record::Zeroes(start..range.end))
            }
            data @ Record::Data { .. } => {
                self.at += 1;
                Some(data.clone())
            }
        }
    }
}

/// Reads all of it; how many bytes that were.
pub(super) fn read_back(
    device: &dyn BlockDevice,
    name: &str,
    mut records: Vec<Record>,
    meter: &Meter<'_>,
    may_act: Check<'_>,
) -> Result<u64, WriteError> {
    merge(&mut records);
    let (steps, total) = (Mutex::new(Steps { records: &records, at: 0, done: 0 }), Mutex::new(Ok(0_u64)));
    let next = || steps.lock().unwrap_or_else(PoisonError::into_inner).next();
    let failed = |error| {
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        if total.is_ok() {
            *total = Err(error);
        }
        // All steps are taken.
        steps.lock().unwrap_or_else(PoisonError::into_inner).at = records.len();
    };
    thread::scope(|scope| {
        let (busy, all_done) = bounded::<()>(0);
        let work = |_busy: Sender<()>| {
            let mut buffer = Buffer::new(STEP as usize);
            while let Some(record) = next() {
                match check(device, name, &record, &mut buffer) {
                    Ok(bytes) => {
                        meter.read_back(bytes);
                        if let Ok(total) = &mut *total.lock().unwrap_or_else(PoisonError::into_inner) {
                            *total += bytes;
                        }
                    }
                    Err(error) => failed(error),
                }
            }
        };
        for _ in 0..THREADS {
            let busy = busy.clone();
            scope.spawn(move || work(busy));
        }
        drop(busy);
        // The calling thread is the one that may ask, so it waits rather than reads.
        while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(TICK) {
            if let Err(error) = may_act() {
                failed(error);
                break;
            }
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn check(device: &dyn BlockDevice, name: &str, record: &Record, buffer: &mut Buffer) -> Result<u64, WriteError> {
    let (offset, length) = (record.start(), record.length());
    let there = &mut buffer.space()[..length as usize];
    if device.read_at(offset, there).is_err() {
        // The parts that come are left in the buffer: if all of them do, the content decides as usual.
        unreadable(device, name, offset, there).map_or(Ok(()), Err)?;
    }
    let same = match record {
        Record::Data { sum, .. } => xxh3_128(there) == *sum,
        Record::Zeroes(_) => is_zero(there),
    };
    if same { Ok(length) } else { Err(WriteError::ReadBack { device: name.into(), offset, length }) }
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
    use std::{
        io,
        sync::atomic::{AtomicUsize, Ordering},
    };

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

    #[test]
    fn touching_runs_of_zeroes_are_one_record_read_in_steps() {
        let data = Record::of(10 * STEP, &[1; 512]);
        let runs = (0..1000).rev().map(|i| Record::Zeroes(i * 4096..(i + 1) * 4096));
        let far = Record::Zeroes(11 * STEP..13 * STEP + 512);
        let mut records: Vec<_> = [data.clone(), far].into_iter().chain(runs).collect();
        merge(&mut records);
        assert_eq!(records.len(), 3);
        let steps: Vec<_> = Steps { records: &records, at: 0, done: 0 }.collect();
        assert!(steps.iter().all(|step| step.length() <= STEP) && steps.contains(&data));
        let total = |all: &[Record]| all.iter().map(Record::length).sum::<u64>();
        assert_eq!(total(&steps), total(&records));
        assert!(steps.windows(2).all(|pair| pair[0].start() + pair[0].length() <= pair[1].start()));
    }

    #[test]
    fn a_sector_that_fails_to_read_back_is_named_anywhere() {
        for at in [0, 511, 512, 700 * 512 + 3, (1 << 20) - 1, (1 << 20) + 70_000] {
            let record = Record::Zeroes(at / STEP * STEP..at / STEP * STEP + STEP);
            let bad = Zeroes(|offset, length| (offset..offset + length).contains(&at));
            let error = check(&bad, "sda", &record, &mut Buffer::new(STEP as usize)).unwrap_err();
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
        let read = check(&merged, "sda", &record, &mut Buffer::new(STEP as usize));
        assert_eq!(read.unwrap(), STEP);
    }
}
