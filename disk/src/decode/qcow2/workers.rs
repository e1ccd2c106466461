//! Unpacks batches in threads of their own, a bounded number of batches under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::super::{DecodeError, Input, Sink};
use super::place::{Batch, Placer, Unpack};
use super::plan::Plan;
use super::stream::Pass;
use crate::WriteError;

/// The pass with the unpacking in the calling thread, so that everything comes in the order of the raw image.
pub(super) fn in_order(plan: &Plan, input: &mut dyn Input, sink: &Sink) -> Result<(), DecodeError> {
    let mut unpack = Unpack::new(&plan.header)?;
    let mut hand = |mut batch: Batch, gaps: &mut super::place::Gaps<'_>, placer: &mut Placer| {
        batch.place(placer, &mut unpack, Some(gaps))?;
        batch.clear();
        Ok(batch)
    };
    Pass::new(plan, input, Placer::new(sink), true, &mut hand).run()
}

/// The pass with so many threads that unpack.
pub(super) fn in_parallel(plan: &Plan, input: &mut dyn Input, sink: &Sink, threads: usize) -> Result<(), DecodeError> {
    let threads = threads.max(1);
    let failure = Failure::default();
    let done = thread::scope(|scope| {
        let (work_in, work) = bounded::<Batch>(1);
        // Room for every batch there is, so that giving one back never waits.
        let (empty_in, empty) = bounded(threads + 2);
        for _ in 0..threads {
            let worker = Worker { placer: Placer::new(sink), unpack: Unpack::new(&plan.header)? };
            let (work, empty_in, failure) = (work.clone(), empty_in.clone(), &failure);
            thread::Builder::new()
                .name("landfall-unpack".into())
                .spawn_scoped(scope, move || worker.run(&work, &empty_in, failure))
                .map_err(|source| DecodeError::Input(WriteError::Start { what: "unpack", source }))?;
        }
        drop((work, empty_in));
        let mut hand = |batch: Batch, gaps: &mut super::place::Gaps<'_>, placer: &mut Placer| {
            gaps.before(batch.end(), placer)?;
            if failure.happened() || work_in.send(batch).is_err() {
                return Err(DecodeError::Abandoned);
            }
            Ok(empty.try_recv().unwrap_or_default())
        };
        Pass::new(plan, input, Placer::new(sink), false, &mut hand).run()
    });
    // What a worker found is the cause of what the pass found after it.
    failure.take().map_or(done, Err)
}

/// Why a worker stopped.
#[derive(Default)]
struct Failure {
    error: Mutex<Option<DecodeError>>,
    happened: AtomicBool,
}

impl Failure {
    fn happened(&self) -> bool {
        self.happened.load(Ordering::Acquire)
    }
    fn set(&self, error: DecodeError) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.happened.store(true, Ordering::Release);
    }
    fn take(&self) -> Option<DecodeError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

struct Worker {
    placer: Placer,
    unpack: Unpack,
}

impl Worker {
    fn run(mut self, work: &Receiver<Batch>, empty: &Sender<Batch>, failure: &Failure) {
        for mut batch in work {
            let placed = batch.place(&mut self.placer, &mut self.unpack, None).and_then(|()| self.placer.flush());
            if let Err(error) = placed {
                failure.set(error);
                return;
            }
            batch.clear();
            // The pass may be over.
            let _ = empty.send(batch);
        }
    }
}
