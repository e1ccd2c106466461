//! The whole image as a list of runs in the order of the stored file. This is the only thing here that grows with the
//! image: 16 bytes a run, so at most twice the size of the tables it was made from (and twice that while it is made).

use std::ops::Range;

use super::header::Header;
use super::tables::{Mapping, SECTOR};

/// Clusters that cannot be put in the order of the raw image within so many raw bytes are out of order for good. QEMU
/// packs up to 2 MiB at a time, and within that its clusters come as they get ready.
pub(super) const WINDOW: u64 = 8 << 20;

/// In [`Run::host`]; an offset has 56 bits.
const COMPRESSED: u64 = 1 << 63;
/// In [`Run::host`]; all runs before lie before this one in the raw image as well, and all runs after, after.
const CUT: u64 = 1 << 62;

/// Guest clusters one after the other whose content is one after the other in the file, or one compressed cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    host: u64,
    /// The first guest cluster.
    guest: u32,
    /// Clusters; of a compressed one its sectors.
    count: u32,
}

impl Run {
    fn new(guest: u32, mapping: Mapping) -> Option<Self> {
        match mapping {
            Mapping::Zero => None,
            Mapping::Data(host) => Some(Self { host, guest, count: 1 }),
            Mapping::Compressed { host, sectors } => Some(Self { host: host | COMPRESSED, guest, count: sectors }),
        }
    }

    pub(super) fn compressed(&self) -> bool {
        self.host & COMPRESSED != 0
    }

    /// Whether the order of the file and of the raw image agree at its start.
    pub(super) fn cut(&self) -> bool {
        self.host & CUT != 0
    }

    /// Offset in the file.
    pub(super) fn start(&self) -> u64 {
        self.host & !(COMPRESSED | CUT)
    }

    /// Guest clusters.
    fn clusters(&self) -> u32 {
        if self.compressed() { 1 } else { self.count }
    }

    /// Its place in the raw image, bytes; the last cluster ends with the image.
    pub(super) fn raw(&self, header: &Header) -> Range<u64> {
        raw(header, self.guest, self.clusters())
    }

    /// Its place in the file, bytes. A compressed cluster ends somewhere in the last sector, where the next may start.
    pub(super) fn stored(&self, header: &Header) -> Range<u64> {
        let start = self.start();
        if self.compressed() {
            return start..start / SECTOR * SECTOR + u64::from(self.count) * SECTOR;
        }
        let raw = self.raw(header);
        start..start + (raw.end - raw.start)
    }

    /// From where on in the file others may be.
    fn free(&self, header: &Header) -> u64 {
        let end = self.stored(header).end;
        if self.compressed() { (end - SECTOR).max(self.start() + 1) } else { end.next_multiple_of(header.cluster()) }
    }

    /// Takes in `next` where it goes on both in the file and in the raw image.
    fn join(&mut self, next: &Self, header: &Header) -> bool {
        let both_plain = !self.compressed() && !next.compressed();
        let length = u64::from(self.count) << header.cluster_bits;
        let goes_on = both_plain
            && self.start() + length == next.start()
            && u64::from(self.guest) + u64::from(self.count) == u64::from(next.guest);
        if goes_on {
            self.count += next.count;
        }
        goes_on
    }
}

/// Guest clusters that are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Zeroes {
    start: u32,
    count: u32,
}

impl Zeroes {
    /// Its place in the raw image, bytes.
    pub(super) fn raw(&self, header: &Header) -> Range<u64> {
        raw(header, self.start, self.count)
    }
}

fn raw(header: &Header, first: u32, count: u32) -> Range<u64> {
    let (first, count) = (u64::from(first), u64::from(count));
    first << header.cluster_bits..((first + count) << header.cluster_bits).min(header.size)
}

/// Where everything is.
#[derive(Debug, Default)]
pub(super) struct Map {
    /// In the order of the file after [`Map::settle`].
    pub(super) runs: Vec<Run>,
    /// In the order of the raw image, likewise.
    pub(super) zeroes: Vec<Zeroes>,
}

impl Map {
    /// One more guest cluster. Each comes once.
    pub(super) fn push(&mut self, guest: u32, mapping: Mapping, header: &Header) {
        let Some(run) = Run::new(guest, mapping) else { return self.push_zeroes(guest, 1) };
        if !self.runs.last_mut().is_some_and(|last| last.join(&run, header)) {
            self.runs.push(run);
        }
    }

    /// Guest clusters that are not allocated.
    pub(super) fn push_zeroes(&mut self, start: u32, count: u32) {
        match self.zeroes.last_mut() {
            Some(last) if last.start + last.count == start => last.count += count,
            _ => self.zeroes.push(Zeroes { start, count }),
        }
    }

    /// Sorts everything, and refuses bytes of the file that are used twice. `tables` are sorted.
    pub(super) fn settle(&mut self, tables: &[Range<u64>], header: &Header) -> Result<(), String> {
        self.zeroes.sort_unstable_by_key(|zeroes| zeroes.start);
        self.zeroes.dedup_by(|next, last| {
            let goes_on = last.start + last.count == next.start;
            last.count += if goes_on { next.count } else { 0 };
            goes_on
        });
        self.runs.sort_unstable_by_key(Run::start);
        for (last, next) in self.runs.iter().zip(self.runs.iter().skip(1)) {
            let free = if next.compressed() { last.free(header) } else { last.stored(header).end };
            if next.start() < free {
                return Err(format!(
                    "it is corrupt: the guest offsets {} and {} share the bytes at {} of the file",
                    last.raw(header).start,
                    next.raw(header).start,
                    next.start()
                ));
            }
        }
        for table in tables {
            let at = self.runs.partition_point(|run| run.stored(header).end <= table.start);
            if let Some(run) = self.runs.get(at).filter(|run| run.start() < table.end) {
                return Err(format!(
                    "it is corrupt: the guest offset {} lies in the table at {} of the file",
                    run.raw(header).start,
                    table.start
                ));
            }
        }
        self.runs.dedup_by(|next, last| last.join(next, header));
        self.runs.shrink_to_fit();
        self.zeroes.shrink_to_fit();
        Ok(())
    }

    /// Takes the first guest clusters out: what is stored of them, in the order of the file.
    pub(super) fn take_head(&mut self, clusters: u32, header: &Header) -> Vec<Run> {
        let mut head = Vec::new();
        self.runs.retain_mut(|run| {
            let inside = clusters.saturating_sub(run.guest).min(run.clusters());
            if inside == 0 {
                return true;
            }
            if inside == run.clusters() {
                head.push(*run);
                return false;
            }
            head.push(Run { count: inside, ..*run });
            run.guest += inside;
            run.count -= inside;
            run.host += u64::from(inside) << header.cluster_bits;
            true
        });
        self.zeroes.retain_mut(|zeroes| {
            let inside = clusters.saturating_sub(zeroes.start).min(zeroes.count);
            zeroes.start += inside;
            zeroes.count -= inside;
            zeroes.count > 0
        });
        head
    }

    /// Marks where the two orders agree. Whether they do so often enough that a bounded [`WINDOW`] puts everything in
    /// the order of the raw image.
    pub(super) fn mark_order(&mut self, header: &Header) -> bool {
        let mut least = u32::MAX;
        let mut least_after: Vec<u32> = self
            .runs
            .iter()
            .rev()
            .map(|run| {
                least = least.min(run.guest);
                least
            })
            .collect();
        let mut most_before = None;
        let (mut in_order, mut window, mut runs) = (true, 0, 0);
        for run in &mut self.runs {
            let cut = least_after.pop().is_some_and(|least| most_before.is_none_or(|most| most < least));
            if cut {
                run.host |= CUT;
                (window, runs) = (0, 0);
            }
            let raw = run.raw(header);
            window += raw.end - raw.start;
            runs += 1;
            in_order &= runs == 1 || window <= WINDOW;
            most_before = most_before.max(Some(run.guest));
        }
        in_order
    }
}
