//! Random numbers from a seed: the same seed gives the same numbers on every machine, for ever.

/// SplitMix64 (Steele, Lea and Flood, 2014): one word of state, every seed is equally good.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// The next number; all are equally likely.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `limit`; 0 if that is 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }
    /// True in `of` out of a hundred.
    pub const fn percent(&mut self, of: u64) -> bool {
        self.below(100) < of
    }
    /// Another source, for code whose draws must not change this sequence.
    pub const fn split(&mut self) -> Self {
        Self(self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_and_another_seed_another() {
        let draw = |seed| (0..8).map(|_| Chance::new(seed).next()).collect::<Vec<_>>();
        let mut one = Chance::new(1);
        let sequence: Vec<_> = (0..8).map(|_| one.next()).collect();
        assert_ne!(draw(1), sequence, "it moves on");
        assert_ne!(Chance::new(1).next(), Chance::new(2).next());
        assert_eq!(Chance::new(1).next(), sequence[0]);
        assert!((0..1000).all(|_| one.below(7) < 7) && one.below(0) == 0);
    }
}
