//! Events not yet acknowledged: numbered, kept, sent again after every reconnect. Pure: no I/O, no clock.
//!
//! What must hold: within an attempt, events leave in the order and with the numbers in which they were reported; none
//! is dropped before the coordinator said it is stored; what is sent twice is the same both times. Bounded: a full
//! outbox refuses the next event, and its reporter waits.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use landfall_api::message::{ActionRef, EventBody, EventRecord};

/// The events that are not yet acknowledged, oldest first.
#[derive(Debug)]
pub struct Outbox {
    capacity: usize,
    events: VecDeque<EventRecord>,
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
    pub fn report(&mut self, action: ActionRef, time: Timestamp, body: EventBody) -> Result<u64, Full> {
        if self.events.len() >= self.capacity {
            return Err(Full(self.events.len()));
        }
        let numbers = self.numbers.entry(action).or_insert_with(|| {
            self.attempts.push_back(action);
            Numbers::default()
        });
        numbers.reported += 1;
        let seq = numbers.reported;
        self.events.push_back(EventRecord::of(action, seq, time, body));
        self.forget();
        Ok(seq)
    }

    /// The next event to send on the present stream, marked as sent.
    pub fn next_unsent(&mut self) -> Option<EventRecord> {
        let event = self.events.get(self.sent)?.clone();
        self.sent += 1;
        if let Some(numbers) = self.numbers.get_mut(&event.action()) {
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
        let stored = |event: &EventRecord| event.action() == action && event.seq <= seq;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn action(n: u8) -> ActionRef {
        ActionRef { workflow_uid: uuid::Uuid::nil(), action_index: u32::from(n / 2), attempt: u32::from(n % 2) + 1 }
    }

    /// Distinguishable events, so that an altered repeat is seen.
    fn body(n: u64) -> EventBody {
        let problem = landfall_api::Problem::new(landfall_api::ErrorCode::Internal, n.to_string());
        EventBody::Failed { problem, retryable: false }
    }

    /// What may happen between the two sides.
    #[derive(Debug, Clone)]
    enum Step {
        Report(u8),
        /// The agent puts its next event on the wire.
        Send,
        /// The coordinator takes the oldest event off the wire and stores it.
        Store,
        /// Its ack of what it has stored of an attempt arrives: the newest, or an old one once more.
        Ack(u8, bool),
        /// The stream breaks: whatever is on the wire is gone.
        Reconnect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..4u8).prop_map(Step::Report),
            4 => Just(Step::Send),
            4 => Just(Step::Store),
            2 => (0..4u8, any::<bool>()).prop_map(|(n, old)| Step::Ack(n, old)),
            1 => Just(Step::Reconnect),
        ]
    }

    /// The coordinator: stores what is new, drops what it has, and must never see a gap or a different repeat.
    #[derive(Default)]
    struct Coordinator(BTreeMap<ActionRef, Vec<EventRecord>>);

    impl Coordinator {
        fn store(&mut self, event: EventRecord) {
            let stored = self.0.entry(event.action()).or_default();
            let at = usize::try_from(event.seq).unwrap() - 1;
            assert!(at <= stored.len(), "a gap before {event:?}");
            match stored.get(at) {
                Some(known) => assert_eq!(*known, event, "a repeat differs"),
                None => stored.push(event),
            }
        }
        fn stored(&self, action: ActionRef) -> u64 {
            self.0.get(&action).map_or(0, |s| s.len() as u64)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn nothing_is_lost_reordered_or_altered_whatever_happens(steps in prop::collection::vec(step(), 0..200)) {
            let mut outbox = Outbox::new(16);
            let (mut wire, mut coordinator) = (VecDeque::new(), Coordinator::default());
            let mut reported: BTreeMap<ActionRef, Vec<EventBody>> = BTreeMap::new();
            let mut count = 0;
            for step in steps {
                match step {
                    Step::Report(n) => {
                        count += 1;
                        let full = outbox.unacked() == 16;
                        match outbox.report(action(n), Timestamp::UNIX_EPOCH, body(count)) {
                            Ok(seq) => {
                                let list = reported.entry(action(n)).or_default();
                                list.push(body(count));
                                prop_assert_eq!(seq, list.len() as u64);
                            }
                            Err(refused) => prop_assert!(full && refused == Full(16)),
                        }
                    }
                    Step::Send => wire.extend(outbox.next_unsent()),
                    Step::Store => wire.pop_front().into_iter().for_each(|e| coordinator.store(e)),
                    Step::Ack(n, old) => {
                        let seq = coordinator.stored(action(n));
                        let seq = if old { seq / 2 } else { seq };
                        if seq > 0 {
                            outbox.ack(action(n), seq).unwrap();
                        }
                    }
                    Step::Reconnect => {
                        wire.clear();
                        outbox.reconnected();
                    }
                }
            }
            // In the end the connection holds: everything arrives, and everything is acked.
            wire.clear();
            outbox.reconnected();
            while let Some(event) = outbox.next_unsent() {
                coordinator.store(event);
            }
            for (action, kinds) in reported {
                let stored: Vec<_> = coordinator.0[&action].iter().map(|e| e.body.clone()).collect();
                prop_assert_eq!(stored, kinds);
                outbox.ack(action, coordinator.stored(action)).unwrap();
            }
            prop_assert_eq!(outbox.unacked(), 0);
            prop_assert!(!outbox.has_unsent());
        }
    }

    #[test]
    fn an_ack_of_what_was_never_sent_drops_nothing() {
        let mut outbox = Outbox::new(4);
        outbox.report(action(0), Timestamp::UNIX_EPOCH, body(1)).unwrap();
        let error = outbox.ack(action(0), 1).unwrap_err();
        assert_eq!((error.seq, error.sent, outbox.unacked()), (1, 0, 1));
        assert!(outbox.ack(action(3), 1).is_err());
        outbox.next_unsent().unwrap();
        outbox.ack(action(0), 1).unwrap();
        assert_eq!(outbox.unacked(), 0);
    }

    #[test]
    fn an_ack_after_a_reconnect_covers_older_streams() {
        let mut outbox = Outbox::new(4);
        for n in 1..=2 {
            outbox.report(action(0), Timestamp::UNIX_EPOCH, body(n)).unwrap();
            outbox.next_unsent().unwrap();
        }
        outbox.reconnected();
        outbox.ack(action(0), 1).unwrap();
        assert_eq!(outbox.next_unsent().unwrap().seq, 2);
        assert!(!outbox.has_unsent());
    }

    #[test]
    fn numbers_of_old_attempts_are_forgotten_after_all_acks() {
        let mut outbox = Outbox::new(10);
        let attempt = |n: u32| ActionRef { workflow_uid: uuid::Uuid::nil(), action_index: 0, attempt: n };
        outbox.report(attempt(0), Timestamp::UNIX_EPOCH, body(0)).unwrap();
        for n in 1..=u32::try_from(REMEMBERED).unwrap() + 50 {
            outbox.report(attempt(n), Timestamp::UNIX_EPOCH, body(0)).unwrap();
            while outbox.next_unsent().is_some() {}
            outbox.ack(attempt(n), 1).unwrap();
        }
        assert!(outbox.numbers.len() <= REMEMBERED + 1 && outbox.numbers.contains_key(&attempt(0)));
        assert_eq!(outbox.report(attempt(0), Timestamp::UNIX_EPOCH, body(1)), Ok(2));
    }
}
