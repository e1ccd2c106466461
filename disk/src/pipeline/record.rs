//! What was written, and how to recognise it on the device.

use std::{ops::Range, vec};

use xxhash_rust::xxh3::xxh3_128;

use super::zeroes::{is_zero, places};

/// Most bytes that are read at once; a run of made zeroes up to this length is read in full.
pub(super) const STEP: u64 = 1 << 20;

/// Something that was written, and how to recognise it. The sum (XXH3, 128 bits) guards against a device that fails,
/// not against one that is hostile: such a device could answer one thing now and another when it is booted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    Data {
        offset: u64,
        length: u32,
        sum: u128,
    },
    /// Zeroes that were written.
    Zeroes(Range<u64>),
    /// Zeroes that the device made: of a run longer than [`STEP`], samples are read.
    Made(Range<u64>),
}

/// What is read at once, and what must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) offset: u64,
    /// Bytes.
    pub(super) length: usize,
    /// `None`: zeroes.
    sum: Option<u128>,
}

impl Step {
    /// Whether these bytes are the ones that were written.
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        self.sum.map_or_else(|| is_zero(bytes), |sum| xxh3_128(bytes) == sum)
    }
}

impl Record {
    /// Of bytes that were written; no more than [`STEP`].
    pub(super) fn of(offset: u64, bytes: &[u8]) -> Self {
        Self::Data { offset, length: bytes.len() as u32, sum: xxh3_128(bytes) }
    }

    /// Which part of the device it covers.
    pub(super) fn range(&self) -> Range<u64> {
        match self {
            Self::Data { offset, length, .. } => *offset..*offset + u64::from(*length),
            Self::Zeroes(range) | Self::Made(range) => range.clone(),
        }
    }

    /// How many bytes are read of it.
    pub(super) fn bytes(&self) -> u64 {
        self.steps().map(|step| step.length as u64).sum()
    }

    /// What is read of it, one after another.
    pub(super) fn steps(&self) -> Steps {
        let range = self.range();
        let rest = match self {
            Self::Data { sum, .. } => Rest::Once(Some(*sum)),
            Self::Made(_) if range.end - range.start > STEP => Rest::Places(places(&range, true).into_iter()),
            Self::Zeroes(_) | Self::Made(_) => Rest::Once(None),
        };
        Steps { range, rest }
    }
}

/// The steps of one record: long runs in parts, which are not kept in memory.
#[derive(Debug)]
pub(super) struct Steps {
    /// What is still to be read.
    range: Range<u64>,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    /// All of it; data has one sum.
    Once(Option<u128>),
    /// Here and there.
    Places(vec::IntoIter<Range<u64>>),
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let range = match &mut self.rest {
            Rest::Places(places) => places.next()?,
            Rest::Once(_) => {
                let end = self.range.end.min(self.range.start + STEP);
                let range = self.range.start..end;
                self.range.start = end;
                range
            }
        };
        let sum = match self.rest {
            Rest::Once(sum) => sum,
            Rest::Places(_) => None,
        };
        let length = (range.end - range.start) as usize;
        (length > 0).then_some(Step { offset: range.start, length, sum })
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn covered(record: &Record) -> Vec<Range<u64>> {
        record.steps().map(|step| step.offset..step.offset + step.length as u64).collect()
    }

    #[test]
    fn what_was_written_is_read_in_full_and_in_steps() {
        let data = Record::of(10 * STEP, &[1; 512]);
        assert_eq!(covered(&data), slice::from_ref(&(10 * STEP..10 * STEP + 512)));
        let zeroes = covered(&Record::Zeroes(512..2 * STEP + 1024));
        assert_eq!(zeroes, [512..STEP + 512, STEP + 512..2 * STEP + 512, 2 * STEP + 512..2 * STEP + 1024]);
        assert_eq!(covered(&Record::Made(512..STEP + 512)), slice::from_ref(&(512..STEP + 512)));
    }

    #[test]
    fn long_made_zeroes_are_sampled_at_both_ends_and_between() {
        for length in [STEP + 512, 5 * STEP, 64 * STEP] {
            let range = 1536..1536 + length;
            let steps = covered(&Record::Made(range.clone()));
            assert_eq!(steps.len(), 18, "{length}");
            assert!(
                steps.iter().any(|step| step.start == range.start) && steps.iter().any(|step| step.end == range.end)
            );
            assert!(steps.iter().all(|step| range.start <= step.start && step.end <= range.end), "{steps:?}");
            let mut ends: Vec<_> = steps.iter().map(|step| step.start).collect();
            ends.sort_unstable();
            assert!(ends.windows(2).all(|pair| pair[1] - pair[0] <= length / 8), "{length}: {ends:?}");
        }
    }

    #[test]
    fn a_step_knows_its_bytes() {
        let step = Record::of(0, &[7; 4096]).steps().next().unwrap();
        assert!(step.is(&[7; 4096]) && !step.is(&[8; 4096]));
        let step = Record::Zeroes(0..4096).steps().next().unwrap();
        assert!(step.is(&[0; 4096]) && !step.is(&[7; 4096]));
    }
}
