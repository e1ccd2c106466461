//! Following a disk that erases itself. It cannot be stopped, so neither a cancel nor a lost lease ends the wait: the end is
//! known then, and what began is not begun again.

use std::{thread, time::Duration};

use crate::commands::Refused;

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
/// Looks in a row that may show no progress: a day, one each second. The largest disks take longer than a day, and count up to
/// 65536 meanwhile.
const STILL: u32 = 86_400;

impl Follow<'_> {
    /// Waits for the end.
    ///
    /// # Errors
    /// [`Refused`]: it failed, or the disk has not answered [`MISSES`] times in a row, or has shown no progress [`STILL`] times.
    pub(super) fn to_end(&self, look: impl Fn() -> Result<State, Refused>) -> Result<(), Refused> {
        let (mut missed, mut still, mut last) = (0, 0_u32, None);
        loop {
            match look() {
                Ok(State::Ended) => return Ok(()),
                Ok(State::Failed(words)) => return Err(Refused::Answer(words)),
                Ok(State::UnderWay(part)) => {
                    missed = 0;
                    still = if last.replace(part) == Some(part) { still + 1 } else { 0 };
                    if still >= STILL {
                        let words = format!("the disk reports no progress for a day, at {} %", (part * 100) >> 16);
                        return Err(Refused::Answer(words));
                    }
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
    fn a_disk_without_progress_is_not_followed_for_ever() {
        let looks = Cell::new(0);
        let follow = |moves: bool| {
            looks.set(0_u64);
            Follow { pause: Duration::ZERO, heard: &|_| () }.to_end(|| {
                looks.set(looks.get() + 1);
                let part = if moves { looks.get() / 1000 } else { 1 << 15 };
                Ok(if looks.get() > 2 * u64::from(STILL) { State::Ended } else { State::UnderWay(part) })
            })
        };
        follow(true).unwrap();
        let refused = follow(false).unwrap_err().to_string();
        assert!(refused.contains("no progress for a day, at 50 %"), "{refused}");
    }

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
