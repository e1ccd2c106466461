//! Progress, thinned so that a fast disk does not drown its observer.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use landfall_api::Progress;

use crate::{Observer, index::Chunk};

/// At most one report in this time, changes of stage apart.
const THINNED: Duration = Duration::from_millis(250);
/// The rate is that of about this long ago until now.
const RATE_WINDOW: Duration = Duration::from_secs(2);

/// Counts from two threads, reports to one observer.
pub(super) struct Meter<'a> {
    observer: &'a dyn Observer,
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    reported: Option<Instant>,
    window_start: Instant,
    window_raw: u64,
    read_back: u64,
    unchanged: u64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(observer: &'a dyn Observer) -> Self {
        let state = State {
            progress: Progress::default(),
            reported: None,
            window_start: Instant::now(),
            window_raw: 0,
            read_back: 0,
            unchanged: 0,
        };
        Self { observer, state: Mutex::new(state) }
    }

    /// A new stage is reported at once.
    pub(super) fn stage(&self, stage: &str) {
        self.update(true, |progress| stage.clone_into(&mut progress.stage));
    }
    /// The image's size as its own table claims; 0 if unknown.
    pub(super) fn expect_raw(&self, bytes: u64) {
        self.update(false, |progress| progress.raw_total = bytes);
    }
    /// Of a packed image only these chunks are fetched.
    pub(super) fn expect(&self, wanted: &[&Chunk], raw_bytes: u64) {
        self.update(false, |progress| {
            progress.stored_total =
                progress.stored_bytes + wanted.iter().map(|chunk| chunk.stored_bytes()).sum::<u64>();
            progress.raw_total = raw_bytes;
        });
    }
    /// So many stored bytes more; and how many there are, where that is news.
    pub(super) fn stored(&self, bytes: u64, total: Option<u64>) {
        self.update(false, |progress| {
            progress.stored_bytes += bytes;
            progress.stored_total = total.unwrap_or(progress.stored_total);
        });
    }
    /// Stored bytes so far.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.lock().progress.stored_bytes
    }
    /// So many raw bytes were on the device already.
    pub(super) fn unchanged(&self, raw: u64) {
        self.lock().unchanged += raw;
        self.raw(raw, 0);
    }
    /// Raw bytes that were found on the device.
    pub(super) fn unchanged_bytes(&self) -> u64 {
        self.lock().unchanged
    }
    /// So many raw bytes more are on the device, of which so many had to be written.
    pub(super) fn raw(&self, raw: u64, written: u64) {
        self.update(false, |progress| {
            progress.raw_bytes += raw;
            progress.written_bytes += written;
        });
    }
    /// The read-back begins.
    pub(super) fn begin_read_back(&self) {
        self.stage("readBack");
        self.lock().read_back = 0;
    }
    /// So many bytes more were read back.
    pub(super) fn read_back(&self, bytes: u64) {
        self.lock().read_back += bytes;
        self.update(false, |_| {});
    }
    /// The last report.
    pub(super) fn finish(&self) {
        self.update(true, |_| {});
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, at_once: bool, change: impl FnOnce(&mut Progress)) {
        let mut state = self.lock();
        let now = Instant::now();
        change(&mut state.progress);
        if !at_once && state.reported.is_some_and(|at| now - at < THINNED) {
            return;
        }
        state.reported = Some(now);
        let elapsed = now - state.window_start;
        if elapsed >= THINNED {
            let moved = state.progress.raw_bytes - state.window_raw;
            state.progress.bytes_per_second = (moved as f64 / elapsed.as_secs_f64()) as u64;
        }
        if elapsed >= RATE_WINDOW {
            (state.window_start, state.window_raw) = (now, state.progress.raw_bytes);
        }
        let report = state.progress.clone();
        // An observer may be slow in spite of its promise; it must not hold the lock.
        drop(state);
        self.observer.progress(&report);
    }
}
