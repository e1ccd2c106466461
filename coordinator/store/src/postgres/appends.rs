//! Which events of a transaction are new, and what position each has.
//!
//! Events of an attempt are stored without a gap from 1, so the highest number tells of each whether it is there.

use std::collections::{BTreeSet, HashMap};

use landfall_api::message::EventRecord;
use tokio_postgres::Row;
use uuid::Uuid;

use super::load::number;
use crate::{StoreError, memory};

/// A workflow, one of its actions, and one try at it.
pub(super) type Attempt = (Uuid, u32, u32);

/// An event's attempt and its number there.
pub(super) type Place = (Attempt, u64);

fn attempt(event: &EventRecord) -> Attempt {
    (event.workflow_uid, event.action_index, event.attempt)
}

/// What is to be read of the log before events are appended.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) workflows: BTreeSet<Uuid>,
    pub(super) attempts: BTreeSet<Attempt>,
}

impl Wanted {
    /// `raised`: workflows whose epoch is to be raised.
    pub(super) fn of<'e>(events: impl Iterator<Item = &'e EventRecord>, raised: impl Iterator<Item = Uuid>) -> Self {
        let mut wanted = Self { workflows: raised.collect(), ..Self::default() };
        for event in events {
            wanted.workflows.insert(event.workflow_uid);
            wanted.attempts.insert(attempt(event));
        }
        wanted
    }
}

/// The log, as the transaction has it.
#[derive(Default)]
pub(super) struct Log {
    /// Events of each workflow.
    counts: HashMap<Uuid, u64>,
    /// The epoch of the newest session of each workflow's machine.
    epochs: HashMap<Uuid, u64>,
    /// Those that are to be raised, and to what.
    pub(super) raised: HashMap<Uuid, u64>,
    /// The highest number of each attempt.
    newest: HashMap<Attempt, u64>,
    /// What is to be stored, each with its JSON.
    pub(super) new: Vec<(Place, String)>,
    /// Events that were there before.
    pub(super) known: Vec<Place>,
}

impl Log {
    /// As the statements `runs` and `newest` answer.
    pub(super) fn read(runs: &[Row], newest: &[Row]) -> Self {
        let counts = runs.iter().map(|row| (row.get(0), number(row.get(1)))).collect();
        let epochs = runs.iter().map(|row| (row.get(0), number(row.get(2)))).collect();
        let of = |row: &Row| Some((place(row, 3)?.0, number(row.get::<_, Option<i64>>(3)?)));
        Self { counts, epochs, newest: newest.iter().filter_map(of).collect(), ..Self::default() }
    }

    /// From now on only sessions of this epoch, and later ones, report on the workflow.
    pub(super) fn raise(&mut self, (workflow, epoch): (Uuid, u64)) {
        if let Some(known) = self.epochs.get_mut(&workflow).filter(|known| **known < epoch) {
            *known = epoch;
            self.raised.insert(workflow, epoch);
        }
    }

    /// Appends a batch, all or nothing; where each event is.
    pub(super) fn append(&mut self, epoch: u64, events: &[EventRecord]) -> Result<Vec<Place>, StoreError> {
        memory::check_epoch(events, epoch, &self.epochs)?;
        let (new, known) = (self.new.len(), self.known.len());
        let appended: Result<Vec<_>, _> = events.iter().map(|event| self.append_one(event)).collect();
        if appended.is_err() {
            for ((of, seq), _) in self.new.drain(new..).rev() {
                self.newest.insert(of, seq - 1);
                self.counts.entry(of.0).and_modify(|count| *count -= 1);
            }
            self.known.truncate(known);
        }
        appended
    }

    fn append_one(&mut self, event: &EventRecord) -> Result<Place, StoreError> {
        let of = attempt(event);
        let newest = self.newest.entry(of).or_default();
        let count = self.counts.entry(of.0).or_default();
        let place = (of, event.seq);
        if (1..=*newest).contains(&event.seq) {
            self.known.push(place);
            return Ok(place);
        }
        memory::check_next(event, *newest, *count)?;
        let what = || format!("an event of workflow {}", event.workflow_uid);
        let json = serde_json::to_string(event).map_err(|source| StoreError::Corrupt { what: what(), source })?;
        (*newest, *count) = (event.seq, *count + 1);
        self.new.push((place, json));
        Ok(place)
    }

    /// How many new events each workflow has.
    pub(super) fn added(&self) -> HashMap<Uuid, i64> {
        let mut added = HashMap::new();
        for (((workflow, ..), _), _) in &self.new {
            *added.entry(*workflow).or_default() += 1;
        }
        added
    }

    /// Workflows that have none after this transaction: all that was to be appended was refused.
    pub(super) fn without_events(&self) -> Vec<Uuid> {
        self.counts.iter().filter(|(_, count)| **count == 0).map(|(workflow, _)| *workflow).collect()
    }
}

/// The attempt in the first columns of a row, and the number that follows.
pub(super) fn place(row: &Row, seq: usize) -> Option<Place> {
    let index = |column| u32::try_from(row.get::<_, i64>(column)).ok();
    Some(((row.get(0), index(1)?, index(2)?), number(row.get::<_, Option<i64>>(seq).unwrap_or_default())))
}
