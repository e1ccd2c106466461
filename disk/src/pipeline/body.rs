//! The body: decoded blocks onto the device, without head and tables, zero runs made rather than written.

use std::ops::Range;

use super::{device_io, meter::Meter};
use crate::{
    BlockDevice, WriteError,
    gpt::{Captured, Fate, Layout, Piece},
};

/// A run of zeroes shorter than this is cheaper to write. A multiple of every sector size.
const GRAIN: usize = 64 * 1024;
static ZEROES: [u8; GRAIN] = [0; GRAIN];
/// Zero runs are joined up to this length, so that a device is not held up by one command for long.
const LONGEST_RUN: u64 = 256 << 20;

pub(super) struct Body<'a> {
    device: &'a dyn BlockDevice,
    layout: &'a Layout,
    name: &'a str,
    meter: &'a Meter<'a>,
    offset: u64,
    written: u64,
    /// Zeroes not yet made.
    zeroes: Range<u64>,
    captured: Captured,
}

impl<'a> Body<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice, layout: &'a Layout, name: &'a str, meter: &'a Meter<'a>) -> Self {
        Self { device, layout, name, meter, offset: 0, written: 0, zeroes: 0..0, captured: Captured::default() }
    }

    /// A block of the image.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), WriteError> {
        let sector = self.layout.sector as usize;
        self.offset = offset;
        let end = self.offset + data.len() as u64;
        if end > self.layout.disk_size {
            return Err(WriteError::DiskTooSmall {
                device: self.name.into(),
                needed: end,
                size: self.layout.disk_size,
            });
        }
        let whole = data.len() / sector * sector;
        self.write_sectors(&data[..whole])?;
        if whole < data.len() {
            // Only the image's very last sector can be a part of one.
            let mut last = data[whole..].to_vec();
            last.resize(sector, 0);
            self.write_sectors(&last)?;
        }
        Ok(())
    }

    /// A part of the image that is zero.
    pub(super) fn zeroes(&mut self, range: Range<u64>) -> Result<(), WriteError> {
        let sector = u64::from(self.layout.sector);
        if range.end > self.layout.disk_size {
            return Err(WriteError::DiskTooSmall {
                device: self.name.into(),
                needed: range.end,
                size: self.layout.disk_size,
            });
        }
        let whole = range.start..range.end.next_multiple_of(sector);
        for (part, fate) in self.layout.split(whole) {
            match fate {
                Fate::Skip | Fate::Forbidden => {}
                Fate::Zero | Fate::Write => self.zero(part)?,
                Fate::Capture => {
                    let bytes = vec![0; (part.end - part.start) as usize];
                    self.captured.0.push(Piece { offset: part.start, bytes });
                }
            }
        }
        self.meter.raw(range.end - range.start, 0);
        Ok(())
    }

    fn write_sectors(&mut self, data: &[u8]) -> Result<(), WriteError> {
        let start = self.offset;
        self.offset += data.len() as u64;
        let written = self.written;
        for (range, fate) in self.layout.split(start..self.offset) {
            let bytes = &data[(range.start - start) as usize..(range.end - start) as usize];
            match fate {
                Fate::Skip => {}
                Fate::Forbidden => self.must_be_zero(range.start, bytes)?,
                Fate::Zero => self.zero(range)?,
                Fate::Capture => self.captured.0.push(Piece { offset: range.start, bytes: bytes.to_vec() }),
                Fate::Write => self.write_sparse(range.start, bytes)?,
            }
        }
        self.meter.raw(data.len() as u64, self.written - written);
        Ok(())
    }

    /// What is kept is nobody's to write, not even with zeroes; an image with data there does not fit this disk.
    fn must_be_zero(&self, offset: u64, data: &[u8]) -> Result<(), WriteError> {
        let Some(at) = data.iter().position(|byte| *byte != 0) else { return Ok(()) };
        let at = offset + at as u64;
        let reason = format!("the image has data at byte {at}, which belongs to {}", self.layout.kept_at(at));
        Err(WriteError::KeepRefused { device: self.name.into(), reason })
    }

    /// Writes what is not zero in as few writes as the zero runs allow.
    fn write_sparse(&mut self, offset: u64, data: &[u8]) -> Result<(), WriteError> {
        let mut pending = 0..0;
        for (i, grain) in data.chunks(GRAIN).enumerate() {
            let at = i * GRAIN;
            if *grain == ZEROES[..grain.len()] {
                self.put(offset, data, pending.clone())?;
                pending = at + grain.len()..at + grain.len();
                self.zero(offset + at as u64..offset + (at + grain.len()) as u64)?;
            } else {
                pending.end = at + grain.len();
            }
        }
        self.put(offset, data, pending)
    }

    fn put(&mut self, offset: u64, data: &[u8], part: Range<usize>) -> Result<(), WriteError> {
        if part.is_empty() {
            return Ok(());
        }
        let at = offset + part.start as u64;
        let bytes = &data[part];
        let failed = device_io(self.name, format!("write {} bytes at {at} to", bytes.len()));
        self.device.write_at(at, bytes).map_err(failed)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn zero(&mut self, range: Range<u64>) -> Result<(), WriteError> {
        if self.zeroes.end == range.start && range.end - self.zeroes.start <= LONGEST_RUN {
            self.zeroes.end = range.end;
            return Ok(());
        }
        let before = std::mem::replace(&mut self.zeroes, range);
        self.make_zeroes(before)
    }

    fn make_zeroes(&mut self, range: Range<u64>) -> Result<(), WriteError> {
        if range.is_empty() {
            return Ok(());
        }
        let length = range.end - range.start;
        let failed = device_io(self.name, format!("zero {length} bytes at {} of", range.start));
        if !self.device.zero_range(range.start, length).map_err(failed)? {
            self.written += length;
        }
        Ok(())
    }

    /// Everything on stable storage; what was kept for the commit, and how many bytes were really written.
    pub(super) fn finish(mut self) -> Result<(Captured, u64), WriteError> {
        let zeroes = std::mem::replace(&mut self.zeroes, 0..0);
        self.make_zeroes(zeroes)?;
        self.device.flush().map_err(device_io(self.name, "flush"))?;
        Ok((self.captured, self.written))
    }
}
