//! What is known of a machine beyond its document: its session. One lock a machine.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use landfall_api::{DiskId, DiskReceipt};
use landfall_machine::stopping::Stopping;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, mpsc};
use uuid::Uuid;

use super::ToAgent;

/// Messages to an agent that may wait. An agent that reads so slowly is cut off, and gets everything again when it
/// comes back.
pub(super) const TO_AGENT: usize = 64;

/// Every machine's lock, by uid. Bounded by the machines there are, and those that were asked for in the last minute.
#[derive(Default)]
pub(super) struct Machines(Mutex<HashMap<Uuid, Arc<AsyncMutex<Live>>>>);

impl Machines {
    /// Waits for the machine's lock: at most as long as others' writes to the store take.
    pub(super) async fn lock(&self, uid: Uuid) -> OwnedMutexGuard<Live> {
        let machine = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(uid).or_default().clone();
        machine.lock_owned().await
    }

    pub(super) fn forget(&self, uid: Uuid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
    }

    /// Forgets those that are not `known`, but for one that somebody holds or waits for: two locks of one machine are none.
    pub(super) fn sweep(&self, known: impl Fn(Uuid) -> bool) {
        let mut machines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        machines.retain(|uid, machine| known(*uid) || Arc::strong_count(machine) > 1);
    }

    pub(super) fn uids(&self) -> Vec<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
}

#[derive(Default)]
pub(super) struct Live {
    /// The newest session, whether its stream is up or not.
    pub(super) session: Option<LiveSession>,
}

pub(super) struct LiveSession {
    pub(super) epoch: u64,
    pub(super) boot_id: String,
    pub(super) disks: Vec<DiskId>,
    pub(super) address: String,
    /// The protocol revision its agent speaks.
    pub(super) protocol: u32,
    pub(super) receipts: Vec<DiskReceipt>,
    /// `None` when the stream ended, or when only the status knows of this session (after a restart).
    pub(super) to_agent: Option<mpsc::Sender<ToAgent>>,
    pub(super) last_heard: Timestamp,
    /// It holds an assignment.
    pub(super) leased: bool,
    /// Until then it may act.
    pub(super) lease_until: Timestamp,
    /// The run it holds an assignment of is over, and it has not yet said that it has stopped. Not renewed any more.
    pub(super) stopping: Option<Stopping>,
    /// Marked silent in the conditions.
    pub(super) silent: bool,
    /// When the status last noted that it was heard.
    pub(super) noted: Timestamp,
    /// The agent's peak memory as the status has it, bytes.
    pub(super) peak_rss_bytes: u64,
    /// A receipt that the store does not know was found; nothing is assigned.
    pub(super) held: bool,
    /// It outlived its last session and holds a list; whether it still works on it shows in a moment.
    pub(super) settling: bool,
}

impl Live {
    /// Queues a message; an agent that does not take them in is cut off.
    pub(super) fn send(&mut self, message: ToAgent) {
        if let Some(session) = &mut self.session
            && let Some(to_agent) = &session.to_agent
            && to_agent.try_send(message).is_err()
        {
            tracing::warn!(epoch = session.epoch, "the agent does not take in messages; its session is cut");
            session.to_agent = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_of_no_machine_goes_unless_somebody_has_it() {
        let machines = Machines::default();
        let [known, held, gone] = [1, 2, 3].map(Uuid::from_u128);
        for uid in [known, gone] {
            drop(machines.lock(uid).await);
        }
        let guard = machines.lock(held).await;
        machines.sweep(|uid| uid == known);
        let left = |machines: &Machines| {
            let mut uids = machines.uids();
            uids.sort();
            uids
        };
        assert_eq!(left(&machines), [known, held]);
        drop(guard);
        machines.sweep(|uid| uid == known);
        assert_eq!(left(&machines), [known]);
    }
}
