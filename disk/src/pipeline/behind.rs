//! Reading back behind the writers: a thread flushes what they have written and reads it while they go on, so that little
//! is left to be read at the end.
//!
//! A range is read only after a flush that began when its write had returned: what is compared is what a power cut at
//! that moment would have left. The flushes come after 1, 2, 4, … MiB and then after every [`EACH`] bytes: a disk that keeps nothing is noticed at
//! once, and a good one is not slowed by flushes. When the writers wait for the image, what they wrote is flushed and read
//! meanwhile.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::device_io;
use super::manner::Manner;
use super::record::{Record, STEP};
use super::reread::check;
use crate::{WriteError, buffer::Buffer};

/// A flush covers about so many bytes.
const EACH: u64 = 64 << 20;
/// Most records that wait, and most that one flush covers: 4 GiB of blocks of 1 MiB. The writers wait for room.
const DEPTH: usize = 4096;
/// The writers wait for the image when they wrote nothing for so long. A writer that is only slow writes a block in less.
const IDLE: Duration = Duration::from_secs(1);
/// Of the ranges that were read, at least half as many and at most so many are read again at the end.
const AGAIN: usize = 32;

/// What is left to be read when everything is written and flushed.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// What was not read so far.
    pub(super) records: Vec<Record>,
    /// Some of the data that was, evenly spread over it, the very first among it. A disk that is smaller than it says stores
    /// late writes over early ones; what was read behind the writers was right then.
    pub(super) again: Vec<Record>,
    /// Bytes that were read.
    pub(super) read: u64,
}

/// Where writers say what they wrote. Empty: nothing is read back.
#[derive(Clone, Default)]
pub(super) struct Notes(Option<Sender<Record>>);

impl Notes {
    /// These bytes were written.
    pub(super) fn data(&self, offset: u64, bytes: &[u8]) {
        self.note(|| Record::of(offset, bytes));
    }

    /// This was made zero; `written`: by writing zeroes.
    pub(super) fn zeroes(&self, range: Range<u64>, written: bool) {
        self.note(|| if written { Record::Zeroes(range) } else { Record::Made(range) });
    }

    fn note(&self, record: impl FnOnce() -> Record) {
        if let Some(notes) = &self.0 {
            // A reader that has left has failed, and has said why.
            let _ = notes.send(record());
        }
    }
}

/// The running thread.
pub(super) struct Behind<'scope> {
    thread: ScopedJoinHandle<'scope, Left>,
    /// Nothing more is to be read here.
    closing: Arc<AtomicBool>,
}

impl<'scope> Behind<'scope> {
    /// Starts it; `failed` is called with the error that ends it early.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>, manner: &'scope Manner<'scope>,
        failed: impl FnOnce(WriteError) + Send + 'scope,
    ) -> Result<(Self, Notes), WriteError> {
        let (notes, written) = bounded(DEPTH);
        let closing = Arc::new(AtomicBool::new(false));
        let closes = Arc::clone(&closing);
        let over = move || closes.load(Ordering::Acquire) || manner.stop.load(Ordering::Acquire);
        let run = move || {
            let mut left = Left::default();
            if let Err(error) = follow(manner, &written, &over, &mut left) {
                failed(error);
            }
            left
        };
        let thread = Builder::new().name("landfall-reread".into()).spawn_scoped(scope, run);
        let thread = thread.map_err(|source| WriteError::Start { what: "read-back", source })?;
        Ok((Self { thread, closing }, Notes(Some(notes))))
    }

    /// Ends it as soon as the range that it reads is read, and all [`Notes`] are dropped.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Waits for its end.
    pub(super) fn finish(self) -> Result<Left, WriteError> {
        let ended = self.thread.join();
        ended.map_err(|_| WriteError::Internal("the thread that reads back ended without a result".into()))
    }
}

fn follow(
    manner: &Manner<'_>, written: &Receiver<Record>, over: &dyn Fn() -> bool, left: &mut Left,
) -> Result<(), WriteError> {
    let mut buffer = Buffer::new(STEP as usize);
    let (mut each, mut bytes, mut sample) = (STEP, 0, Sample { one_of: 1, seen: 0 });
    loop {
        let enough = match written.recv_timeout(IDLE) {
            Ok(record) => {
                bytes += record.bytes();
                left.records.push(record);
                bytes >= each || left.records.len() >= DEPTH
            }
            Err(RecvTimeoutError::Timeout) => !left.records.is_empty(),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if over() || !enough {
            continue;
        }
        (each, bytes) = ((2 * each).min(EACH), 0);
        manner.device.flush().map_err(device_io(manner.name, "flush the image to"))?;
        let mut covered = std::mem::take(&mut left.records);
        covered.sort_unstable_by_key(|record| record.range().start);
        for record in covered {
            if over() {
                left.records.push(record);
                continue;
            }
            for step in record.steps() {
                left.read += check(manner.device, manner.name, &step, &mut buffer)?;
            }
            sample.add(record, &mut left.again);
        }
    }
}

/// Chooses what is read again: one of so many.
struct Sample {
    one_of: usize,
    seen: usize,
}

impl Sample {
    fn add(&mut self, record: Record, chosen: &mut Vec<Record>) {
        if matches!(record, Record::Data { .. }) {
            if self.seen.is_multiple_of(self.one_of) {
                chosen.push(record);
            }
            self.seen += 1;
        }
        if chosen.len() > AGAIN {
            // Every other one, the first among them.
            let mut number = 0;
            chosen.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.one_of *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_again_is_spread_over_all_of_it() {
        let (mut sample, mut chosen) = (Sample { one_of: 1, seen: 0 }, Vec::new());
        for number in 0..10_000 {
            sample.add(Record::of(number * STEP, &[1; 512]), &mut chosen);
            sample.add(Record::Made(0..STEP), &mut chosen);
            let starts: Vec<_> = chosen.iter().map(|record| record.range().start / STEP).collect();
            let apart = (number / AGAIN as u64 + 1).next_power_of_two();
            assert!(starts[0] == 0 && starts.windows(2).all(|pair| pair[1] - pair[0] == apart), "{number}: {starts:?}");
            assert!(number - starts[starts.len() - 1] < apart && starts.len() <= AGAIN, "{number}: {starts:?}");
        }
    }
}
