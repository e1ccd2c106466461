//! What the agent's handle and the session's task share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_api::{Problem, message::ActionRef};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::{BootClock, Outbox, lease::LeaseKeeper, telemetry::Telemetry};

/// Events that may wait for their ack before the next report must wait too. A workflow has a few per attempt, so this
/// covers hours of a silent coordinator.
const OUTBOX_CAPACITY: usize = 1024;

/// How the session stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Connection {
    /// On its way to the coordinator.
    Connecting,
    /// Welcomed.
    Connected {
        /// The session's epoch.
        epoch: u64,
    },
    /// Not connected; reconnects by itself.
    Disconnected {
        /// Why the last try or connection ended.
        problem: Problem,
        /// When it tries again.
        retry_in: Duration,
    },
    /// Over; nothing is sent any more. See [`crate::SessionHandle::restart`].
    Ended,
}

/// What handle and session task share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something is to be sent, or the running action changed.
    pub(crate) wake: Notify,
    /// There is one more of [`State::inspections`].
    pub(crate) inspect: Notify,
    pub(crate) unacked: watch::Sender<usize>,
    pub(crate) connection: watch::Sender<Connection>,
    pub(crate) telemetry: Arc<Telemetry>,
}

/// The part under the lock; it is never held across an await.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) outbox: Outbox,
    pub(crate) lease: LeaseKeeper,
    /// Between `Started` and `Finished` or `Failed`, one of each branch; the oldest first.
    pub(crate) running: Vec<ActionRef>,
    /// Attempts that were reported as ended and still have code that runs.
    pub(crate) stuck: usize,
    /// The run whose list the agent works on.
    pub(crate) holds: Option<Uuid>,
    /// How many assignments were taken, so that a look at the disks from before one is recognised.
    pub(crate) assigned: u64,
    /// Answers to checks of lists that are to be sent; a lost one is not sent again, since who asked waits for a minute only.
    pub(crate) checked: VecDeque<(Uuid, Option<Box<Problem>>)>,
    /// Looks at the machine that people wait for.
    pub(crate) inspections: Vec<Uuid>,
    /// 0 before the first welcome.
    pub(crate) epoch: u64,
    pub(crate) fenced: bool,
}

/// Looks that may be waited for; a coordinator asks for one a person.
const INSPECTIONS: usize = 64;

impl State {
    /// A person waits for another look. The oldest of too many is left unanswered.
    pub(crate) fn inspect(&mut self, uid: Uuid) {
        if self.inspections.len() >= INSPECTIONS {
            self.inspections.remove(0);
        }
        self.inspections.push(uid);
    }

    /// Whether this agent no longer acts on the machine.
    pub(crate) fn is_still(&self) -> bool {
        self.running.is_empty() && self.stuck == 0
    }
}

/// Held for as long as an attempt's code still runs, although its end was reported: no fence is answered meanwhile.
#[derive(Debug)]
#[must_use]
pub struct StillRuns(Arc<Shared>);

impl StillRuns {
    pub(crate) fn begin(shared: Arc<Shared>) -> Self {
        shared.lock().stuck += 1;
        Self(shared)
    }
}

impl Drop for StillRuns {
    fn drop(&mut self) {
        self.0.lock().stuck -= 1;
        self.0.wake.notify_one();
    }
}

impl Shared {
    pub(crate) fn new(clock: BootClock) -> Self {
        Self {
            state: Mutex::new(State {
                outbox: Outbox::new(OUTBOX_CAPACITY),
                lease: LeaseKeeper::new(clock),
                running: Vec::new(),
                stuck: 0,
                holds: None,
                assigned: 0,
                checked: VecDeque::new(),
                inspections: Vec::new(),
                epoch: 0,
                fenced: false,
            }),
            wake: Notify::new(),
            inspect: Notify::new(),
            unacked: watch::Sender::new(0),
            connection: watch::Sender::new(Connection::Connecting),
            telemetry: Arc::default(),
        }
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock means a panic elsewhere; the state itself is consistent after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Says how many events wait for their ack; to be called after each change.
    pub(crate) fn publish_unacked(&self) {
        let unacked = self.lock().outbox.unacked();
        self.unacked.send_replace(unacked);
    }
}
