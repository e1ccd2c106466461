//! The body: decoded pieces onto the device, without head and tables. What is plain goes to the writing threads; what the
//! layout treats in a special way (the first MiB, the image's end) is cut and done here.

use std::ops::Range;

use super::manner::Manner;
use super::writers::{Tally, Writers};
use super::zeroes::is_zero;
use super::{Check, device_io};
use crate::buffer::{Buffer, Pool};
use crate::gpt::{Captured, Fate, Layout, Piece};
use crate::{WriteError, exact};

/// Zero runs are joined up to this length and longer ones are cut to it, so that neither the device nor a cancel
/// request waits long.
const LONGEST_RUN: u64 = 64 << 20;

pub(super) struct Body<'scope, 'a> {
    layout: &'a Layout,
    manner: &'scope Manner<'scope>,
    writers: Writers<'scope>,
    blocks: &'a Pool,
    may_act: Check<'a>,
    /// Zeroes not yet made.
    zeroes: Range<u64>,
    captured: Captured,
    /// What was done here rather than by the threads.
    tally: Tally,
}

impl<'scope, 'a> Body<'scope, 'a> {
    pub(super) fn new(
        layout: &'a Layout, manner: &'scope Manner<'scope>, writers: Writers<'scope>, blocks: &'a Pool,
        may_act: Check<'a>,
    ) -> Self {
        Self {
            layout,
            manner,
            writers,
            blocks,
            may_act,
            zeroes: 0..0,
            captured: Captured::default(),
            tally: Tally::default(),
        }
    }

    /// Whether all threads go on; the error of the one that does not.
    pub(super) fn works(&self) -> Result<(), WriteError> {
        self.writers.works()
    }

    /// A block of the image.
    pub(super) fn write(&mut self, offset: u64, mut block: Buffer) -> Result<(), WriteError> {
        self.fits(offset + block.len as u64)?;
        // Only the image's very last sector can be a part of one.
        let whole = block.len.next_multiple_of(self.layout.sector as usize);
        let length = block.len;
        block.len = whole;
        block.fill_zero(length);
        let range = offset..offset + whole as u64;
        let parts = self.layout.split(range.clone());
        if let [(_, Fate::Write)] = parts.as_slice() {
            if is_zero(block.data()) {
                self.blocks.give(block);
                return self.zero(range);
            }
            return self.writers.write(offset, block);
        }
        // Zeroes are counted where they are made.
        let mut counted = length as u64;
        for (part, fate) in parts {
            let bytes = &block.data()[(part.start - offset) as usize..(part.end - offset) as usize];
            match fate {
                Fate::Skip => {}
                Fate::Forbidden => self.must_be_zero(part.start, bytes)?,
                Fate::Capture => self.captured.0.push(Piece { offset: part.start, bytes: bytes.to_vec() }),
                fate if fate == Fate::Zero || is_zero(bytes) => {
                    counted = counted.saturating_sub(part.end - part.start);
                    self.zero(part)?;
                }
                _ => {
                    let action = || format!("write {} bytes at {} of", bytes.len(), part.start);
                    let write = exact::write(self.manner.device, part.start, bytes);
                    write.map_err(|error| device_io(self.manner.name, action())(error))?;
                    self.tally.written += bytes.len() as u64;
                    self.writers.notes().data(part.start, bytes);
                }
            }
        }
        self.manner.meter.raw(counted, 0);
        self.blocks.give(block);
        Ok(())
    }

    /// A part of the image that is zero.
    pub(super) fn zeroes(&mut self, range: Range<u64>) -> Result<(), WriteError> {
        self.fits(range.end)?;
        let whole = range.start..range.end.next_multiple_of(u64::from(self.layout.sector));
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
        Ok(())
    }

    /// Kept ranges are never written, not even with zeroes; an image with data there does not fit this disk.
    fn must_be_zero(&self, offset: u64, data: &[u8]) -> Result<(), WriteError> {
        let refuse = |reason| WriteError::KeepRefused { device: self.manner.name.into(), reason };
        self.layout.must_spare(offset, data).map_err(refuse)
    }

    fn fits(&self, end: u64) -> Result<(), WriteError> {
        let size = self.layout.disk_size;
        if end <= size {
            return Ok(());
        }
        Err(WriteError::DiskTooSmall { device: self.manner.name.into(), needed: end, size })
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
        let mut start = range.start;
        while start < range.end {
            // A device that makes no zeroes may take long over each of these.
            (self.may_act)()?;
            let part = start..range.end.min(start + LONGEST_RUN);
            let written = self.manner.zeroes.make(part.clone())?;
            self.tally.written += written;
            self.manner.meter.raw(part.end - part.start, written);
            start = part.end;
            self.writers.notes().zeroes(part, written > 0);
        }
        Ok(())
    }

    /// Everything written, nothing flushed; what was kept for the commit, and what was done.
    pub(super) fn finish(mut self) -> Result<(Captured, Tally), WriteError> {
        let zeroes = std::mem::replace(&mut self.zeroes, 0..0);
        self.make_zeroes(zeroes)?;
        let mut tally = self.writers.finish()?;
        tally.written += self.tally.written;
        Ok((self.captured, tally))
    }
}
