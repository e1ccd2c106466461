//! The threads that write: a deep queue for the device, while decoding goes on. Each takes a whole block, leaves out what
//! the disk already holds or can make itself, and writes the rest past the page cache.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::behind::{Behind, Left, Notes};
use super::manner::Manner;
use super::spawn;
use super::zeroes::is_zero;
use crate::buffer::{Buffer, Pool};
use crate::{WriteError, exact};

/// Writes in flight at once: enough for an NVMe drive to merge and reorder, few enough to be cheap in memory.
const THREADS: usize = 4;
/// Blocks waiting for a thread.
const DEPTH: usize = 4;
/// A run of zeroes shorter than this is cheaper to write. A multiple of every sector size.
const GRAIN: usize = 64 * 1024;

struct Job {
    offset: u64,
    bytes: Buffer,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    written: AtomicU64,
    unchanged: AtomicU64,
    failed: AtomicBool,
    error: Mutex<Option<WriteError>>,
}

impl Shared {
    fn fail(&self, error: WriteError) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }
}

/// The running threads.
pub(super) struct Writers<'scope> {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    behind: Option<Behind<'scope>>,
    notes: Notes,
}

/// What they did; none of it is flushed yet.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Bytes really written.
    pub(super) written: u64,
    /// Bytes that were on the disk already.
    pub(super) unchanged: u64,
    /// What must still be read back; `None`: nothing is.
    pub(super) left: Option<Left>,
}

impl<'scope> Writers<'scope> {
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>, manner: &'scope Manner<'scope>, blocks: &Arc<Pool>,
    ) -> Result<Self, WriteError> {
        let (jobs, queue) = bounded::<Job>(DEPTH);
        let shared = Arc::new(Shared::default());
        let failing = Arc::clone(&shared);
        let behind = manner.read_back.then(|| Behind::start(scope, manner, move |error| failing.fail(error)));
        let (behind, notes) = behind.transpose()?.unzip();
        let notes = notes.unwrap_or_default();
        let mut threads = Vec::with_capacity(THREADS);
        for _ in 0..THREADS {
            let (queue, shared, blocks) = (queue.clone(), Arc::clone(&shared), Arc::clone(blocks));
            let notes = notes.clone();
            let run = move || work(manner, &queue, &shared, &blocks, &notes);
            threads.push(spawn(scope, "write", run)?);
        }
        Ok(Self { jobs, shared, threads, behind, notes })
    }

    /// Hands a block to the threads; whole sectors.
    ///
    /// # Errors
    /// The first that any thread met.
    pub(super) fn write(&self, offset: u64, bytes: Buffer) -> Result<(), WriteError> {
        if self.jobs.send(Job { offset, bytes }).is_err() {
            return Err(self.error());
        }
        self.works()
    }

    /// Whether all threads go on.
    ///
    /// # Errors
    /// The first that any thread met.
    pub(super) fn works(&self) -> Result<(), WriteError> {
        if self.shared.failed.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    /// Where what others write is noted, to be read back with the rest.
    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Waits until everything handed over is written.
    ///
    /// # Errors
    /// The first that any thread met.
    pub(super) fn finish(self) -> Result<Tally, WriteError> {
        let Self { jobs, shared, threads, behind, notes } = self;
        drop(jobs);
        if let Some(behind) = &behind {
            behind.close();
        }
        let mut whole = true;
        for thread in threads {
            whole &= thread.join().is_ok();
        }
        drop(notes);
        let left = behind.map(Behind::finish).transpose()?;
        if let Some(error) = shared.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        if !whole {
            return Err(WriteError::Internal("a writing thread ended without a result".into()));
        }
        Ok(Tally {
            written: shared.written.load(Ordering::Acquire),
            unchanged: shared.unchanged.load(Ordering::Acquire),
            left,
        })
    }

    fn error(&self) -> WriteError {
        let error = self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.unwrap_or_else(|| WriteError::Internal("the writing threads ended without a result".into()))
    }
}

fn work(manner: &Manner<'_>, queue: &Receiver<Job>, shared: &Shared, blocks: &Pool, notes: &Notes) {
    let mut scratch = manner.compare.then(|| blocks.take());
    for job in queue {
        let over = manner.stop.load(Ordering::Acquire) || shared.failed.load(Ordering::Acquire);
        let done = if over { Ok(()) } else { block(manner, shared, &job, scratch.as_mut()) };
        match done {
            Ok(()) if over => {}
            // Only now: a flush that comes later covers it.
            Ok(()) => notes.data(job.offset, job.bytes.data()),
            Err(error) => shared.fail(error),
        }
        blocks.give(job.bytes);
    }
    if let Some(scratch) = scratch {
        blocks.give(scratch);
    }
}

fn block(manner: &Manner<'_>, shared: &Shared, job: &Job, scratch: Option<&mut Buffer>) -> Result<(), WriteError> {
    let data = job.bytes.data();
    let before = match scratch {
        Some(scratch) => {
            scratch.len = data.len();
            let there = &mut scratch.space()[..data.len()];
            // An unreadable sector counts as wrong; a write makes the disk replace it.
            manner.device.read_at(job.offset, there).is_ok().then_some(&*there)
        }
        None => None,
    };
    let (mut written, mut unchanged) = (0, 0);
    // Neighbouring grains of one kind become one write, or one run of zeroes.
    let mut run: Option<(Kind, Range<usize>)> = None;
    let mut at = 0;
    for grain in data.chunks(GRAIN) {
        let range = at..at + grain.len();
        at = range.end;
        let kind = match before {
            Some(before) if before[range.clone()] == *grain => Kind::Right,
            _ if is_zero(grain) => Kind::Zero,
            _ => Kind::Data,
        };
        match &mut run {
            Some((same, before)) if *same == kind => before.end = range.end,
            _ => {
                if let Some((kind, range)) = run.replace((kind, range)) {
                    put(manner, job, kind, range, &mut written, &mut unchanged)?;
                }
            }
        }
    }
    if let Some((kind, range)) = run {
        put(manner, job, kind, range, &mut written, &mut unchanged)?;
    }
    manner.meter.raw(data.len() as u64, written);
    shared.written.fetch_add(written, Ordering::AcqRel);
    shared.unchanged.fetch_add(unchanged, Ordering::AcqRel);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Zero,
    /// On the disk already.
    Right,
}

fn put(
    manner: &Manner<'_>, job: &Job, kind: Kind, range: Range<usize>, written: &mut u64, unchanged: &mut u64,
) -> Result<(), WriteError> {
    let offset = job.offset + range.start as u64;
    let length = range.len() as u64;
    match kind {
        Kind::Right => *unchanged += length,
        Kind::Zero => *written += manner.zeroes.make(offset..offset + length)?,
        Kind::Data => {
            let bytes = &job.bytes.data()[range];
            let action = || format!("write {length} bytes at {offset} of");
            exact::write(manner.device, offset, bytes).map_err(|e| super::device_io(manner.name, action())(e))?;
            *written += length;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn a_single_byte_anywhere_is_not_zero() {
        for length in [0, 1, 2, 4096, 70_001] {
            assert!(is_zero(&vec![0; length]), "{length}");
            for at in [0, length / 2, length.saturating_sub(1)].into_iter().filter(|at| *at < length) {
                let mut bytes = vec![0; length];
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{at} of {length}");
            }
        }
    }
}
