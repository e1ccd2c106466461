//! Which packets of a session came already (6.12.13). Pure.

/// Packets before the newest that are still taken.
const BEHIND: u32 = 16;
/// Packets that may be lost between two that arrive.
const AHEAD: u32 = 1024;

/// The sequence numbers that were seen.
#[derive(Debug, Default)]
pub(super) struct Window {
    newest: u32,
    /// Bit n: the number `newest - n` was seen.
    seen: u32,
}

impl Window {
    /// Whether a packet with that number is new; it is seen then. Only for packets whose code is right.
    pub(super) fn take(&mut self, sequence: u32) -> bool {
        // Zero is for packets outside sessions.
        if sequence == 0 {
            return false;
        }
        let ahead = sequence.wrapping_sub(self.newest);
        if self.newest == 0 || (1..=AHEAD).contains(&ahead) {
            // Numbers before the first are not taken for seen: it may have overtaken them.
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.newest = sequence;
            return true;
        }
        let behind = self.newest.wrapping_sub(sequence);
        let bit = 1 << (behind & 31);
        let new = behind <= BEHIND && self.seen & bit == 0;
        if new {
            self.seen |= bit;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let mut window = Window::default();
        let taken: Vec<bool> = [5, 5, 4, 7, 6, 6, 4, 0, 30, 13, 14, 14, 5].map(|n| window.take(n)).to_vec();
        assert_eq!(taken, [true, false, true, true, true, false, false, false, true, false, true, false, false]);
        assert!(!window.take(30 + AHEAD + 1), "too far ahead");
    }

    #[test]
    fn numbers_go_on_after_the_largest() {
        let mut window = Window::default();
        assert!(window.take(u32::MAX - 1) && window.take(u32::MAX) && window.take(1));
        assert!(!window.take(u32::MAX) && !window.take(1));
    }
}
