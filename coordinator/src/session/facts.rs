//! Facts of one session that wait for their turn. Each is a document of up to 1 MiB that is written and synced, so a machine's are
//! written at a pace, and only the newest count.

use std::{sync::Arc, time::Duration};

use landfall_api::MachineFacts;
use landfall_edge::gate::{Limiters, Rate};
use uuid::Uuid;

/// Of one machine, over all its sessions: a dozen at once, for one whose network fails again and again, and one each 5 s. An agent
/// says its facts once a session, and when it hears of another neighbour.
pub(super) const RATE: Rate = Rate::of(Duration::from_secs(5), Duration::from_secs(60));

/// The newest facts that are not written yet.
pub(super) struct Facts {
    pace: Arc<Limiters<Uuid>>,
    machine: Uuid,
    waiting: Option<Box<MachineFacts>>,
}

impl Facts {
    pub(super) const fn new(pace: Arc<Limiters<Uuid>>, machine: Uuid) -> Self {
        Self { pace, machine, waiting: None }
    }

    /// Newer ones.
    pub(super) fn put(&mut self, facts: Box<MachineFacts>) {
        self.waiting = Some(facts);
    }

    /// Whether some are not written yet.
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Those that are to be written now. Asked with every heartbeat as well, so that the newest are never left.
    pub(super) fn due(&mut self) -> Option<Box<MachineFacts>> {
        self.waiting.as_ref()?;
        self.pace.step(self.machine)?;
        self.waiting.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_machines_facts_are_written_at_a_pace_newest_last() {
        let pace = Arc::new(Limiters::new(RATE, 16));
        let of = |n: u64| Box::new(MachineFacts { memory_bytes: n, ..MachineFacts::default() });
        let mut written = Vec::new();
        // It opens another session to get more.
        for session in 0..2 {
            let mut facts = Facts::new(Arc::clone(&pace), Uuid::from_u128(1));
            for n in 0..50 {
                facts.put(of(50 * session + n));
                written.extend(facts.due().map(|facts| facts.memory_bytes));
            }
            assert_eq!(written, (0..12).collect::<Vec<_>>());
            if session == 1 {
                tokio::time::advance(Duration::from_secs(5)).await;
                assert_eq!((facts.due().map(|facts| facts.memory_bytes), facts.due()), (Some(99), None));
            }
        }
        let mut other = Facts::new(pace, Uuid::from_u128(2));
        other.put(of(7));
        assert!(other.due().is_some());
    }
}
