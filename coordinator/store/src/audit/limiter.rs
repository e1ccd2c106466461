//! How many refusals of one source are recorded. Pure.

use std::collections::HashMap;

use jiff::Timestamp;

/// Refusals of one source written in one window.
pub(super) const PER_SOURCE: u32 = 30;
/// Seconds of a window.
const WINDOW: i64 = 60;
/// Sources counted separately; all others share one count, so that forged sources cannot fill the memory.
const SOURCES: usize = 256;

/// What to do with a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Count it only.
    Thin,
    /// Write it down, and say how many were only counted before it.
    Write { thinned: u64 },
}

#[derive(Default)]
pub(super) struct Limiter {
    /// By source; the empty one counts all sources without a place.
    sources: HashMap<String, Source>,
}

struct Source {
    window: i64,
    written: u32,
    thinned: u64,
}

impl Limiter {
    pub(super) fn judge(&mut self, from: &str, now: Timestamp) -> Verdict {
        let window = now.as_second().div_euclid(WINDOW);
        if self.sources.len() >= SOURCES && !self.sources.contains_key(from) {
            // A source that has been quiet for a window gives up its place, even with unreported refusals: otherwise
            // forged sources would keep every place for ever.
            self.sources.retain(|_, source| source.window >= window - 1);
        }
        let full = self.sources.len() >= SOURCES && !self.sources.contains_key(from);
        let key = if full { "" } else { from };
        let source = self.sources.entry(key.to_owned()).or_insert(Source { window, written: 0, thinned: 0 });
        if source.window != window {
            (source.window, source.written) = (window, 0);
        }
        if source.written >= PER_SOURCE {
            source.thinned = source.thinned.saturating_add(1);
            return Verdict::Thin;
        }
        source.written += 1;
        Verdict::Write { thinned: std::mem::take(&mut source.thinned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_sources_fill_neither_the_memory_nor_the_log() {
        let mut limiter = Limiter::default();
        let now = Timestamp::from_second(6000).unwrap();
        let written = (0..100_000).filter(|n| limiter.judge(&n.to_string(), now) != Verdict::Thin).count();
        assert!(limiter.sources.len() <= SOURCES + 1, "{}", limiter.sources.len());
        assert_eq!(written, SOURCES + PER_SOURCE as usize);
    }

    #[test]
    fn silent_sources_give_up_their_place() {
        let mut limiter = Limiter::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        for n in 0..SOURCES {
            for _ in 0..=PER_SOURCE {
                limiter.judge(&n.to_string(), at(6000));
            }
        }
        let written = |limiter: &mut Limiter, from: &str| {
            (0..=PER_SOURCE).filter(|_| limiter.judge(from, at(6000 + 2 * WINDOW)) != Verdict::Thin).count()
        };
        assert_eq!([written(&mut limiter, "a"), written(&mut limiter, "b")], [PER_SOURCE as usize; 2]);
    }
}
