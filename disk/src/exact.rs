//! Writes that name the sector that failed, and zeroes that are written rather than requested from the device, where
//! safety depends on them.

use std::{io, ops::Range};

use crate::{BlockDevice, buffer::Buffer};

/// Written at once.
const STEP: usize = 1 << 20;

/// Writes whole sectors.
///
/// # Errors
/// The device's, naming the sector.
pub(crate) fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> io::Result<()> {
    device.write_at(offset, bytes).map_err(|error| named(device, offset, bytes, error))
}

/// Writes zeroes over whole sectors. A device may report success without making the zeroes; for the sectors that make a
/// disk bootable, this is too risky.
///
/// # Errors
/// The device's, naming the sector.
pub(crate) fn zero(device: &dyn BlockDevice, range: Range<u64>) -> io::Result<()> {
    let mut zeroes = Buffer::new(STEP.min(usize::try_from(range.end - range.start).unwrap_or(STEP)));
    zeroes.len = zeroes.space().len();
    let mut at = range.start;
    while at < range.end {
        let step = (range.end - at).min(zeroes.len as u64);
        write(device, at, &zeroes.data()[..step as usize])?;
        at += step;
    }
    Ok(())
}

/// Finds the failing sector: writes the same bytes again in halves until a single sector fails. At most a dozen more
/// tries, since a failing disk may take half a minute for each.
fn named(device: &dyn BlockDevice, offset: u64, bytes: &[u8], error: io::Error) -> io::Error {
    let sector = u64::from(device.logical_sector());
    let (mut start, mut length, mut last) = (offset, bytes.len() as u64, None);
    while length > sector {
        let half = (length / sector / 2).max(1) * sector;
        let part = &bytes[(start - offset) as usize..(start - offset + half) as usize];
        match device.write_at(start, part) {
            Err(again) => (length, last) = (half, Some(again)),
            Ok(()) => (start, length) = (start + half, length - half),
        }
    }
    // If every part succeeded the second time, no sector is blamed.
    if last.is_none()
        && bytes.len() as u64 > sector
        && device.write_at(start, &bytes[(start - offset) as usize..]).is_ok()
    {
        let what = format!("sectors {} to {}", offset / sector, (offset + bytes.len() as u64) / sector - 1);
        return io::Error::new(error.kind(), format!("{what}: {error}"));
    }
    io::Error::new(error.kind(), format!("sector {} (byte {start}): {error}", start / sector))
}
