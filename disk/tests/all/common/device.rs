//! A disk in memory that fails, lies, loses, tears and shrinks as it is asked to.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, thread};

use landfall_disk::{BlockDevice, ReadAt};

use super::MIB;
use super::script::{Operation, Script, Verdict};

pub(crate) const DISK: u64 = 8 * MIB;
pub(crate) const SECTOR: u64 = 512;
/// A sector of the medium: written as a whole or not at all.
pub(crate) const PHYSICAL: u64 = 4096;

/// How a device reacts to a request to make zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeroing {
    Makes,
    /// Says that it did, and did nothing.
    Lies,
    Refuses,
}

/// A disk in memory with scripted faults.
pub(crate) struct Device {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) size: AtomicU64,
    pub(crate) sector: u32,
    pub(crate) zeroing: Zeroing,
    /// Writing these bytes, or reading them, fails with EIO.
    pub(crate) bad_writes: Range<u64>,
    pub(crate) bad_reads: Range<u64>,
    /// The physical sector of 4096 bytes that a power cut tore: it fails until it is written as a whole.
    pub(crate) torn: Mutex<Option<u64>>,
    /// Writes of this byte store another one.
    pub(crate) flips: Option<u64>,
    /// Writes that touch these bytes are not stored.
    pub(crate) loses: Range<u64>,
    /// From this flush on, counted from 1, flushing fails.
    pub(crate) bad_flush: usize,
    /// So many operations are done, then it is half as large.
    pub(crate) shrinks: usize,
    pub(crate) slow: Duration,
    /// One fault at a chosen operation.
    pub(crate) script: Script,
    pub(crate) ops: AtomicUsize,
    pub(crate) flushes: AtomicUsize,
}

impl Device {
    pub(crate) fn new(content: Vec<u8>) -> Self {
        Self {
            size: AtomicU64::new(content.len() as u64),
            bytes: Mutex::new(content),
            sector: SECTOR as u32,
            zeroing: Zeroing::Makes,
            bad_writes: 0..0,
            bad_reads: 0..0,
            torn: Mutex::default(),
            flips: None,
            loses: 0..0,
            bad_flush: usize::MAX,
            shrinks: usize::MAX,
            slow: Duration::ZERO,
            script: Script::default(),
            ops: AtomicUsize::new(0),
            flushes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    fn operate(&self, range: &Range<u64>) -> io::Result<()> {
        if !self.slow.is_zero() {
            thread::sleep(self.slow);
        }
        if self.ops.fetch_add(1, Ordering::AcqRel) >= self.shrinks {
            self.size.store(DISK / 2, Ordering::Release);
        }
        if range.end > self.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn begin(&self, operation: Operation, range: &Range<u64>) -> Verdict {
        self.script.begin(operation, range, self.flushes.load(Ordering::Acquire))
    }

    fn store(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = offset..offset + data.len() as u64;
        self.torn.lock().unwrap().take_if(|at| range.start <= *at && *at + PHYSICAL <= range.end);
        if self.torn.lock().unwrap().is_some_and(|at| overlap(&range, &(at..at + PHYSICAL))) {
            return Err(eio());
        }
        let mut bytes = self.bytes.lock().unwrap();
        for (sector, part) in (offset..).step_by(SECTOR as usize).zip(data.chunks(SECTOR as usize)) {
            let here = sector..sector + SECTOR;
            // What comes before the bad sector is written, as a disk does it.
            if overlap(&here, &self.bad_writes) {
                return Err(eio());
            }
            if overlap(&here, &self.loses) {
                continue;
            }
            bytes[sector as usize..here.end as usize].copy_from_slice(part);
            if let Some(at) = self.flips.filter(|at| here.contains(at)) {
                bytes[at as usize] ^= 0x20;
            }
        }
        Ok(())
    }
}

/// So many bytes of whole sectors are half of `length`.
fn half(length: usize) -> usize {
    length / 2 / SECTOR as usize * SECTOR as usize
}

pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

pub(crate) fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl ReadAt for Device {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + buffer.len() as u64;
        if range.end > self.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let torn = self.torn.lock().unwrap().is_some_and(|at| overlap(&range, &(at..at + PHYSICAL)));
        if torn || overlap(&range, &self.bad_reads) {
            return Err(eio());
        }
        let (length, short) = match self.begin(Operation::Read, &range) {
            Verdict::Go => (buffer.len(), false),
            Verdict::Half => (half(buffer.len()), true),
            Verdict::Fail(error) => return Err(error),
        };
        self.bytes.lock().unwrap().read_at(offset, &mut buffer[..length])?;
        if short { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl BlockDevice for Device {
    fn logical_sector(&self) -> u32 {
        self.sector
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = offset..offset + data.len() as u64;
        self.operate(&range)?;
        match self.begin(Operation::Write, &range) {
            Verdict::Go => self.store(offset, data),
            Verdict::Fail(error) => Err(error),
            // As the standard library reports it after the kernel took no more.
            Verdict::Half => self.store(offset, &data[..half(data.len())]).and(Err(io::ErrorKind::WriteZero.into())),
        }
    }
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.operate(&(offset..offset + length))?;
        let length = match self.begin(Operation::Zero, &(offset..offset + length)) {
            Verdict::Go => length as usize,
            Verdict::Half => half(length as usize),
            Verdict::Fail(error) => return Err(error),
        };
        match self.zeroing {
            Zeroing::Makes => self.store(offset, &vec![0; length]).map(|()| true),
            Zeroing::Lies => Ok(true),
            Zeroing::Refuses => Err(io::ErrorKind::Unsupported.into()),
        }
    }
    fn flush(&self) -> io::Result<()> {
        // Counted when it is over: what other threads do meanwhile comes before it.
        let verdict = self.begin(Operation::Flush, &(0..0));
        if self.flushes.fetch_add(1, Ordering::AcqRel) + 1 >= self.bad_flush {
            return Err(eio());
        }
        match verdict {
            Verdict::Fail(error) => Err(error),
            Verdict::Go | Verdict::Half => Ok(()),
        }
    }
    fn reread_table(&self) -> io::Result<()> {
        match self.begin(Operation::Reread, &(0..0)) {
            Verdict::Fail(error) => Err(error),
            Verdict::Go | Verdict::Half => Ok(()),
        }
    }
}
