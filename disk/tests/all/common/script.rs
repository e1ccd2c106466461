//! One fault at a chosen operation of an install: of which kind the operation is, in which part of the install, the
//! how-manieth of those, and what goes wrong from there on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use std::{fmt, io};

use landfall_disk::RECEIPT_PLACE;

/// What a device is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Read,
    Write,
    Flush,
    /// Make zeroes.
    Zero,
    /// Read the partition table again.
    Reread,
}

/// Which part of an install an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Region {
    /// The destructive start: tables and signatures.
    Metadata,
    Body,
    /// Tables and LBA 0.
    Commit,
    /// The receipt's place, and the flushes after it was written.
    Receipt,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    EioOnce,
    /// From then on at every operation of the kind.
    EioAlways,
    /// From then on at every write and every request for zeroes.
    NoSpace,
    /// It does not come back until [`Script::release`].
    Hang,
    /// Half of it is done. Reads and writes say so; a request for zeroes says that all of it was.
    Short,
    /// From then on everything fails, as of a disk that was pulled.
    Gone,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Zero, Self::Reread];
}

impl Region {
    pub(crate) const ALL: [Self; 4] = [Self::Metadata, Self::Body, Self::Commit, Self::Receipt];
}

impl Trouble {
    pub(crate) const ALL: [Self; 6] =
        [Self::EioOnce, Self::EioAlways, Self::NoSpace, Self::Hang, Self::Short, Self::Gone];

    /// Some operations have no halves.
    pub(crate) fn can_strike(self, operation: Operation) -> bool {
        self != Self::Short || !matches!(operation, Operation::Flush | Operation::Reread)
    }
}

/// The operation that the fault strikes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strike {
    pub(crate) operation: Operation,
    pub(crate) region: Region,
    /// Counted from 0.
    pub(crate) nth: usize,
    pub(crate) trouble: Trouble,
}

/// What the device is to do.
pub(crate) enum Verdict {
    Go,
    Half,
    Fail(io::Error),
}

#[derive(Debug, Default)]
struct State {
    /// How many flushes there were when the commit began.
    commit: Option<usize>,
    counts: BTreeMap<(Operation, Region), usize>,
    struck: bool,
    hanging: bool,
    released: bool,
}

/// Counts operations, and strikes one of them.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// How many flushes a whole install has that reads nothing back; `None`: nothing is counted.
    flushes: Option<usize>,
    strike: Option<Strike>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The flushes of a commit: of the image's ends, the backup table, the table with the receipt, LBA 0.
const COMMIT_FLUSHES: usize = 4;
/// No wait is longer.
const BOUND: Duration = Duration::from_secs(60);

impl Script {
    /// For an install that has so many flushes in all, the first of them after the receipt with state intent; those between
    /// which the body is read back do not count.
    pub(crate) fn new(flushes: usize, strike: Option<Strike>) -> Self {
        Self { flushes: Some(flushes), strike, ..Self::default() }
    }

    /// How many operations there were.
    pub(crate) fn counts(&self) -> BTreeMap<(Operation, Region), usize> {
        self.state.lock().unwrap().counts.clone()
    }

    /// Whether the fault was met.
    pub(crate) fn struck(&self) -> bool {
        self.state.lock().unwrap().struck
    }

    /// Waits until an operation hangs; false: `over` said that none will.
    pub(crate) fn wait_hanging(&self, over: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.hanging {
            if over() {
                return false;
            }
            state = self.changed.wait_timeout(state, Duration::from_millis(5)).unwrap().0;
        }
        true
    }

    /// What hangs goes on.
    pub(crate) fn release(&self) {
        self.state.lock().unwrap().released = true;
        self.changed.notify_all();
    }

    /// An operation on these bytes begins, after so many flushes.
    pub(crate) fn begin(&self, operation: Operation, range: &Range<u64>, flushed: usize) -> Verdict {
        let Some(flushes) = self.flushes else { return Verdict::Go };
        let mut state = self.state.lock().unwrap();
        let region = region(operation, range, flushed, flushes, &mut state.commit);
        let count = state.counts.entry((operation, region)).or_default();
        let number = *count;
        *count += 1;
        let Some(strike) = self.strike else { return Verdict::Go };
        let now = !state.struck && (strike.operation, strike.region, strike.nth) == (operation, region, number);
        state.struck |= now;
        let same = strike.operation == operation;
        let stores = matches!(operation, Operation::Write | Operation::Zero);
        let fail = |code| Verdict::Fail(io::Error::from_raw_os_error(code));
        match strike.trouble {
            Trouble::EioOnce if now => fail(5),
            Trouble::EioAlways if now || state.struck && same => fail(5),
            Trouble::NoSpace if now || state.struck && (same || stores) => fail(28),
            Trouble::Gone if state.struck => fail(19),
            Trouble::Short if now => Verdict::Half,
            Trouble::Hang if now => {
                state.hanging = true;
                self.changed.notify_all();
                drop(self.changed.wait_timeout_while(state, BOUND, |state| !state.released).unwrap());
                Verdict::Go
            }
            _ => Verdict::Go,
        }
    }
}

fn region(
    operation: Operation, range: &Range<u64>, flushed: usize, flushes: usize, commit: &mut Option<usize>,
) -> Region {
    let body = flushes - COMMIT_FLUSHES - 1;
    let in_place = RECEIPT_PLACE.start <= range.start && range.end <= RECEIPT_PLACE.end;
    if operation == Operation::Write && flushed > body && range.end <= RECEIPT_PLACE.end {
        // The body leaves out the first MiB.
        commit.get_or_insert(flushed);
    }
    match operation {
        Operation::Reread => Region::Commit,
        Operation::Flush if flushed == 0 || commit.is_some_and(|before| flushed == before + 2) => Region::Receipt,
        Operation::Read | Operation::Write | Operation::Zero if in_place => Region::Receipt,
        _ if flushed < body => Region::Metadata,
        _ if commit.is_none() => Region::Body,
        _ => Region::Commit,
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Zero => "make zeroes",
            Self::Reread => "re-read table",
        })
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Metadata => "metadata",
            Self::Body => "body",
            Self::Commit => "commit",
            Self::Receipt => "receipt",
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EioOnce => "EIO once",
            Self::EioAlways => "EIO always",
            Self::NoSpace => "ENOSPC",
            Self::Hang => "hang",
            Self::Short => "short",
            Self::Gone => "disappears",
        })
    }
}
