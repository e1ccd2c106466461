//! Progress, thinned so that a fast disk does not flood its observer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_api::Progress;

use crate::{Observer, index::Chunk};

/// At most one report in this time, changes of stage apart.
const THINNED: Duration = Duration::from_millis(250);
/// The rate is that of about this long ago until now.
const RATE_WINDOW: Duration = Duration::from_secs(2);

/// A stage that waits for less than this share of the time is the slowest.
const WAITS: u32 = 5;

/// Who waits; this shows which stage the others wait for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    /// The writer, for pieces.
    Pieces,
    /// The fetch stage, for room after it.
    Fetched,
    /// The hash stage, for room after it.
    Hashed,
}

/// Counts from all threads, reports to one observer.
pub(super) struct Meter<'a> {
    observer: &'a dyn Observer,
    state: Mutex<State>,
    /// Nanoseconds waited, by [`Wait`], since the window began.
    waited: [AtomicU64; 3],
}

struct State {
    progress: Progress,
    reported: Option<Instant>,
    window_start: Instant,
    window_raw: u64,
    /// When the present stage began, and how much had been fetched then.
    stage_start: (Instant, u64),
    /// Bytes read back, and to be.
    read_back: (u64, u64),
    unchanged: u64,
}

impl State {
    /// Seconds until the present stage ends, at the pace it had so far; 0 while unknown.
    fn eta_seconds(&self, now: Instant) -> u64 {
        let (start, before) = self.stage_start;
        let (done, left) = match self.read_back {
            (done, total) if total > 0 => (done, total.saturating_sub(done)),
            _ if self.progress.stored_total > 0 => {
                let stored = self.progress.stored_bytes;
                (stored.saturating_sub(before), self.progress.stored_total.saturating_sub(stored))
            }
            _ => (self.progress.raw_bytes, self.progress.raw_total.saturating_sub(self.progress.raw_bytes)),
        };
        if done == 0 { 0 } else { ((now - start).as_secs_f64() * left as f64 / done as f64).ceil() as u64 }
    }
}

impl<'a> Meter<'a> {
    pub(super) fn new(observer: &'a dyn Observer) -> Self {
        let now = Instant::now();
        let state = State {
            progress: Progress::default(),
            reported: None,
            window_start: now,
            window_raw: 0,
            stage_start: (now, 0),
            read_back: (0, 0),
            unchanged: 0,
        };
        Self { observer, state: Mutex::new(state), waited: Default::default() }
    }

    /// A stage waited since then.
    pub(super) fn waited(&self, who: Wait, since: Instant) {
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited[who as usize].fetch_add(nanos, Ordering::Relaxed);
    }

    /// A writer that hardly waits is itself the slowest; else it is the last stage before it that does not wait for room.
    fn slowest(&self, window: Duration) -> &'static str {
        let waits =
            |who: Wait| Duration::from_nanos(self.waited[who as usize].swap(0, Ordering::Relaxed)) > window / WAITS;
        match (waits(Wait::Pieces), waits(Wait::Fetched), waits(Wait::Hashed)) {
            (false, ..) => "write",
            (true, false, _) => "fetch",
            (true, true, false) => "hash",
            (true, true, true) => "decode",
        }
    }

    /// A new stage is reported at once.
    pub(super) fn stage(&self, stage: &str) {
        {
            let mut state = self.lock();
            state.stage_start = (Instant::now(), state.progress.stored_bytes);
            state.progress.eta_seconds = 0;
        }
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
    /// The read-back of so many bytes begins.
    pub(super) fn begin_read_back(&self, total: u64) {
        self.stage("readBack");
        self.lock().read_back = (0, total);
    }
    /// So many bytes more were read back.
    pub(super) fn read_back(&self, bytes: u64) {
        self.lock().read_back.0 += bytes;
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
            state.progress.eta_seconds = state.eta_seconds(now);
        }
        if elapsed >= RATE_WINDOW {
            (state.window_start, state.window_raw) = (now, state.progress.raw_bytes);
            self.slowest(elapsed).clone_into(&mut state.progress.slowest);
        }
        let report = state.progress.clone();
        // The observer may break its promise and be slow; so it is called without the lock.
        drop(state);
        self.observer.progress(&report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unobserved;

    fn slowest(waits: &[Wait]) -> &'static str {
        let meter = Meter::new(&Unobserved);
        for who in waits {
            meter.waited[*who as usize].store(1_000_000_000, Ordering::Relaxed);
        }
        meter.slowest(Duration::from_secs(2))
    }

    #[test]
    fn the_slowest_stage_is_the_one_that_never_waits() {
        assert_eq!(slowest(&[Wait::Fetched, Wait::Hashed]), "write");
        assert_eq!(slowest(&[Wait::Pieces]), "fetch");
        assert_eq!(slowest(&[Wait::Pieces, Wait::Fetched]), "hash");
        assert_eq!(slowest(&[Wait::Pieces, Wait::Fetched, Wait::Hashed]), "decode");
    }

    #[test]
    fn the_remaining_time_follows_the_pace_so_far() {
        let meter = Meter::new(&Unobserved);
        meter.stored(250, Some(1000));
        let state = meter.lock();
        assert_eq!(state.eta_seconds(state.stage_start.0 + Duration::from_secs(10)), 30);
    }
}
