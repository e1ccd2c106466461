//! Every state that a power cut could leave, built from a recording.

use std::{collections::BTreeMap, io, ops::Range};

use landfall_disk::{Expectation, Installed, Order, ReadAt, Unobserved, WriteError, install};

use super::{MemorySource, Op, Recorder, digest, mark, order::order};

/// Random subsets at each operation, besides "none", "all", "only the newest" and "all but the newest".
pub(crate) const SUBSETS: u64 = 12;

/// A xorshift generator: the same states every time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// An install of `image` on `device`.
pub(crate) fn run(device: &Recorder, image: &[u8], digest_of: &[u8], keep: &[String]) -> Result<Installed, WriteError> {
    let mut source = MemorySource::new(image);
    let order = Order { keep, ..order(Expectation::Stored(digest(digest_of)), mark(digest_of, device.size())) };
    install(device, &mut source, &order, &Unobserved)
}

/// Which of the unflushed sectors survive a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survive {
    Nothing,
    All,
    /// Only what the last operation wrote.
    Newest,
    AllButNewest,
    /// Each with these odds of 64, in any version.
    Some(u64),
}

pub(crate) const SURE: [Survive; 4] = [Survive::Nothing, Survive::All, Survive::Newest, Survive::AllButNewest];
/// Sparse, even and dense subsets: a lone sector lost, or a lone one kept, breaks most.
pub(crate) const ODDS: [u64; 4] = [1, 8, 32, 63];

/// A disk in the midst of a recording.
pub(crate) struct Replayed<'a> {
    durable: Vec<u8>,
    sector: u32,
    /// Unflushed versions of each sector, oldest first.
    pending: BTreeMap<u64, Vec<&'a [u8]>>,
    /// What the last operation wrote.
    newest: Range<u64>,
}

impl<'a> Replayed<'a> {
    pub(crate) fn new(old: &[u8], sector: u32) -> Self {
        Self { durable: old.to_vec(), sector, pending: BTreeMap::new(), newest: 0..0 }
    }

    pub(crate) fn apply(&mut self, op: &'a Op) {
        let step = self.sector as usize;
        self.newest = match op {
            Op::Write(offset, data) => {
                for (at, bytes) in (*offset..).step_by(step).zip(data.chunks(step)) {
                    self.pending.entry(at).or_default().push(bytes);
                }
                *offset..*offset + data.len() as u64
            }
            Op::Flush => {
                for (at, versions) in std::mem::take(&mut self.pending) {
                    self.durable[at as usize..at as usize + step].copy_from_slice(versions.last().unwrap());
                }
                0..0
            }
        };
    }

    /// Cuts the power now.
    pub(crate) fn cut<T>(&self, survive: Survive, random: &mut Random, check: impl FnOnce(&AfterCut<'_>) -> T) -> T {
        // 0: none of the versions; n: the n-th.
        let mut chosen = |at: u64, versions: usize| match (survive, self.newest.contains(&at)) {
            (Survive::All, _) | (Survive::Newest, true) | (Survive::AllButNewest, false) => versions,
            (Survive::Nothing, _) | (Survive::Newest, false) | (Survive::AllButNewest, true) => 0,
            (Survive::Some(odds), _) if random.next() % 64 < odds => 1 + random.next() as usize % versions,
            (Survive::Some(_), _) => 0,
        };
        let kept = self.pending.iter().filter_map(|(at, versions)| match chosen(*at, versions.len()) {
            0 => None,
            n => Some((*at, versions[n - 1].to_vec())),
        });
        let kept = kept.collect();
        check(&AfterCut { durable: &self.durable, sector: u64::from(self.sector), kept: &kept })
    }
}

/// Replays the recording of an install and hands every state after a power cut to `check`.
pub(crate) fn replay(old: &[u8], ops: &[Op], sector: u32, mut check: impl FnMut(&AfterCut<'_>, usize)) {
    let mut replayed = Replayed::new(old, sector);
    let mut random = Random(0x1234_5678_9abc_def1);
    let subsets = (0..SUBSETS).map(|round| Survive::Some(ODDS[round as usize % ODDS.len()]));
    let subsets: Vec<_> = SURE.into_iter().chain(subsets).collect();
    for (index, op) in ops.iter().enumerate() {
        replayed.apply(op);
        for survive in &subsets {
            replayed.cut(*survive, &mut random, |disk| check(disk, index));
        }
    }
}

/// A disk after a power cut: what was durable, and some sectors of what was not.
pub(crate) struct AfterCut<'a> {
    pub(crate) durable: &'a [u8],
    pub(crate) sector: u64,
    pub(crate) kept: &'a BTreeMap<u64, Vec<u8>>,
}

impl ReadAt for AfterCut<'_> {
    fn size(&self) -> u64 {
        self.durable.len() as u64
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.durable.read_at(offset, buffer)?;
        let end = offset + buffer.len() as u64;
        for (at, bytes) in self.kept.range(offset.saturating_sub(self.sector - 1)..end) {
            let from = (*at).max(offset);
            let to = (at + self.sector).min(end);
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }
}
