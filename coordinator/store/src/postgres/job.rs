//! What the writer is asked for, and what it answers.

use std::collections::HashMap;

use landfall_api::Document;
use landfall_api::message::EventRecord;
use tokio::sync::oneshot;

use super::appends::Place;
use crate::StoreError;
use crate::hold::{Alone, Turn};
use crate::journal::By;
use crate::rules::Asked;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// An operation of a transaction.
pub(super) enum Job {
    /// Changes documents, all or none, and in a turn only while that lasts; answers what is stored then.
    Change { asked: Vec<Asked>, by: By, turn: Option<Turn>, reply: Reply<Vec<Document>> },
    /// Appends the events of a session of that epoch; answers their positions.
    Append { epoch: u64, events: Vec<EventRecord>, reply: Reply<Vec<u64>> },
    /// Begins a turn, and takes in what others have committed; answers its number, and up to which revision.
    Turn { what: Alone, reply: Reply<(u64, u64)> },
    /// Adds a line to the audit log, in the place of an intent where one is stated; answers its position.
    Note { note: Note, reply: Reply<u64> },
}

/// A line of the audit log.
pub(super) struct Note {
    pub(super) ring: i16,
    pub(super) is_intent: bool,
    pub(super) json: String,
    pub(super) instead_of: Option<i64>,
}

/// What an operation comes to, if its transaction is committed.
pub(super) enum Planned {
    Changed(Result<Vec<Document>, StoreError>),
    Appended(Result<Vec<Place>, StoreError>),
    Turned(u64, u64),
    /// Its index among the notes of its transaction, from 0.
    Noted(usize),
}

/// Where the transaction has put things.
#[derive(Default)]
pub(super) struct Positions {
    pub(super) events: HashMap<Place, u64>,
    pub(super) audit: Vec<u64>,
}

impl Job {
    /// Answers the caller, after the commit. One that has gone does not matter: what it asked for stands all the same.
    pub(super) fn answer(self, planned: Planned, positions: &Positions) {
        match (self, planned) {
            (Self::Change { reply, .. }, Planned::Changed(result)) => drop(reply.send(result)),
            (Self::Append { reply, .. }, Planned::Appended(result)) => {
                let position = |place: &Place| positions.events.get(place).copied().ok_or(StoreError::Closed);
                drop(reply.send(result.and_then(|places| places.iter().map(position).collect())));
            }
            (Self::Turn { reply, .. }, Planned::Turned(number, revision)) => drop(reply.send(Ok((number, revision)))),
            (Self::Note { reply, .. }, Planned::Noted(nth)) => {
                drop(reply.send(positions.audit.get(nth).copied().ok_or(StoreError::Closed)));
            }
            (job, _) => job.refuse(StoreError::Closed),
        }
    }

    /// Answers that nothing was acknowledged.
    pub(super) fn refuse(self, why: StoreError) {
        match self {
            Self::Change { reply, .. } => drop(reply.send(Err(why))),
            Self::Append { reply, .. } => drop(reply.send(Err(why))),
            Self::Turn { reply, .. } => drop(reply.send(Err(why))),
            Self::Note { reply, .. } => drop(reply.send(Err(why))),
        }
    }
}
