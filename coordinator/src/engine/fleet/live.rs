//! What is known of a machine beyond its documents: its session, and the way to its agent. One lock a machine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_api::Machine;
use landfall_api::message::ToAgent;
use landfall_machine::elsewhere::Grounds;
use landfall_machine::{Epoch, Session};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, mpsc};
use uuid::Uuid;

/// Messages to an agent that may wait. An agent that reads so slowly is cut off, and gets everything again when it
/// comes back.
const TO_AGENT: usize = 64;

/// Every machine's lock, by uid, in an order that a simulation can repeat. Bounded by the machines there are, and those that were asked
/// for in the last minute.
#[derive(Default)]
pub(in crate::engine) struct Machines(Mutex<BTreeMap<Uuid, Arc<AsyncMutex<Live>>>>);

impl Machines {
    /// Waits for the machine's lock: at most as long as others' writes to the store take.
    pub(in crate::engine) async fn lock(&self, uid: Uuid) -> OwnedMutexGuard<Live> {
        let machine = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(uid).or_default().clone();
        machine.lock_owned().await
    }

    /// Whether something of that machine was asked here.
    pub(in crate::engine) fn knows(&self, uid: Uuid) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&uid)
    }

    pub(in crate::engine) fn forget(&self, uid: Uuid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
    }

    /// Forgets those that are not `known`, but for one that a task holds or waits for: two locks of one machine are none.
    pub(in crate::engine) fn sweep(&self, known: impl Fn(Uuid) -> bool) {
        let mut machines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        machines.retain(|uid, machine| known(*uid) || Arc::strong_count(machine) > 1);
    }

    pub(in crate::engine) fn uids(&self) -> Vec<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
}

/// One machine's session.
#[derive(Default)]
pub(in crate::engine) struct Live {
    /// The newest session, whether its stream is up or not. Changed by steps alone.
    pub(in crate::engine) session: Option<Session>,
    /// Where its messages go; `None` when the stream ended.
    to_agent: Option<mpsc::Sender<ToAgent>>,
    /// What its agent's instructions followed from in the last step, where several coordinators have one database.
    pub(in crate::engine) grounds: Option<Grounds>,
}

impl Live {
    /// A new stream: what is sent from now on goes there.
    pub(in crate::engine) fn open(&mut self) -> mpsc::Receiver<ToAgent> {
        let (sender, receiver) = mpsc::channel(TO_AGENT);
        self.to_agent = Some(sender);
        receiver
    }

    /// Ends the stream: the agent connects again, and gets everything anew.
    pub(in crate::engine) fn cut(&mut self) {
        self.to_agent = None;
        if let Some(session) = &mut self.session {
            session.cut();
        }
    }

    /// Another coordinator has given the machine a newer session than the one that is here, which ends. Its agent may be the same one: it
    /// asks again, and is judged then.
    pub(in crate::engine) fn give_way(&mut self, machine: &Machine) {
        let newest = Epoch::new(machine.status.as_ref().map_or(0, |status| status.epoch));
        if self.session.take_if(|session| session.epoch() < newest).is_some() {
            self.cut();
        }
    }

    /// The session whose stream has ended, where its machine's document does not say so.
    pub(in crate::engine) fn lost(&self) -> Option<Epoch> {
        let session = self.session.as_ref().filter(|session| !session.is_connected() && !session.is_silent())?;
        Some(session.epoch())
    }

    /// Takes in the session as a step left it.
    pub(in crate::engine) fn put(&mut self, session: Option<Session>) {
        let session = session.filter(|session| !session.is_elsewhere());
        if session.as_ref().is_none_or(|session| !session.is_connected()) {
            self.to_agent = None;
        }
        self.session = session;
    }

    /// Queues a message; an agent that does not take them in is cut off.
    pub(in crate::engine) fn send(&mut self, message: ToAgent) {
        if let Some(to_agent) = &self.to_agent
            && to_agent.try_send(message).is_err()
        {
            tracing::warn!("the agent does not read its messages; its session is closed");
            self.cut();
        }
    }

    /// Whether an agent is there that can be sent something.
    pub(in crate::engine) const fn is_connected(&self) -> bool {
        self.to_agent.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unused_lock_without_a_machine_is_removed() {
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
