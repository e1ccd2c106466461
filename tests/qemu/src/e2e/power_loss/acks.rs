//! What was acknowledged, and what must be there because of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use landfall_api::EventRecord;

/// Events of each attempt.
pub(super) const EVENTS_OF_AN_ATTEMPT: u64 = 8;

/// Something the coordinator said is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acked {
    /// How long the recording was when the acknowledgement had come, bytes: what it stands on is within them.
    pub(super) at: u64,
    /// What is stored.
    pub(super) what: Stored,
}

/// What is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// The events of an attempt up to this number.
    Events {
        /// The workflow's name.
        run: String,
        /// From 1.
        attempt: u32,
        /// The last one's number, from 1.
        upto: u64,
    },
    /// A machine's document with this serial number, or a higher one.
    Document {
        /// Its name.
        name: String,
        /// Counts the writes of it.
        serial: u64,
    },
}

/// The most of everything that a list of acknowledgements asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due<'a> {
    /// By workflow and attempt: the last event's number.
    pub(super) events: BTreeMap<&'a str, BTreeMap<u32, u64>>,
    /// By name: the least serial number.
    pub(super) documents: BTreeMap<&'a str, u64>,
}

impl<'a> Due<'a> {
    /// Of these acknowledgements together.
    pub(super) fn of(acks: impl Iterator<Item = &'a Acked>) -> Self {
        let mut due = Self::default();
        for ack in acks {
            match &ack.what {
                Stored::Events { run, attempt, upto } => {
                    let last = due.events.entry(run).or_default().entry(*attempt).or_default();
                    *last = (*last).max(*upto);
                }
                Stored::Document { name, serial } => {
                    let least = due.documents.entry(name).or_default();
                    *least = (*least).max(*serial);
                }
            }
        }
        due
    }

    /// How many events and documents that is.
    pub(super) fn count(&self) -> u64 {
        self.events.values().flat_map(BTreeMap::values).sum::<u64>() + self.documents.len() as u64
    }
}

/// What a person reads in an event: its place within the workflow, so that each message is unique.
pub(super) fn mark(attempt: u32, seq: u64) -> String {
    format!("<{attempt}.{seq}>")
}

/// Requires that a workflow's events have those of each attempt up to the number that is due: each once, in their
/// order.
pub(super) fn has_events(run: &str, events: &[EventRecord], due: &BTreeMap<u32, u64>) -> anyhow::Result<()> {
    let mut attempts: BTreeMap<u32, Vec<&EventRecord>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.action_index == Some(0)) {
        attempts.entry(event.attempt).or_default().push(event);
    }
    attempts.values_mut().for_each(|found| found.sort_by_key(|event| event.position));
    for (attempt, upto) in due {
        let found = attempts.get(attempt).map_or(&[][..], Vec::as_slice);
        for seq in 1..=*upto {
            let named = || format!("event {seq} of attempt {attempt} of workflow {run}");
            let missing = || format!("{} was acknowledged and is missing", named());
            let event = found.get(usize::try_from(seq)? - 1).with_context(missing)?;
            let it = if seq == 1 { event.reason == "Started" } else { event.message.contains(&mark(*attempt, seq)) };
            ensure!(it, "{} was acknowledged, and in its place is {}: {}", named(), event.reason, event.message);
        }
        if let Some(more) = found.get(usize::try_from(EVENTS_OF_AN_ATTEMPT)?) {
            bail!("attempt {attempt} of workflow {run} has more events than were ever sent: {}", more.message);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64, attempt: u32, seq: u64) -> EventRecord {
        let reason = if seq == 1 { "Started" } else { "ReceiptWritten" };
        EventRecord {
            position,
            time: jiff::Timestamp::UNIX_EPOCH,
            machine: "m".into(),
            workflow: "run".into(),
            workflow_uid: "00000000-0000-0000-0000-000000000000".parse().unwrap(),
            action_index: Some(0),
            action: "write".into(),
            attempt,
            reason: reason.into(),
            message: format!("receipt on disk {}", mark(attempt, seq)),
            problem: None,
        }
    }

    fn acked(at: u64, attempt: u32, upto: u64) -> Acked {
        Acked { at, what: Stored::Events { run: "run".into(), attempt, upto } }
    }

    #[test]
    fn the_highest_of_each_is_due() {
        let document = |serial| Acked { at: 9, what: Stored::Document { name: "w0".into(), serial } };
        let acks = [acked(1, 1, 3), acked(2, 1, 8), acked(3, 2, 1), document(4), document(5)];
        let due = Due::of(acks.iter());
        assert_eq!(due.events, BTreeMap::from([("run", BTreeMap::from([(1, 8), (2, 1)]))]));
        assert_eq!((due.count(), due.documents), (10, BTreeMap::from([("w0", 5)])));
    }

    #[test]
    fn a_missing_repeated_or_wrong_event_is_named() {
        let due = BTreeMap::from([(1, 3), (12, 1)]);
        let whole = vec![event(4, 12, 1), event(1, 1, 1), event(3, 1, 3), event(2, 1, 2), event(5, 2, 1)];
        has_events("run", &whole, &due).unwrap();
        let says = |events: &[EventRecord]| format!("{:#}", has_events("run", events, &due).unwrap_err());
        assert_eq!(says(&whole[1..]), "event 1 of attempt 12 of workflow run was acknowledged and is missing");
        let (mut lost, mut twice) = (whole.clone(), whole.clone());
        lost.retain(|event| event.position != 2);
        assert!(says(&lost).starts_with("event 2 of attempt 1 of workflow run was acknowledged, and in its place is"));
        twice.push(event(2, 1, 2));
        assert!(says(&twice).starts_with("event 3 of attempt 1 of workflow run was acknowledged, and in its place is"));
    }
}
