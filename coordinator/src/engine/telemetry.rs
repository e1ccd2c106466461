//! Progress and logs: kept in memory within bounds, never in anybody's way.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use landfall_api::{Problem, Progress};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::{Engine, LogRecord};

/// Lines kept of one run.
const LINES: usize = 1000;
/// Runs whose lines are kept; the one that logged least lately goes first.
const RUNS: usize = 256;
/// Lines a follower may be behind before it misses some.
const FOLLOW: usize = 256;
/// A line is cut here.
const LINE_BYTES: usize = 4096;

#[derive(Default)]
pub(super) struct Logs(Mutex<(u64, HashMap<Uuid, Ring>)>);

struct Ring {
    lines: VecDeque<LogRecord>,
    live: broadcast::Sender<LogRecord>,
    touched: u64,
}

impl Logs {
    fn with<T>(&self, workflow: Uuid, act: impl FnOnce(&mut Ring) -> T) -> T {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (clock, rings) = &mut *guard;
        *clock += 1;
        if !rings.contains_key(&workflow)
            && rings.len() >= RUNS
            && let Some(oldest) = rings.iter().min_by_key(|(_, ring)| ring.touched).map(|(uid, _)| *uid)
        {
            rings.remove(&oldest);
        }
        let ring = rings.entry(workflow).or_insert_with(|| Ring {
            lines: VecDeque::new(),
            live: broadcast::channel(FOLLOW).0,
            touched: 0,
        });
        ring.touched = *clock;
        act(ring)
    }

    pub(super) fn forget(&self, workflow: Uuid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&workflow);
    }
}

impl Engine {
    /// The newest log lines of a run, and those to come.
    pub fn logs(&self, workflow_uid: Uuid) -> (Vec<LogRecord>, broadcast::Receiver<LogRecord>) {
        self.inner.logs.with(workflow_uid, |ring| (ring.lines.iter().cloned().collect(), ring.live.subscribe()))
    }

    /// Whether this run is that machine's: a machine says nothing about another's runs.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read.
    pub async fn runs_on(&self, workflow_uid: Uuid, machine_uid: Uuid) -> Result<bool, Problem> {
        let (workflow, machine) = {
            let index = self.index();
            (index.workflow_name(workflow_uid), index.machine_name(machine_uid))
        };
        let (Some(workflow), Some(machine)) = (workflow, machine) else { return Ok(false) };
        Ok(self.inner.store.workflow(&workflow).await?.is_some_and(|w| w.spec.machine == machine))
    }

    /// Takes in a log line.
    pub fn log(&self, workflow_uid: Uuid, mut record: LogRecord) {
        if record.message.len() > LINE_BYTES {
            let end = (0..=LINE_BYTES).rev().find(|n| record.message.is_char_boundary(*n)).unwrap_or(0);
            record.message.truncate(end);
            record.message.push('…');
        }
        // Only runs there are have a ring; whatever else an agent names is dropped.
        if self.index().workflow_name(workflow_uid).is_none() {
            return;
        }
        self.inner.logs.with(workflow_uid, |ring| {
            if ring.lines.len() == LINES {
                ring.lines.pop_front();
            }
            ring.lines.push_back(record.clone());
            // Nobody follows: that is no error.
            let _followers = ring.live.send(record);
        });
    }

    /// Takes in progress; the status shows the newest, at most once a second.
    pub async fn progress(&self, machine: Uuid, workflow: Uuid, action: u32, attempt: u32, progress: Progress) {
        self.inner.machines.lock(machine).await.progress = Some((workflow, action, attempt, progress));
    }
}
