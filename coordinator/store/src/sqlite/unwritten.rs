//! Which documents are newer in memory than on the disk, and since when.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use landfall_api::Kind;

/// A document's kind and name.
pub(super) type Key = (Kind, String);

/// Bounded by the documents there are.
#[derive(Default)]
pub(super) struct Unwritten {
    since: HashMap<Key, Instant>,
    /// In the order of their times; an entry counts while `since` says the same.
    order: VecDeque<(Instant, Key)>,
}

impl Unwritten {
    /// A document was changed in memory alone.
    pub(super) fn note(&mut self, key: Key, now: Instant) {
        if !self.since.contains_key(&key) {
            self.order.push_back((now, key.clone()));
            self.since.insert(key, now);
        }
    }

    /// Whether the disk has it as it was.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.since.contains_key(key)
    }

    /// The disk has it as it is, or has it no more.
    pub(super) fn written(&mut self, key: &Key) {
        if !self.since.is_empty() {
            self.since.remove(key);
        }
    }

    /// At most `most` that were noted before `before`, the oldest first. They stay noted.
    pub(super) fn older(&mut self, before: Instant, most: usize) -> Vec<Key> {
        while self.order.front().is_some_and(|(since, key)| self.since.get(key) != Some(since)) {
            self.order.pop_front();
        }
        let counts = |(since, key): &&(Instant, Key)| self.since.get(key) == Some(since);
        let due = self.order.iter().take_while(|(since, _)| *since < before);
        due.filter(counts).take(most).map(|(_, key)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_is_due_first_and_once() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let key = |name: &str| (Kind::Workflow, name.to_owned());
        let mut unwritten = Unwritten::default();
        for (name, second) in [("a", 0), ("b", 1), ("a", 2), ("c", 3)] {
            unwritten.note(key(name), at(second));
        }
        assert_eq!(unwritten.older(at(0), 9), []);
        assert_eq!(unwritten.older(at(3), 9), [key("a"), key("b")]);
        assert_eq!(unwritten.older(at(9), 1), [key("a")]);
        unwritten.written(&key("a"));
        // Changed again: it has its time anew.
        unwritten.note(key("a"), at(5));
        assert_eq!(unwritten.older(at(9), 9), [key("b"), key("c"), key("a")]);
        ["a", "b", "c"].iter().for_each(|name| unwritten.written(&key(name)));
        assert!(unwritten.since.is_empty() && unwritten.older(at(9), 9).is_empty());
        assert!(unwritten.order.is_empty(), "what is written takes no room");
    }
}
