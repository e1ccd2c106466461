//! Finds what the disk already holds. It reads and hashes the disk and never relies on records: after a power cut
//! nothing else is proof.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crossbeam_channel::{RecvTimeoutError, bounded};
use sha2::{Digest as _, Sha256};

use super::{Check, TICK, meter::Meter};
use crate::buffer::Buffer;
use crate::gpt::{Fate, HEAD, Layout};
use crate::index::{Chunk, ChunkKind};
use crate::{BlockDevice, WriteError};

/// Threads that read and hash.
const THREADS: usize = 2;

/// Of these chunks, those that the disk does not hold; by their numbers, ascending.
pub(super) fn missing(
    device: &dyn BlockDevice, layout: &Layout, chunks: Vec<(usize, &Chunk)>, meter: &Meter<'_>, may_act: Check<'_>,
) -> Result<Vec<usize>, WriteError> {
    // What the layout treats in a special way always counts as missing, since the disk must not hold it yet.
    let plain = |chunk: &Chunk| matches!(layout.split(chunk.raw.clone()).as_slice(), [(_, Fate::Write)]);
    let (candidates, special): (Vec<_>, Vec<_>) = chunks.into_iter().partition(|(_, chunk)| plain(chunk));
    let (next, differ) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let mut outcome = Ok(());
    thread::scope(|scope| {
        let (busy, all_done) = bounded::<()>(0);
        for _ in 0..THREADS {
            let (busy, next, differ, candidates) = (busy.clone(), &next, &differ, &candidates);
            scope.spawn(move || {
                let _busy = busy;
                let mut buffer = Buffer::new(HEAD);
                while let Some((number, chunk)) = candidates.get(next.fetch_add(1, Ordering::AcqRel)) {
                    if holds(device, chunk, &mut buffer) {
                        meter.unchanged(chunk.raw_bytes());
                    } else {
                        lock(differ).push(*number);
                    }
                }
            });
        }
        drop(busy);
        while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(TICK) {
            if let Err(failed) = may_act() {
                outcome = Err(failed);
                next.store(candidates.len(), Ordering::Release);
            }
        }
    });
    outcome?;
    let mut missing: Vec<_> = special.into_iter().map(|(number, _)| number).collect();
    missing.append(&mut lock(&differ));
    missing.sort_unstable();
    Ok(missing)
}

/// Whether the disk holds this chunk.
fn holds(device: &dyn BlockDevice, chunk: &Chunk, buffer: &mut Buffer) -> bool {
    let ChunkKind::Data { raw_digest: Some(expected), .. } = chunk.kind else { return false };
    if chunk.raw.end > device.size() {
        return false;
    }
    let mut hasher = Sha256::new();
    let mut rest: Range<u64> = chunk.raw.clone();
    while rest.start < rest.end {
        let length = (rest.end - rest.start).min(HEAD as u64) as usize;
        let there = &mut buffer.space()[..length];
        if device.read_at(rest.start, there).is_err() {
            // A write makes the disk replace the bad sector.
            return false;
        }
        hasher.update(there);
        rest.start += length as u64;
    }
    hasher.finalize()[..] == expected
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
