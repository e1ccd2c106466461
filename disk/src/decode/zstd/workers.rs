//! Threads that decode whole frames, each into a block of its own.
//!
//! What is held at once is bounded: stored bytes by [`UNDER_WAY_MAX`] and twice [`FRAME_MAX`], raw ones by a block a thread, or by [`CONTENT_MAX`]
//! where frames are larger than a block.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

use crossbeam_channel::{Receiver, Sender, bounded};
use zstd::bulk::Decompressor;

use super::{Place, frame::Header};
use crate::WriteError;
use crate::decode::{DecodeError, Limits, Sink};

/// Stored bytes of a frame that is decoded here. One is gathered, and a job waits to be complete.
pub(super) const FRAME_MAX: usize = 4 << 20;
/// Stored bytes of jobs that wait or are decoded, all together.
const UNDER_WAY_MAX: usize = 8 << 20;
/// Jobs that wait: enough that no thread ever does.
const WAITING: usize = 16;
/// Memory of a job that is kept to be used again, at most.
const SPARE_MAX: usize = 1 << 20;
/// Raw bytes of a frame that is decoded at once.
const CONTENT_MAX: u64 = 16 << 20;
/// Pieces of the image start and end at multiples of this.
const ALIGNED: u64 = 4096;

/// What the threads have in common.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Jobs done: the turn of the one that may put out its pieces next, where order matters.
    done: u64,
    /// Stored bytes of the jobs that were handed over and are not done.
    under_way: usize,
    /// The error that lies first in the file, and its turn.
    failed: Option<(u64, DecodeError)>,
}

impl Shared {
    /// What went wrong, once all threads are done.
    pub(super) fn into_error(self) -> Option<DecodeError> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).failed.map(|(_, error)| error)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    /// Waits until so many jobs are done. False: one failed.
    fn wait_for(&self, done: u64) -> bool {
        let waits = |state: &mut State| state.done < done && state.failed.is_none();
        let state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        state.failed.is_none()
    }

    /// Waits until a job of so many stored bytes may be handed over. False: one failed.
    fn reserve(&self, bytes: usize) -> bool {
        let waits = |state: &mut State| {
            state.under_way > 0 && state.under_way + bytes > UNDER_WAY_MAX && state.failed.is_none()
        };
        let mut state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        state.under_way += bytes;
        state.failed.is_none()
    }

    fn finish(&self, turn: u64, bytes: usize, result: Result<(), DecodeError>) {
        let mut state = self.lock();
        state.under_way -= bytes;
        match result {
            Ok(()) => state.done += 1,
            Err(error) if state.failed.as_ref().is_none_or(|(other, _)| turn < *other) => {
                state.failed = Some((turn, error));
            }
            Err(_) => {}
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// Frames that follow each other and are decoded by one thread: several that fit a block together, or a single one.
struct Job {
    /// How many jobs come before it.
    turn: u64,
    sink: Sink,
    stored: Vec<u8>,
    frames: Vec<Frame>,
    /// Raw bytes of all.
    raw: usize,
}

struct Frame {
    /// Where it ends in the job's stored bytes.
    end: usize,
    content: usize,
    place: Place,
}

/// Started when there is something to do for the first time.
pub(super) struct Workers<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    shared: &'scope Shared,
    limits: Limits,
    running: Option<Running>,
    pending: Option<Job>,
    /// How many jobs there were.
    jobs: u64,
}

struct Running {
    jobs: Sender<Job>,
    /// Where memory of jobs that are done comes back.
    spare: Receiver<Vec<u8>>,
}

impl<'scope, 'env> Workers<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, shared: &'scope Shared, limits: Limits) -> Self {
        let limits = Limits { threads: limits.threads.clamp(1, 16), ..limits };
        Self { scope, shared, limits, running: None, pending: None, jobs: 0 }
    }

    /// Raw bytes of the frame, if it can be decoded here: it goes to `sink`'s place as it is, and the image's start is
    /// under way.
    pub(super) fn would_take(&self, header: &Header, sink: &Sink) -> Option<usize> {
        let content = header.content_up_to(CONTENT_MAX)?;
        let takes = self.limits.threads > 1
            && content > 0
            && (content as u64).is_multiple_of(ALIGNED)
            && sink.offset().is_multiple_of(ALIGNED)
            && sink.offset() >= sink.block_size() as u64;
        takes.then_some(content)
    }

    /// Takes a frame that [`Workers::would_take`]s; `sink` goes on behind it, and `stored` is left to be used again.
    pub(super) fn give(
        &mut self, stored: &mut Vec<u8>, content: usize, place: Place, sink: &mut Sink,
    ) -> Result<(), DecodeError> {
        sink.flush()?;
        let full =
            |job: &mut Job| job.raw + content > job.sink.block_size() || job.stored.len() + stored.len() > FRAME_MAX;
        if self.pending.as_mut().is_some_and(full) {
            self.dispatch()?;
        }
        match &mut self.pending {
            Some(job) => {
                job.stored.extend_from_slice(stored);
                job.raw += content;
                job.frames.push(Frame { end: job.stored.len(), content, place });
            }
            None => {
                let spare = self.running.as_ref().and_then(|running| running.spare.try_recv().ok());
                let stored = std::mem::replace(stored, spare.unwrap_or_default());
                let frames = vec![Frame { end: stored.len(), content, place }];
                self.pending =
                    Some(Job { turn: self.jobs, sink: sink.at(sink.offset()), stored, frames, raw: content });
                self.jobs += 1;
            }
        }
        *sink = sink.at(sink.offset() + content as u64);
        Ok(())
    }

    /// Nothing waits to be complete any more; where order matters, everything so far was put out.
    pub(super) fn settle(&mut self) -> Result<(), DecodeError> {
        self.dispatch()?;
        if self.limits.ordered && !self.shared.wait_for(self.jobs) {
            return Err(DecodeError::Abandoned);
        }
        Ok(())
    }

    /// Hands over what is pending. An error here is never the cause: a thread has recorded the cause in [`Shared`].
    fn dispatch(&mut self) -> Result<(), DecodeError> {
        let Some(job) = self.pending.take() else { return Ok(()) };
        if self.running.is_none() {
            self.running = Some(self.start()?);
        }
        let sent = self.shared.reserve(job.stored.len())
            && self.running.as_ref().is_some_and(|running| running.jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(DecodeError::Abandoned) }
    }

    fn start(&self) -> Result<Running, DecodeError> {
        let (jobs, waiting) = bounded(WAITING);
        let (spare_in, spare) = bounded(2 * self.limits.threads);
        for _ in 0..self.limits.threads {
            let (waiting, spare, shared, ordered) =
                (waiting.clone(), spare_in.clone(), self.shared, self.limits.ordered);
            Builder::new()
                .name("landfall-zstd".into())
                .spawn_scoped(self.scope, move || work(&waiting, &spare, shared, ordered))
                .map_err(|source| DecodeError::Input(WriteError::Start { what: "zstd decoder", source }))?;
        }
        Ok(Running { jobs, spare })
    }
}

/// The main loop of a thread.
fn work(jobs: &Receiver<Job>, spare: &Sender<Vec<u8>>, shared: &Shared, ordered: bool) {
    let mut context = Decompressor::default();
    let mut scratch = Vec::new();
    for mut job in jobs {
        if shared.has_failed() {
            return;
        }
        let turn = job.turn;
        let result = job.run(&mut context, &mut scratch, || !ordered || shared.wait_for(turn));
        let failed = result.is_err();
        shared.finish(turn, job.stored.len(), result);
        if failed {
            return;
        }
        if job.stored.capacity() <= SPARE_MAX {
            job.stored.clear();
            // One too many is dropped.
            let _ = spare.try_send(job.stored);
        }
    }
}

impl Job {
    /// Decodes, and puts the pieces out once `may_put_out` says so.
    fn run(
        &mut self, context: &mut Decompressor<'static>, scratch: &mut Vec<u8>, may_put_out: impl FnOnce() -> bool,
    ) -> Result<(), DecodeError> {
        let (mut at, mut start) = (0, 0);
        let fits = self.raw <= self.sink.block_size();
        let room = if fits {
            self.sink.space()
        } else {
            scratch.resize(self.raw, 0);
            &mut scratch[..]
        };
        for frame in &self.frames {
            let room = &mut room[at..at + frame.content];
            match context.decompress_to_buffer(&self.stored[start..frame.end], room) {
                Ok(made) if made == frame.content => {}
                Ok(_) => return Err(frame.place.bad("is longer or shorter than its header states")),
                Err(error) => return Err(frame.place.bad(&format!("cannot be decoded: {error}"))),
            }
            (at, start) = (at + frame.content, frame.end);
        }
        if !may_put_out() {
            return Ok(());
        }
        if fits {
            self.sink.filled(self.raw)?;
            return self.sink.flush();
        }
        let mut rest = &scratch[..self.raw];
        while !rest.is_empty() {
            let space = self.sink.space();
            let n = space.len().min(rest.len());
            space[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            self.sink.filled(n)?;
        }
        self.sink.flush()
    }
}
