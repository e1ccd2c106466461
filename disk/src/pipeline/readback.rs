//! Read-back: what was written is read from the device once more, before the commit: most of it while writing goes on, and
//! here the rest. The caches of the host are passed by where the device is opened past them; what the device's own cache
//! holds was flushed before.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use super::behind::Left;
use super::meter::Meter;
use super::record::{Record, STEP};
use super::reread::check;
use super::{Check, TICK};
use crate::{BlockDevice, WriteError, buffer::Buffer};

/// Reads in flight at once.
const THREADS: usize = 4;

/// Reads what is left; how many bytes were read back in all.
pub(super) fn read_rest(
    device: &dyn BlockDevice, name: &str, left: Left, meter: &Meter<'_>, may_act: Check<'_>,
) -> Result<u64, WriteError> {
    let Left { mut records, again, read } = left;
    let bytes = |records: &[Record]| records.iter().map(Record::bytes).sum::<u64>();
    let total = bytes(&records);
    meter.begin_read_back(total + bytes(&again));
    records.extend(again);
    records.sort_unstable_by_key(|record| record.range().start);
    let (steps, outcome) = (Mutex::new(Some(records.iter().flat_map(Record::steps))), Mutex::new(Ok(())));
    let next = || lock(&steps).as_mut().and_then(Iterator::next);
    let failed = |error| {
        let mut outcome = lock(&outcome);
        if outcome.is_ok() {
            *outcome = Err(error);
        }
        // None is taken any more.
        *lock(&steps) = None;
    };
    thread::scope(|scope| {
        let (busy, all_done) = bounded::<()>(0);
        let work = |_busy: Sender<()>| {
            let mut buffer = Buffer::new(STEP as usize);
            while let Some(step) = next() {
                match check(device, name, &step, &mut buffer) {
                    Ok(bytes) => meter.read_back(bytes),
                    Err(error) => failed(error),
                }
            }
        };
        for _ in 0..THREADS {
            let busy = busy.clone();
            scope.spawn(move || work(busy));
        }
        drop(busy);
        // The calling thread is the one that may ask, so it waits rather than reads.
        while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(TICK) {
            if let Err(error) = may_act() {
                failed(error);
                break;
            }
        }
    });
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner).map(|()| read + total)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
