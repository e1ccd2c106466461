//! Later looks at the machine, while a stream is open: when, and what of them is reported.

use std::convert::Infallible;
use std::time::Duration;

use landfall_api::MachineFacts;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{Runner, Seen};

/// Between looks whether the agent still holds a list, while other disks wait to be reported.
const HELD_POLL: Duration = Duration::from_secs(1);

/// What a later look found.
pub(super) enum Look {
    /// Disks, and all facts.
    Whole {
        /// What was seen.
        seen: Seen,
        /// The inspections that it answers.
        answers: Vec<Uuid>,
    },
    /// Facts alone.
    News(MachineFacts),
}

impl Runner {
    /// Looks at the machine again whenever its disks changed or a person wants it, once all of them are known. Not while the agent holds a list:
    /// a look from before a write would contradict the receipt that the write reports.
    ///
    /// Other news is sent at once: it contradicts no receipt.
    pub(super) async fn follow_disks(&self, mut seen: Seen, looks: Option<mpsc::Sender<Look>>) -> Infallible {
        let Some(looks) = looks else { return std::future::pending().await };
        let mut facts = seen.facts.clone();
        loop {
            let mut others = Box::pin(async {
                tokio::select! {
                    () = self.host.changed(&seen) => {}
                    // Those of a machine whose buses are being scanned are answered once all its disks are known.
                    () = self.asked(), if !seen.scanning => {}
                }
                self.until_free().await
            });
            let assigned = loop {
                tokio::select! {
                    assigned = &mut others => break assigned,
                    news = self.host.news(&facts) => {
                        facts = news;
                        if looks.send(Look::News(facts.clone())).await.is_err() {
                            return std::future::pending().await;
                        }
                    }
                }
            };
            drop(others);
            let answers = self.shared.lock().inspections.clone();
            let now = self.host.look().await;
            if self.shared.lock().assigned != assigned {
                continue;
            }
            let complete = !now.scanning;
            facts = now.facts.clone();
            seen = now;
            if complete && looks.send(Look::Whole { seen: seen.clone(), answers }).await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until a person wants a look.
    async fn asked(&self) {
        while self.shared.lock().inspections.is_empty() {
            self.shared.inspect.notified().await;
        }
    }

    /// Waits until the agent holds no list; how many it was assigned up to then.
    async fn until_free(&self) -> u64 {
        loop {
            let (holds, assigned) = {
                let state = self.shared.lock();
                (state.holds.is_some(), state.assigned)
            };
            if !holds {
                return assigned;
            }
            tokio::time::sleep(HELD_POLL).await;
        }
    }
}
