//! Decoding tables of canonical Huffman codes (RFC 1951, 3.2.2): a primary table indexed by the next bits, and behind it
//! subtables for codes that are longer.

/// Bits of the longest code.
pub(super) const LONGEST_CODE: u32 = 15;
const LONGEST: usize = LONGEST_CODE as usize;

/// Set: a literal, as the value.
pub(super) const LITERAL: u32 = 1 << 31;
/// Set: neither literal nor length nor distance.
pub(super) const SPECIAL: u32 = 1 << 30;
/// Set together with [`SPECIAL`]: the block ends. Not set: a subtable, which begins at the value.
pub(super) const END: u32 = 1 << 29;
/// Where an entry's value begins. The largest has 15 bits.
pub(super) const VALUE: u32 = 10;
const VALUE_MASK: u32 = 0x7fff;

/// What the next bits mean. Besides the flags: bits 0 to 5 are the bits to consume, extra ones included; bits 6 to 9
/// those of the code alone; from [`VALUE`] on a literal, or the base of a length or distance. 0: no such code.
pub(super) type Entry = u32;

/// Bits to consume.
#[inline(always)]
pub(super) fn consumed(entry: Entry) -> u32 {
    entry & 0x3f
}

/// Bits of the code alone.
#[inline(always)]
pub(super) fn code_bits(entry: Entry) -> u32 {
    entry >> 6 & 0xf
}

/// The byte that a literal is.
#[inline(always)]
pub(super) fn literal_of(entry: Entry) -> u8 {
    (entry >> VALUE) as u8
}

/// The value of a length or distance: its base and the extra bits behind its code.
#[inline(always)]
pub(super) fn value(entry: Entry, bits: u64) -> usize {
    let (all, code) = (consumed(entry), code_bits(entry));
    let extra = (bits & ((1 << all) - 1)) >> code;
    (entry >> VALUE & VALUE_MASK) as usize + extra as usize
}

/// A code's tables: `PRIMARY` bits index the first.
pub(super) struct Table<const PRIMARY: usize, const ENTRIES: usize> {
    entries: Box<[Entry; ENTRIES]>,
    /// Bits that index a subtable.
    sub: usize,
}

impl<const PRIMARY: usize, const ENTRIES: usize> Table<PRIMARY, ENTRIES> {
    pub(super) fn new() -> Self {
        Self { entries: Box::new([0; ENTRIES]), sub: 0 }
    }

    /// The entry of the next bits.
    #[inline(always)]
    pub(super) fn at(&self, bits: u64) -> Entry {
        self.entries[bits as usize & ((1 << PRIMARY) - 1)]
    }

    /// The entry a subtable has for the next bits, of which [`Table::at`] gave `entry`.
    #[inline(always)]
    pub(super) fn below(&self, entry: Entry, bits: u64) -> Entry {
        let start = (entry >> VALUE & VALUE_MASK) as usize;
        self.entries[start + ((bits >> PRIMARY) as usize & ((1 << self.sub) - 1))]
    }

    /// Makes the tables of the code with these lengths. `symbol` gives the entry of a symbol but for its
    /// code's length; none: no stream may use it.
    /// False: there is no such code.
    pub(super) fn build(&mut self, lengths: &[u8], symbol: impl Fn(usize) -> Option<Entry>) -> bool {
        let mut count = [0_usize; LONGEST + 1];
        for length in lengths {
            count[usize::from(*length) & LONGEST] += 1;
        }
        count[0] = 0;
        let longest = (1..=LONGEST).rev().find(|length| count[*length] > 0).unwrap_or(0);
        let (mut next, mut code, mut left) = ([0_usize; LONGEST + 1], 0, 1_isize);
        for length in 1..=LONGEST {
            next[length] = code;
            code = (code + count[length]) << 1;
            left = (left << 1) - count[length] as isize;
            if left < 0 {
                return false;
            }
        }
        // Not complete: only without any code, or with one of a single bit (3.2.7).
        if left > 0 && longest > 1 {
            return false;
        }
        self.entries[..1 << PRIMARY].fill(0);
        self.sub = longest.saturating_sub(PRIMARY);
        let mut end = 1 << PRIMARY;
        for (i, length) in
            lengths.iter().map(|length| usize::from(*length)).enumerate().filter(|(_, length)| *length > 0)
        {
            let reversed = next[length].reverse_bits() >> (usize::BITS as usize - length);
            next[length] += 1;
            let Some(entry) = symbol(i) else { continue };
            let entry = entry + (length as u32) + ((length as u32) << 6);
            let (start, size, index, step) = if length <= PRIMARY {
                (0, 1 << PRIMARY, reversed, 1 << length)
            } else {
                let slot = reversed & ((1 << PRIMARY) - 1);
                if self.entries[slot] == 0 {
                    if end + (1 << self.sub) > ENTRIES {
                        return false;
                    }
                    self.entries[slot] = SPECIAL | (end as u32) << VALUE;
                    self.entries[end..end + (1 << self.sub)].fill(0);
                    end += 1 << self.sub;
                }
                let start = (self.entries[slot] >> VALUE & VALUE_MASK) as usize;
                (start, 1 << self.sub, reversed >> PRIMARY, 1 << (length - PRIMARY))
            };
            for at in (index..size).step_by(step) {
                self.entries[start + at] = entry;
            }
        }
        true
    }
}

/// Entry of a literal, the end of the block, or a length (3.2.5). Two symbols that no block may use are no code.
pub(super) fn literal_or_length(symbol: usize) -> Option<Entry> {
    const BASE: [u16; 29] = [
        3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227,
        258,
    ];
    const EXTRA: [u8; 29] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
    match symbol {
        0..256 => Some(LITERAL | (symbol as u32) << VALUE),
        256 => Some(SPECIAL | END),
        _ => {
            let (base, extra) = (BASE.get(symbol - 257)?, EXTRA.get(symbol - 257)?);
            Some(u32::from(*base) << VALUE | u32::from(*extra))
        }
    }
}

/// Entry of a distance (3.2.5).
pub(super) fn distance(symbol: usize) -> Option<Entry> {
    match symbol as u32 {
        code @ 0..4 => Some((code + 1) << VALUE),
        code @ 4..30 => {
            let extra = code / 2 - 1;
            Some((((2 + code % 2) << extra) + 1) << VALUE | extra)
        }
        _ => None,
    }
}

/// Entry of a code length's code (3.2.7).
pub(super) fn code_length(symbol: usize) -> Option<Entry> {
    Some((symbol as u32) << VALUE)
}
