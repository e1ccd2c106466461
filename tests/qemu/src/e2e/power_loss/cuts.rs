//! The disks that power cuts would have left.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use landfall_lab::blklog::{Entry, Recording};

use super::Dice;
use super::acks::Acked;
use crate::e2e::raw::copy_file;

/// A write may be torn anywhere between two sectors.
const SECTOR: usize = 512;

/// Which of the writes that no flush had made durable are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// All.
    All,
    /// None of them.
    Nothing,
    /// Some sectors, chosen at random.
    Some,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "with every unflushed write",
            Self::Nothing => "without any unflushed write",
            Self::Some => "with some sectors of the unflushed writes",
        })
    }
}

/// Rebuilds disks from a recording, each later than the one before.
pub(super) struct Cuts<'a> {
    recording: &'a Recording,
    /// The disk with everything that a flush before the present cut made durable.
    durable: File,
    /// How many entries are in `durable`.
    applied: usize,
    output: PathBuf,
    dice: Dice,
}

impl<'a> Cuts<'a> {
    /// `durable` is the disk as it was before the recording, and is written; the disks go to `output`.
    ///
    /// # Errors
    /// The recording has nothing in it, or the disk cannot be opened.
    pub(super) fn new(recording: &'a Recording, durable: &Path, output: &Path, seed: u64) -> anyhow::Result<Self> {
        ensure!(recording.entries().iter().any(|entry| entry.flush), "the recording has no flush");
        let file = File::options().read(true).write(true).open(durable);
        let durable = file.with_context(|| durable.display().to_string())?;
        Ok(Self { recording, durable, applied: 0, output: output.to_owned(), dice: Dice::new(seed) })
    }

    /// Where the first `cut` entries end in the recording, bytes.
    pub(super) fn position(&self, cut: usize) -> u64 {
        cut.checked_sub(1).map_or(0, |last| self.recording.entries()[last].end())
    }

    /// So many cuts, ascending, each a number of entries before the power went: half of them just where an
    /// acknowledgement begins to count, half at any instant.
    pub(super) fn choose(&mut self, acks: &[Acked], count: usize) -> Vec<usize> {
        let entries = self.recording.entries();
        let at_acks = sharpest(entries, acks);
        let mut cuts = Vec::with_capacity(count);
        for n in 0..count {
            // One from each of so many equal parts, so that they are spread whatever chance says.
            let part = |all: usize| {
                let (from, to) = (all * n / count, all * (n + 1) / count);
                from..to.max(from + 1)
            };
            let mut one_of = |range: std::ops::Range<usize>| range.start + self.dice.below(range.len());
            cuts.push(match at_acks.len() {
                some @ 1.. if n % 2 == 0 => at_acks[one_of(part(some)).min(some - 1)],
                _ => one_of(part(entries.len())) + 1,
            });
        }
        cuts.sort_unstable();
        cuts
    }

    /// What may be left of the unflushed writes when the power goes there; one of them where there are none.
    pub(super) fn kinds(&self, cut: usize) -> &'static [Kept] {
        match self.flushed(cut) == cut {
            true => &[Kept::All],
            false => &[Kept::All, Kept::Nothing, Kept::Some],
        }
    }

    /// How many of the first `cut` entries are durable by a flush among them.
    fn flushed(&self, cut: usize) -> usize {
        self.recording.entries()[..cut].iter().rposition(|entry| entry.flush).map_or(0, |last| last + 1)
    }

    /// The disk that is left when the power goes after the first `cut` entries. Cuts never go back.
    ///
    /// # Errors
    /// Files cannot be read or written.
    pub(super) fn rebuild(&mut self, cut: usize, kept: Kept) -> anyhow::Result<PathBuf> {
        let entries = &self.recording.entries()[..cut];
        let flushed = self.flushed(cut);
        ensure!(self.applied <= flushed, "cuts must ascend");
        for entry in &entries[self.applied..flushed] {
            self.recording.apply(entry, &self.durable)?;
        }
        self.applied = flushed;
        // A new file, not the old one again: the kernel may not be done yet with unmounting the disk before.
        match std::fs::remove_file(&self.output) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        copy_file(&self.durable, &self.output)?;
        let disk = File::options().write(true).open(&self.output)?;
        for entry in &entries[flushed..] {
            match kept {
                _ if entry.fua => self.recording.apply(entry, &disk)?,
                Kept::All => self.recording.apply(entry, &disk)?,
                Kept::Nothing => {}
                Kept::Some => {
                    let data = self.recording.data(entry)?;
                    for (at, sector) in (entry.offset..).step_by(SECTOR).zip(data.chunks(SECTOR)) {
                        if self.dice.throw().is_multiple_of(2) {
                            disk.write_all_at(sector, at)?;
                        }
                    }
                }
            }
        }
        Ok(self.output.clone())
    }
}

/// For each acknowledgement the least number of entries with which it must hold, ascending, each once.
fn sharpest(entries: &[Entry], acks: &[Acked]) -> Vec<usize> {
    let mut cuts: Vec<usize> =
        acks.iter().map(|ack| entries.partition_point(|entry| entry.end() < ack.at) + 1).collect();
    cuts.retain(|cut| *cut <= entries.len());
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}
