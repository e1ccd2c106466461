//! Following a disk that erases itself. It cannot be stopped, so neither a cancel nor a lost lease ends the wait: the end is
//! known then, and what began is not begun again.

use std::{thread, time::Duration};

use super::commands::Refused;

/// What a disk says of its erasure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// How much is done, of 65536.
    UnderWay(u64),
    /// It has completed, or there is none.
    Ended,
    /// It ended without success, in words.
    Failed(String),
}

/// How to follow it.
pub(super) struct Follow<'a> {
    /// Between two looks.
    pub(super) pause: Duration,
    /// Gets how much is done, of 65536.
    pub(super) heard: &'a dyn Fn(u64),
}

/// Looks in a row that may fail: while a disk erases itself, a bus may be reset or the controller busy.
const MISSES: u32 = 30;

impl Follow<'_> {
    /// Waits for the end.
    ///
    /// # Errors
    /// [`Refused`]: it failed, or the disk has not answered [`MISSES`] times in a row.
    pub(super) fn to_end(&self, look: impl Fn() -> Result<State, Refused>) -> Result<(), Refused> {
        let mut missed = 0;
        loop {
            match look() {
                Ok(State::Ended) => return Ok(()),
                Ok(State::Failed(words)) => return Err(Refused::Answer(words)),
                Ok(State::UnderWay(part)) => {
                    missed = 0;
                    (self.heard)(part);
                }
                Err(refused) => {
                    missed += 1;
                    if missed >= MISSES {
                        return Err(refused);
                    }
                }
            }
            thread::sleep(self.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_disk_that_misses_some_looks_is_followed() {
        let looks = Cell::new(0);
        let answers = |bad: u32| {
            looks.set(0);
            Follow { pause: Duration::ZERO, heard: &|_| () }.to_end(|| {
                looks.set(looks.get() + 1);
                let busy = || Err(Refused::Answer("busy".into()));
                if looks.get() > bad { Ok(State::Ended) } else { busy() }
            })
        };
        answers(MISSES - 1).unwrap();
        assert_eq!(answers(MISSES).unwrap_err().to_string(), "busy");
    }
}
