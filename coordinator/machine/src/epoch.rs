//! Epochs: the number that fences every older session of a machine.

use std::fmt;

use landfall_api::{ErrorCode, Problem};

/// How far above the newest epoch that the store knows an agent may claim to have held one. A store put back from a copy
/// is behind by the sessions since; a machine that opens one a second needs a century for as many as this.
const MAX_JUMP: u64 = 1 << 32;

/// The number of a session: each is higher than every older one's of its machine. 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// As a document or a message has it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// As a document or a message has it.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next one, above the newest that the store knows and above what the agent held: a store put back from a copy
    /// has forgotten that one.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidDocument` if the agent claims an epoch that no coordinator can have given.
    pub fn following(known: Self, held: Self) -> Result<Self, Problem> {
        let newest = known.max(held).0;
        if newest > known.0.saturating_add(MAX_JUMP) {
            let message = format!("the agent says that it held epoch {held}; the newest given here is {known}");
            return Err(Problem::new(ErrorCode::InvalidDocument, message)
                .hint("restart the machine: a new agent process has held none"));
        }
        let none = || Problem::new(ErrorCode::InvalidDocument, "the agent's epoch is the largest possible one");
        newest.checked_add(1).map(Self).ok_or_else(none)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_epoch_is_followed_within_a_bound() {
        let following = |known, held| Epoch::following(Epoch(known), Epoch(held)).map(Epoch::get);
        assert_eq!(following(3, 0).unwrap(), 4);
        assert_eq!(following(3, 7).unwrap(), 8, "a store put back from a copy");
        assert_eq!(following(3, 3 + MAX_JUMP).unwrap(), 4 + MAX_JUMP);
        assert!(following(3, 4 + MAX_JUMP).is_err());
        assert!(following(0, u64::MAX - 1).is_err(), "it would leave no epoch for any other agent");
        assert!(following(u64::MAX, 0).is_err());
    }
}
