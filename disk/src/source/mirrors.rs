//! Several sources of the same bytes, tried in turn: where one fails the next goes on at the same byte.
//!
//! Bytes of two servers are joined only if a digest of the whole image will show whether they belong together.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::ImageSource;
use crate::{Defect, Format, LogLevel, Observer, WriteError};

/// How often all mirrors are gone through without a new byte, with a growing pause between.
const ROUNDS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// How soon a pause notices a stop.
const TICK: Duration = Duration::from_millis(100);

struct Mirror<'a> {
    source: Box<dyn ImageSource + 'a>,
    /// Why it failed last.
    failure: Option<WriteError>,
    /// A retry cannot help.
    struck_off: bool,
    /// It stands where the image is read.
    in_place: bool,
}

/// At least one mirror.
pub(super) struct Mirrors<'a> {
    mirrors: Vec<Mirror<'a>>,
    /// Which one is read.
    at: usize,
    name: String,
    digest_guards: bool,
    observer: &'a dyn Observer,
    total: Option<u64>,
    position: u64,
    end: u64,
    /// Bytes were handed on: the next mirror must give the same content.
    begun: bool,
    /// Full rounds since the last byte.
    rounds: u32,
    pause: Duration,
}

impl<'a> Mirrors<'a> {
    pub(super) fn new(
        sources: Vec<Box<dyn ImageSource + 'a>>, digest_guards: bool, observer: &'a dyn Observer,
    ) -> Self {
        let name = sources.first().map(|source| source.name().to_owned()).unwrap_or_default();
        let mirror = |source| Mirror { source, failure: None, struck_off: false, in_place: true };
        Self {
            mirrors: sources.into_iter().map(mirror).collect(),
            at: 0,
            name,
            digest_guards,
            observer,
            total: None,
            position: 0,
            end: u64::MAX,
            begun: false,
            rounds: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// One read of the present mirror, with what it gives checked against what is known.
    fn try_read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        let Some(mirror) = self.mirrors.get_mut(self.at) else {
            return Err(WriteError::Internal("there is no such mirror".into()));
        };
        if !mirror.in_place {
            mirror.source.seek(self.position..self.end, stop)?;
            mirror.in_place = true;
        }
        let n = mirror.source.read(buffer, stop)?;
        let subject = || mirror.source.name().to_owned();
        match (self.total, mirror.source.total()) {
            (Some(known), Some(other)) if known != other => {
                let reason = format!("it has {other} bytes, but another mirror has {known}");
                return Err(WriteError::BadFormat { subject: subject(), reason, defect: Defect::Beside });
            }
            (known, other) => self.total = known.or(other),
        }
        if n == 0 && self.total.is_some_and(|total| self.position < self.end.min(total)) {
            let reason = format!("{} bytes came", self.position);
            return Err(WriteError::Truncated { subject: subject(), reason });
        }
        Ok(n)
    }

    /// Leaves the present mirror for the next one that is worth asking.
    fn next(&mut self, failure: WriteError, stop: &AtomicBool) -> Result<(), WriteError> {
        // A server that does not respond may do so in the next round. One that breaks off was retried often enough.
        let struck_off = !matches!(failure, WriteError::Unreachable { .. });
        let why = failure.to_string();
        if let Some(mirror) = self.mirrors.get_mut(self.at) {
            (mirror.failure, mirror.struck_off) = (Some(failure), struck_off);
        }
        if self.begun && !self.digest_guards {
            let line = "the image has no digest, so another mirror must not continue in the middle of it";
            self.observer.log(LogLevel::Warn, line);
            return Err(self.given_up());
        }
        let count = self.mirrors.len();
        let candidates = (1..=count).map(|step| self.at + step);
        let usable = |at: usize| self.mirrors.get(at % count).is_some_and(|mirror| !mirror.struck_off);
        let Some(next) = candidates.into_iter().find(|at| usable(*at)) else { return Err(self.given_up()) };
        if next >= count {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                return Err(self.given_up());
            }
            self.wait(stop)?;
        }
        self.at = next % count;
        if let Some(mirror) = self.mirrors.get_mut(self.at) {
            mirror.in_place = false;
            let line = format!("{why}; continuing at byte {} with {}", self.position, mirror.source.name());
            self.observer.log(LogLevel::Warn, &line);
        }
        Ok(())
    }

    fn wait(&mut self, stop: &AtomicBool) -> Result<(), WriteError> {
        let mut left = self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        while !left.is_zero() {
            if stop.load(Ordering::Acquire) {
                return Err(WriteError::Unreachable { url: self.name.clone(), reason: "the write ended".into() });
            }
            let now = left.min(TICK);
            thread::sleep(now);
            left -= now;
        }
        Ok(())
    }

    fn given_up(&mut self) -> WriteError {
        let failures = self.mirrors.iter_mut().filter_map(|mirror| mirror.failure.take()).collect();
        WriteError::NoMirror { url: self.name.clone(), failures }
    }
}

impl ImageSource for Mirrors<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        loop {
            match self.try_read(buffer, stop) {
                Ok(n) => {
                    self.position += n as u64;
                    (self.begun, self.rounds, self.pause) = (true, 0, FIRST_PAUSE);
                    return Ok(n);
                }
                Err(error) if stop.load(Ordering::Acquire) => return Err(error),
                Err(error) => self.next(error, stop)?,
            }
        }
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn seek(&mut self, range: Range<u64>, stop: &AtomicBool) -> Result<(), WriteError> {
        (self.position, self.end) = (range.start, range.end);
        if let Some(mirror) = self.mirrors.get_mut(self.at) {
            // A seek that fails is tried again with the next read, which knows what to do about it.
            mirror.in_place = mirror.source.seek(range, stop).is_ok();
        }
        Ok(())
    }

    fn claimed_format(&self) -> Option<Format> {
        self.mirrors.get(self.at)?.source.claimed_format()
    }
}
