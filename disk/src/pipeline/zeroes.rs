//! Zero runs: the device makes them if it can, otherwise they are written; runs that the device made are checked.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::device_io;
use crate::{BlockDevice, WriteError, buffer::Buffer, exact};

/// The first runs are checked at any length: a device that lies does so from the start.
const FIRST: u32 = 16;
/// Every run from this length on is looked at.
const LONG: u64 = 1 << 20;
/// What is looked at of a run: its first and its last bytes, so many each, and as many in each place between.
const LOOK: u64 = 4096;
/// Into so many parts the places between cut a run.
const LOOKS: u64 = 16;

/// Whether all bytes are zero; stops at the first that is not.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // The first is, and each equals the one before it: memcmp, without a page of zeroes to compare with.
    bytes.split_first().is_none_or(|(first, rest)| *first == 0 && *rest == bytes[..rest.len()])
}

/// Makes zeroes on one device; shared by the threads that write.
pub(crate) struct Zeroes<'a> {
    device: &'a dyn BlockDevice,
    name: &'a str,
    runs: AtomicU32,
    /// It said that it had made zeroes, and had not.
    lies: AtomicBool,
}

impl<'a> Zeroes<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, name: &'a str) -> Self {
        Self { device, name, runs: AtomicU32::new(0), lies: AtomicBool::new(false) }
    }

    /// Makes a run of whole sectors read as zeroes; how many bytes had to be written for it.
    pub(crate) fn make(&self, range: Range<u64>) -> Result<u64, WriteError> {
        let length = range.end - range.start;
        let failed = || device_io(self.name, format!("zero {length} bytes at {} of", range.start));
        if length == 0 {
            return Ok(0);
        }
        if !self.lies.load(Ordering::Acquire) {
            match self.device.zero_range(range.start, length) {
                Ok(false) => return Ok(length),
                Ok(true) => {
                    let looked_at = self.runs.fetch_add(1, Ordering::AcqRel) < FIRST || length >= LONG;
                    match if looked_at { self.looks_zero(&range) } else { Ok(true) } {
                        Ok(true) => return Ok(0),
                        Ok(false) => self.lies.store(true, Ordering::Release),
                        // An unreadable sector is written, because a write makes the disk replace it.
                        Err(_) => {}
                    }
                }
                // The device may still accept written zeroes; if not, the failed write names the sector.
                Err(_) => {}
            }
        }
        exact::zero(self.device, range.clone()).map_err(|e| failed()(e))?;
        Ok(length)
    }

    /// Looked at in several places, both ends among them: what a device left as it was may be zero in some.
    fn looks_zero(&self, range: &Range<u64>) -> std::io::Result<bool> {
        let mut there = Buffer::new(LOOK as usize);
        for place in places(range, false) {
            let there = &mut there.space()[..(place.end - place.start) as usize];
            self.device.read_at(place.start, there)?;
            if !is_zero(there) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Where a run of zeroes is looked at: both ends, and places between at equal distances. Shifted ones are halfway between
/// the others, so that a second look is at other places.
pub(crate) fn places(range: &Range<u64>, shifted: bool) -> Vec<Range<u64>> {
    let length = LOOK.min(range.end - range.start);
    let (first, last) = (range.start / LOOK, (range.end - length) / LOOK);
    let halves = if shifted { 1..2 * LOOKS } else { 2..2 * LOOKS };
    let between = halves.step_by(2).map(|n| (first + (last - first) * n / (2 * LOOKS)) * LOOK);
    // Rounded down it may lie before a run that does not begin at a multiple of what is looked at.
    let between = between.filter(|at| *at > range.start);
    [range.start, range.end - length].into_iter().chain(between).map(|at| at..at + length).collect()
}
