//! Every state that a power cut could leave, built from a recording.

use std::{collections::BTreeMap, io};

use landfall_disk::{Expectation, Installed, Order, ReadAt, Unobserved, WriteError, install};

use super::{MemorySource, Op, Recorder, digest, mark};

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
    let order = Order {
        device: "recorder",
        expectation: Expectation::Stored(digest(digest_of)),
        format: None,
        no_table: false,
        forgive: false,
        memory: None,
        mark: mark(digest_of, device.size()),
        keep,
        compare: false,
        read_back: false,
        may_act: &|| Ok(()),
        same_disk: &|| Ok(()),
    };
    install(device, &mut source, &order, &Unobserved)
}

/// Replays the recording of an install and hands every state after a power cut to `check`.
pub(crate) fn replay(old: &[u8], ops: &[Op], sector: u32, mut check: impl FnMut(&AfterCut<'_>, usize)) {
    let size = u64::from(sector);
    let mut durable = old.to_vec();
    // Unflushed versions of each sector, oldest first.
    let mut pending: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    let mut random = Random(0x1234_5678_9abc_def1);
    for (index, op) in ops.iter().enumerate() {
        let newest = match op {
            Op::Write(offset, data) => {
                for (at, bytes) in (*offset..).step_by(sector as usize).zip(data.chunks(sector as usize)) {
                    pending.entry(at).or_default().push(bytes);
                }
                *offset..*offset + data.len() as u64
            }
            Op::Flush => {
                for (at, versions) in std::mem::take(&mut pending) {
                    let at = at as usize;
                    durable[at..at + sector as usize].copy_from_slice(versions.last().unwrap());
                }
                0..0
            }
        };
        let mut subset = |choose: &mut dyn FnMut(u64, usize) -> usize| {
            // 0: none of the versions; n: the n-th.
            let kept = pending
                .iter()
                .filter_map(|(at, versions)| match choose(*at, versions.len()) {
                    0 => None,
                    n => Some((*at, versions[n - 1].to_vec())),
                })
                .collect();
            check(&AfterCut { durable: &durable, sector: size, kept: &kept }, index);
        };
        subset(&mut |_, _| 0);
        subset(&mut |_, versions| versions);
        subset(&mut |at, versions| if newest.contains(&at) { versions } else { 0 });
        subset(&mut |at, versions| if newest.contains(&at) { 0 } else { versions });
        for round in 0..SUBSETS {
            // Sparse, even and dense subsets: a lone sector lost, or a lone one kept, breaks most.
            let odds = [1, 8, 32, 63][round as usize % 4];
            subset(&mut |_, versions| {
                if random.next() % 64 < odds { 1 + random.next() as usize % versions } else { 0 }
            });
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
