//! Clearing signatures: the two ends of a disk or partition, whole, and what is further inside where it is really there.

use std::{io, ops::Range};

use super::find::{ZONE, find_far};
use crate::{BlockDevice, exact};

/// What is cleared around a signature further inside, bytes: no superblock that is there has a part which says more.
const BLOCK: u64 = 4096;

/// Clears both ends of `region` and every signature further inside it, but nothing in the `spared` ranges. All are bytes
/// of the device and whole sectors. Not flushed.
///
/// # Errors
/// The device's.
pub(crate) fn clear(device: &dyn BlockDevice, region: &Range<u64>, spared: &[Range<u64>]) -> io::Result<()> {
    // Searched first: on some devices written zeroes cannot be read back yet.
    let far = find_far(device, region)?;
    let head = region.start..region.end.min(region.start.saturating_add(ZONE));
    let tail = region.start.max(region.end.saturating_sub(ZONE)).max(head.end)..region.end;
    zero_except(device, head, spared)?;
    zero_except(device, tail, spared)?;
    for found in far {
        let start = region.start + (found.offset - region.start) / BLOCK * BLOCK;
        zero_except(device, start..region.end.min(start + BLOCK), spared)?;
    }
    Ok(())
}

/// Zeroes `range` but for the `spared` ranges in it. Not flushed.
///
/// # Errors
/// The device's.
pub(crate) fn zero_except(device: &dyn BlockDevice, range: Range<u64>, spared: &[Range<u64>]) -> io::Result<()> {
    let mut spared: Vec<&Range<u64>> = spared.iter().filter(|s| s.start < range.end && s.end > range.start).collect();
    spared.sort_unstable_by_key(|s| s.start);
    let mut at = range.start;
    for hole in spared {
        if hole.start > at {
            exact::zero(device, at..hole.start)?;
        }
        at = at.max(hole.end);
    }
    if at < range.end {
        exact::zero(device, at..range.end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::find::find;
    use super::super::find::tests::all_places;
    use super::*;
    use crate::{ReadAt as _, RealDevice};

    fn device(bytes: u64) -> (tempfile::NamedTempFile, RealDevice) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let device = RealDevice::open(file.path()).unwrap();
        (file, device)
    }

    #[test]
    fn every_signature_goes_and_the_neighbours_and_the_spared_stay() {
        let (region, size) = ((1 << 20)..(67 << 20), 68 << 20);
        let (_file, device) = device(size);
        device.write_at(0, &vec![7; 1 << 20]).unwrap();
        device.write_at(67 << 20, &vec![7; 1 << 20]).unwrap();
        for (_, place, magic) in all_places(66 << 20) {
            let at = region.start + place;
            let mut sector = vec![0; 1024];
            device.read_at(at / 512 * 512, &mut sector).unwrap();
            sector[(at % 512) as usize..(at % 512) as usize + magic.len()].copy_from_slice(magic);
            device.write_at(at / 512 * 512, &sector).unwrap();
        }
        let spared = region.start + 8192..region.start + 8704;
        device.write_at(spared.start, &[5; 512]).unwrap();
        assert!(find(&device, &region).unwrap().len() > 100);
        clear(&device, &region, std::slice::from_ref(&spared)).unwrap();
        assert_eq!(find(&device, &region).unwrap(), []);
        let mut all = vec![0; size as usize];
        device.read_at(0, &mut all).unwrap();
        assert!(all[..1 << 20].iter().all(|b| *b == 7) && all[67 << 20..].iter().all(|b| *b == 7));
        assert!(all[spared.start as usize..spared.end as usize].iter().all(|b| *b == 5));
    }

    proptest! {
        #[test]
        fn exactly_what_is_not_spared_becomes_zero(
            range in (0_u64..32, 0_u64..32), spared in prop::collection::vec((0_u64..32, 0_u64..8), 0..5)
        ) {
            let (_file, device) = device(32 * 512);
            device.write_at(0, &[1; 32 * 512]).unwrap();
            let range = range.0.min(range.1) * 512..range.0.max(range.1) * 512;
            let spared: Vec<_> = spared.iter().map(|(at, n)| at * 512..(at + n) * 512).collect();
            zero_except(&device, range.clone(), &spared).unwrap();
            let mut all = vec![0; 32 * 512];
            device.read_at(0, &mut all).unwrap();
            for (at, byte) in (0_u64..).zip(all) {
                let gone = range.contains(&at) && !spared.iter().any(|s| s.contains(&at));
                prop_assert_eq!(byte == 0, gone, "{}", at);
            }
        }
    }
}
