//! Looking for the table's signatures on a disk or a part of it.

use std::{io, ops::Range};

use super::table::{GPT, SIGNATURES, Side, Signature};
use crate::ReadAt;

/// The ends of a disk or partition, bytes: the tables of every kind, and all but the farthest signatures, are in them.
pub(crate) const ZONE: u64 = 1 << 20;

/// A signature that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// What it is of, with its article.
    pub(crate) name: &'static str,
    /// Of the magic, bytes from the disk's start.
    pub(crate) offset: u64,
}

/// The signatures of `region` (bytes of the disk), as if it were a disk of its own.
///
/// # Errors
/// The disk's.
pub(crate) fn find(disk: &(impl ReadAt + ?Sized), region: &Range<u64>) -> io::Result<Vec<Found>> {
    let length = region.end.saturating_sub(region.start);
    // Nearly all of them are at the ends; two reads find those.
    let size = usize::try_from(length.min(ZONE)).unwrap_or_default();
    let (mut head, mut tail) = (vec![0; size], vec![0; size]);
    disk.read_at(region.start, &mut head)?;
    disk.read_at(region.end - size as u64, &mut tail)?;
    let mut found = find_far(disk, region)?;
    for signature in SIGNATURES {
        for place in signature.places(length).filter(|place| is_near(signature, *place, length)) {
            let from = |window: &[u8], start: u64| {
                let at = place.checked_sub(start).and_then(|at| usize::try_from(at).ok())?;
                window.get(at..at.checked_add(signature.magic.len())?).map(|bytes| bytes == signature.magic)
            };
            if from(&head, 0).or_else(|| from(&tail, length - size as u64)) == Some(true) {
                found.push(Found { name: signature.name, offset: region.start + place });
            }
        }
    }
    Ok(found)
}

/// What the first of the signatures in these first bytes of a region is of. Partition tables do not count.
pub(crate) fn at_start(head: &[u8]) -> Option<&'static str> {
    let volumes = SIGNATURES.iter().filter(|signature| signature.side == Side::Start && signature.name != GPT);
    let there = |signature: &&Signature| {
        signature.places(head.len() as u64).any(|place| head[place as usize..].starts_with(signature.magic))
    };
    volumes.into_iter().find(there).map(|signature| signature.name)
}

/// Whether a signature of this name is of a partition table, not of a volume.
pub(crate) fn is_table(name: &str) -> bool {
    name == GPT
}

/// What [`at_start`] knows.
#[cfg(test)]
pub(crate) fn volume_names() -> Vec<&'static str> {
    let volumes = SIGNATURES.iter().filter(|signature| signature.side == Side::Start && signature.name != GPT);
    volumes.map(|signature| signature.name).collect()
}

/// Only those that are not whole inside the zones at the region's two ends.
pub(super) fn find_far(disk: &(impl ReadAt + ?Sized), region: &Range<u64>) -> io::Result<Vec<Found>> {
    let length = region.end.saturating_sub(region.start);
    let mut found = Vec::new();
    for signature in SIGNATURES {
        for place in signature.places(length).filter(|place| !is_near(signature, *place, length)) {
            let mut bytes = vec![0; signature.magic.len()];
            disk.read_at(region.start + place, &mut bytes)?;
            if bytes == signature.magic {
                found.push(Found { name: signature.name, offset: region.start + place });
            }
        }
    }
    Ok(found)
}

fn is_near(signature: &Signature, place: u64, length: u64) -> bool {
    place + signature.magic.len() as u64 <= ZONE.min(length) || place >= length.saturating_sub(ZONE)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Every signature of the table with every place of it on a disk of this size: name, offset, magic.
    pub(crate) fn all_places(size: u64) -> Vec<(&'static str, u64, &'static [u8])> {
        let places = |s: &'static Signature| s.places(size).map(move |place| (s.name, place, s.magic));
        SIGNATURES.iter().flat_map(places).collect()
    }

    #[test]
    fn each_signature_is_found_at_each_of_its_places() {
        let (start, size) = (4096_u64, 66_u64 << 20);
        let region = start..start + size;
        let mut disk = vec![0; (start + size + 4096) as usize];
        assert_eq!(find(&disk, &region).unwrap(), []);
        for (name, place, magic) in all_places(size) {
            let at = (start + place) as usize;
            disk[at..at + magic.len()].copy_from_slice(magic);
            let far = find_far(&disk, &region).unwrap();
            let found = if far.is_empty() { find(&disk, &region).unwrap() } else { far };
            assert_eq!(found, [Found { name, offset: start + place }]);
            disk[at..at + magic.len()].fill(0);
        }
    }

    #[test]
    fn regions_of_any_size_are_looked_at_without_a_fault() {
        for size in (0..70_000).step_by(512) {
            assert_eq!(find(&vec![0_u8; size], &(0..size as u64)).unwrap(), []);
        }
    }
}
