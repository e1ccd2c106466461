//! Where an image's stored bytes come from.

use std::{ops::Range, sync::atomic::AtomicBool};

use crate::WriteError;

/// A stream of stored bytes, pulled by the fetch thread. Mends broken connections by itself, within bounds.
pub trait ImageSource: Send {
    /// What to call it in messages: its URL.
    fn name(&self) -> &str;
    /// Fills a part of `buffer`, at least one byte; 0 at the end. Ends early once `stop` is set.
    ///
    /// # Errors
    /// [`WriteError`]; an end before the stated length is [`WriteError::Truncated`], never 0.
    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError>;
    /// How many bytes there are in all, once known.
    fn total(&self) -> Option<u64>;
    /// From now on reads give the stored bytes of `range` and then 0 (end [`u64::MAX`]: to the end). A new source reads
    /// `0..u64::MAX`.
    ///
    /// # Errors
    /// [`WriteError`].
    fn seek(&mut self, range: Range<u64>, stop: &AtomicBool) -> Result<(), WriteError> {
        // Sources learn it one by one; until then the formats that need it are not offered.
        let _ = stop;
        Err(WriteError::Internal(format!("{} cannot be read from {}", self.name(), range.start)))
    }
}
