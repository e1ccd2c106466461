//! The newest entries of a BMC's event log, by whatever clock it has. Pure.

use jiff::{SignedDuration, Timestamp};

/// Entries that are shown.
const MAX_ENTRIES: usize = 3;
/// A BMC notes what led to a start a moment before it, and its clock is not exact.
const ABOUT: SignedDuration = SignedDuration::from_secs(60);

/// An entry that says more than that all is well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    created: Timestamp,
    line: String,
}

/// What entries are looked for: from when on, until when, and how far the BMC's clock is ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) since: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) ahead: SignedDuration,
}

impl Span {
    /// An entry that was made when the BMC's clock showed `created`, if it is one of those.
    pub(crate) fn entry(&self, created: Timestamp, line: String) -> Option<Entry> {
        let created = created.checked_sub(self.ahead).ok()?;
        let is_one = created.duration_since(self.since) >= -ABOUT && created.duration_since(self.now) <= ABOUT;
        is_one.then_some(Entry { created, line })
    }
}

/// The newest of them, oldest first, each once.
pub(crate) fn newest(mut entries: Vec<Entry>) -> Vec<String> {
    entries.sort();
    let mut lines: Vec<String> = Vec::new();
    for entry in entries.into_iter().rev() {
        if lines.len() < MAX_ENTRIES && !lines.contains(&entry.line) {
            lines.push(entry.line);
        }
    }
    lines.reverse();
    lines
}
