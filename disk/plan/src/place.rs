//! Where new partitions go in the space that a disk has for them.

use std::ops::Range;

use landfall_api::SizeSpec;

/// Every new partition begins and ends at a multiple of this, bytes: a multiple of every sector size, of flash pages and of
/// the stripes of common RAID controllers. The first one begins at it: tables and receipt stand in front.
pub(crate) const ALIGN: u64 = 1 << 20;

/// One that does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unplaced {
    /// Which.
    pub(crate) index: usize,
    /// Bytes.
    pub(crate) needs: u64,
    /// Bytes in one piece.
    pub(crate) free: u64,
}

/// The pieces of `usable` outside of the `taken` ranges, cut to whole multiples of [`ALIGN`]. All are bytes.
pub(crate) fn gaps(usable: &Range<u64>, taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut taken: Vec<&Range<u64>> = taken.iter().collect();
    taken.sort_unstable_by_key(|range| range.start);
    let mut gaps = Vec::new();
    let mut at = usable.start;
    for range in taken {
        gaps.push(at..range.start.min(usable.end));
        at = at.max(range.end);
    }
    gaps.push(at..usable.end);
    let aligned = |gap: Range<u64>| gap.start.next_multiple_of(ALIGN)..gap.end / ALIGN * ALIGN;
    gaps.into_iter().map(aligned).filter(|gap| gap.start < gap.end).collect()
}

/// A place for each, in the order of `sizes`. Those of a stated size take the first gap with room for them, the one that takes
/// the rest takes what is left of the largest; in a gap they stand in their order.
pub(crate) fn place(sizes: &[SizeSpec], gaps: &[Range<u64>]) -> Result<Vec<Range<u64>>, Unplaced> {
    let total: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
    let mut free: Vec<u64> = gaps.iter().map(|gap| gap.end - gap.start).collect();
    let mut chosen: Vec<Option<(usize, u64)>> = vec![None; sizes.len()];
    let largest = |free: &[u64]| free.iter().copied().max().unwrap_or(0);
    for (index, size) in sizes.iter().enumerate() {
        let Some(needs) = bytes(*size, total) else { continue };
        let room = free.iter_mut().enumerate().find(|(_, free)| **free >= needs);
        let Some((gap, room)) = room else { return Err(Unplaced { index, needs, free: largest(&free) }) };
        *room -= needs;
        chosen[index] = Some((gap, needs));
    }
    for (index, place) in chosen.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
        // Of equal ones the first.
        let gap = free.iter().enumerate().rev().max_by_key(|(_, free)| **free).filter(|(_, free)| **free > 0);
        let Some((gap, room)) = gap.map(|(gap, room)| (gap, *room)) else {
            return Err(Unplaced { index, needs: ALIGN, free: 0 });
        };
        free[gap] = 0;
        *place = Some((gap, room));
    }
    let mut at: Vec<u64> = gaps.iter().map(|gap| gap.start).collect();
    let range = |(gap, size): (usize, u64)| {
        let start = at[gap];
        at[gap] += size;
        start..start + size
    };
    Ok(chosen.into_iter().flatten().map(range).collect())
}

/// `None`: what is left.
fn bytes(size: SizeSpec, total: u64) -> Option<u64> {
    match size {
        SizeSpec::Bytes(bytes) => Some(bytes.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)),
        SizeSpec::Percent(n) => {
            Some((u128::from(total) * u128::from(n) / 100) as u64 / ALIGN * ALIGN).map(|n| n.max(ALIGN))
        }
        SizeSpec::Rest => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_rest_may_stand_between_stated_sizes() {
        let sizes = [SizeSpec::Bytes(5 * MIB + 1), SizeSpec::Rest, SizeSpec::Percent(25)];
        let places = place(&sizes, std::slice::from_ref(&(MIB..101 * MIB))).unwrap();
        assert_eq!(places, [MIB..7 * MIB, 7 * MIB..76 * MIB, 76 * MIB..101 * MIB]);
    }

    #[test]
    fn space_around_what_stays_is_filled_gap_by_gap() {
        let gaps = gaps(&(MIB..100 * MIB), &[40 * MIB + 512..50 * MIB - 512, 60 * MIB..70 * MIB]);
        assert_eq!(gaps, [MIB..40 * MIB, 50 * MIB..60 * MIB, 70 * MIB..100 * MIB]);
        let within = [10 * MIB..50 * MIB, 20 * MIB..30 * MIB];
        assert_eq!(super::gaps(&(MIB..60 * MIB), &within), [MIB..10 * MIB, 50 * MIB..60 * MIB]);
        let sizes = [SizeSpec::Bytes(35 * MIB), SizeSpec::Bytes(8 * MIB), SizeSpec::Rest, SizeSpec::Bytes(4 * MIB)];
        let places = place(&sizes, &gaps).unwrap();
        assert_eq!(places, [MIB..36 * MIB, 50 * MIB..58 * MIB, 70 * MIB..100 * MIB, 36 * MIB..40 * MIB]);
    }

    #[test]
    fn what_does_not_fit_says_how_much_is_free() {
        let gaps = [MIB..10 * MIB, 20 * MIB..25 * MIB];
        let refused = |sizes: &[SizeSpec]| place(sizes, &gaps).unwrap_err();
        let large = [SizeSpec::Bytes(4 * MIB), SizeSpec::Bytes(6 * MIB)];
        assert_eq!(refused(&large), Unplaced { index: 1, needs: 6 * MIB, free: 5 * MIB });
        assert_eq!(refused(&[SizeSpec::Bytes(u64::MAX)]), Unplaced { index: 0, needs: u64::MAX, free: 9 * MIB });
        let full = [SizeSpec::Bytes(9 * MIB), SizeSpec::Rest, SizeSpec::Bytes(5 * MIB)];
        assert_eq!(refused(&full), Unplaced { index: 1, needs: MIB, free: 0 });
    }
}
