//! Builds every state that a power cut could leave, and has it judged.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use landfall_disk::ReadAt;
use landfall_disk::judge::{State, judge};
use landfall_lab::blklog::{Entry, Recording};

use super::SECTOR;
use crate::e2e::raw::{Disk, copy_file, first_difference};

/// LBA 0 to 33: protective MBR, header and entries of a GPT.
const TABLE_SECTORS: u64 = 34;
/// Choices of kept pieces tried between any two flushes, besides none, all, and the edges.
const CHOICES: usize = 64;
/// Writes up to this many bytes are torn at every sector.
const SMALL: usize = 64 * 1024;

/// How many states of each kind there were.
#[derive(Debug, Default)]
pub(super) struct Judged {
    old: u32,
    unbootable: u32,
    new: u32,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} old, {} unbootable, {} verified-new", self.old, self.unbootable, self.new)
    }
}

/// Walks the recording flush by flush up to the commit and judges what could be on the disk in each. Leaves `midway.raw`
/// (all that was durable before the commit) and `committed.raw` in `dir`.
pub(super) fn every_state(recording: &Recording, old: &Path, image: &Path, dir: &Path) -> anyhow::Result<Judged> {
    let commit = commit(recording)?;
    let old = File::open(old)?;
    let new = committed(recording, commit, &old, dir)?;
    require_image(&new, &File::open(image)?)?;
    let sector = u32::try_from(SECTOR)?;

    let midway_path = dir.join("midway.raw");
    copy_file(&old, &midway_path)?;
    let base = File::options().read(true).write(true).open(&midway_path)?;
    let mut judged = Judged::default();
    for epoch in recording.epochs() {
        let window = &recording.entries()[epoch.clone()];
        let data = window.iter().map(|entry| recording.data(entry)).collect::<Result<Vec<_>, _>>()?;
        let pieces: Vec<Piece<'_>> = window.iter().zip(&data).flat_map(|(entry, data)| pieces(entry, data)).collect();
        for choice in choices(pieces.len()) {
            let kept = pieces.iter().zip(&choice).filter_map(|(piece, keep)| keep.then_some(*piece));
            let state = Overlay::new(&base, kept)?;
            match judge(&state, &Disk::new(&old)?, &Disk::new(&new)?, sector)? {
                State::Old => judged.old += 1,
                State::Unbootable => judged.unbootable += 1,
                State::VerifiedNew => judged.new += 1,
                broken @ State::Broken => {
                    let kept = shown(&choice);
                    bail!("after the flush before writes {epoch:?}, with these pieces of them kept: {kept}: {broken}")
                }
            }
        }
        if epoch.contains(&commit) {
            break;
        }
        for entry in window {
            recording.apply(entry, &base)?;
        }
    }
    ensure!(judged.old > 0 && judged.unbootable > 0 && judged.new > 0, "not a whole install: {judged}");
    Ok(judged)
}

/// A part of a write that reaches the medium whole or not at all: offset and bytes.
type Piece<'a> = (u64, &'a [u8]);

/// A write may be torn anywhere between two sectors. Small writes are tables and boot sectors: those are torn at every
/// sector; the body's large ones at every 64 KiB, or there would be no end of choices.
fn pieces<'a>(entry: &Entry, data: &'a [u8]) -> impl Iterator<Item = Piece<'a>> + use<'a> {
    let size = if data.len() <= SMALL { SECTOR as usize } else { SMALL };
    (entry.offset..).step_by(size).zip(data.chunks(size))
}

/// The last write that puts a boot signature into LBA 0.
fn commit(recording: &Recording) -> anyhow::Result<usize> {
    let mut commit = None;
    for (i, entry) in recording.entries().iter().enumerate() {
        if entry.offset == 0 && entry.length >= SECTOR && recording.data(entry)?[510..512] == [0x55, 0xaa] {
            commit = Some(i);
        }
    }
    commit.context("LBA 0 was never committed")
}

/// The disk right after the commit.
fn committed(recording: &Recording, commit: usize, old: &File, dir: &Path) -> anyhow::Result<File> {
    let path = dir.join("committed.raw");
    copy_file(old, &path)?;
    let file = File::options().read(true).write(true).open(&path)?;
    for entry in &recording.entries()[..=commit] {
        recording.apply(entry, &file)?;
    }
    Ok(file)
}

/// Requires the whole image behind its tables, the receipt's place apart: the judge compares with the committed disk, so
/// that one itself must be right.
fn require_image(disk: &File, image: &File) -> anyhow::Result<()> {
    let end = image.metadata()?.len() - (TABLE_SECTORS - 1) * SECTOR;
    let receipt = landfall_disk::RECEIPT_PLACE;
    for range in [TABLE_SECTORS * SECTOR..receipt.start, receipt.end..end] {
        if let Some(at) = first_difference(disk, image, range)? {
            bail!("the committed disk differs from the image at byte {at}");
        }
    }
    Ok(())
}

/// Which writes of a window a volatile cache may have kept: none, all, each alone at the window's edges, and a spread of
/// others, the same in every run.
fn choices(n: usize) -> Vec<Vec<bool>> {
    let mut all = vec![vec![false; n], vec![true; n]];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ n as u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..CHOICES.min(1 << n.min(10)) {
        all.push((0..n).map(|_| next() & 1 == 1).collect());
    }
    for i in [0, n.saturating_sub(1)] {
        if i < n {
            let mut only = vec![false; n];
            only[i] = true;
            all.push(only.clone());
            all.push(only.iter().map(|keep| !keep).collect());
        }
    }
    all
}

fn shown(choice: &[bool]) -> String {
    choice.iter().take(200).map(|keep| if *keep { '1' } else { '0' }).collect()
}

/// A disk and some writes on top, not written: sector by sector, the last write of each.
struct Overlay<'a> {
    disk: Disk<'a>,
    sectors: BTreeMap<u64, &'a [u8]>,
}

impl<'a> Overlay<'a> {
    fn new(base: &'a File, pieces: impl Iterator<Item = Piece<'a>>) -> io::Result<Self> {
        let mut sectors = BTreeMap::new();
        for (offset, data) in pieces {
            sectors.extend((offset..).step_by(SECTOR as usize).zip(data.chunks(SECTOR as usize)));
        }
        Ok(Self { disk: Disk::new(base)?, sectors })
    }
}

impl ReadAt for Overlay<'_> {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buffer)?;
        let end = offset + buffer.len() as u64;
        // The sector that `offset` is in may begin before it.
        for (at, sector) in self.sectors.range(offset.saturating_sub(SECTOR - 1)..end) {
            for (byte, position) in sector.iter().zip(*at..end) {
                if let Some(i) = position.checked_sub(offset) {
                    buffer[i as usize] = *byte;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_shows_its_sectors_at_any_offset() {
        let base = tempfile::tempfile().unwrap();
        base.set_len(4096).unwrap();
        let (one, two) = (vec![1; 512], vec![2; 512]);
        let sectors = BTreeMap::from([(512, one.as_slice()), (1024, two.as_slice())]);
        let overlay = Overlay { disk: Disk::new(&base).unwrap(), sectors };
        let mut seen = vec![9; 1030];
        overlay.read_at(510, &mut seen).unwrap();
        let mut wanted = vec![0; 2];
        wanted.extend([1; 512]);
        wanted.extend([2; 512]);
        wanted.extend([0; 4]);
        assert_eq!(seen, wanted);
    }
}
