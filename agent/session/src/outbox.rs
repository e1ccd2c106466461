//! Events not yet acknowledged: numbered, kept, sent again after every reconnect. Pure: no I/O, no clock.
//!
//! What must hold: within an attempt, events leave in the order and with the numbers in which they were reported; none
//! is dropped before the coordinator said it is stored; what is sent twice is the same both times. Bounded: a full
//! outbox refuses the next event, and whoever reports it waits.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use crate::{ActionRef, Event, EventKind};

/// The events that are not yet acknowledged, oldest first.
#[derive(Debug)]
pub struct Outbox {
    capacity: usize,
    events: VecDeque<Event>,
    /// How many of `events`, from the front, went out on the present stream.
    sent: usize,
    numbers: HashMap<ActionRef, Numbers>,
    /// Attempts in the order of their first event, so that the oldest number is forgotten first.
    attempts: VecDeque<ActionRef>,
}

/// Numbers given out within one attempt.
#[derive(Debug, Clone, Copy, Default)]
struct Numbers {
    reported: u64,
    /// Sent at least once, on this stream or an older one.
    sent: u64,
    acked: u64,
}

/// The outbox is full; wait for acks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} events wait for the coordinator's acknowledgement, and no more fit")]
pub struct Full(pub usize);

/// The coordinator acknowledged what it was never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} of {action} was acknowledged, but only {sent} were sent")]
pub struct AckError {
    /// The attempt.
    pub action: ActionRef,
    /// The number acknowledged.
    pub seq: u64,
    /// The highest number sent.
    pub sent: u64,
}

/// Attempts whose numbers are remembered after all their events were acked. An attempt is over long before so many
/// others have begun.
const REMEMBERED: usize = 1024;

impl Outbox {
    /// An outbox for up to `capacity` unacknowledged events.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, events: VecDeque::new(), sent: 0, numbers: HashMap::new(), attempts: VecDeque::new() }
    }

    /// Numbers an event and keeps it. Returns its number.
    ///
    /// # Errors
    /// [`Full`]; nothing was kept.
    pub fn report(&mut self, action: ActionRef, time: Timestamp, kind: EventKind) -> Result<u64, Full> {
        if self.events.len() >= self.capacity {
            return Err(Full(self.events.len()));
        }
        let numbers = self.numbers.entry(action).or_insert_with(|| {
            self.attempts.push_back(action);
            Numbers::default()
        });
        numbers.reported += 1;
        let seq = numbers.reported;
        self.events.push_back(Event { action, seq, time, kind });
        self.forget();
        Ok(seq)
    }

    /// The next event to send on the present stream, marked as sent.
    pub fn next_unsent(&mut self) -> Option<Event> {
        let event = self.events.get(self.sent)?.clone();
        self.sent += 1;
        if let Some(numbers) = self.numbers.get_mut(&event.action) {
            numbers.sent = numbers.sent.max(event.seq);
        }
        Some(event)
    }

    /// Whether [`Self::next_unsent`] has something.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.events.len()
    }

    /// A new stream begins: everything unacknowledged goes out again, in the old order.
    pub const fn reconnected(&mut self) {
        self.sent = 0;
    }

    /// Everything up to and including `seq` of this attempt is stored. A repeated or late ack changes nothing.
    ///
    /// # Errors
    /// [`AckError`] if `seq` was never sent; nothing is dropped.
    pub fn ack(&mut self, action: ActionRef, seq: u64) -> Result<(), AckError> {
        let numbers = self.numbers.get_mut(&action).ok_or(AckError { action, seq, sent: 0 })?;
        if seq > numbers.sent {
            return Err(AckError { action, seq, sent: numbers.sent });
        }
        numbers.acked = numbers.acked.max(seq);
        let stored = |event: &Event| event.action == action && event.seq <= seq;
        self.sent -= self.events.iter().take(self.sent).filter(|e| stored(e)).count();
        self.events.retain(|e| !stored(e));
        Ok(())
    }

    /// How many events wait for their ack.
    pub fn unacked(&self) -> usize {
        self.events.len()
    }

    fn forget(&mut self) {
        while self.attempts.len() > REMEMBERED {
            // Only an attempt with nothing left to send may be forgotten; the oldest is such in all but absurd cases.
            let done = |a: &ActionRef| self.numbers.get(a).is_none_or(|n| n.acked == n.reported);
            let Some(at) = self.attempts.iter().position(done) else { return };
            if let Some(action) = self.attempts.remove(at) {
                self.numbers.remove(&action);
            }
        }
    }
}
