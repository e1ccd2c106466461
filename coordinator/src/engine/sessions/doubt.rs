//! A coordinator that may have lost its store lets its agents go, so that another one can answer them.

use std::time::Duration;

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::Sessions;
use crate::engine::fleet::GIVE_UP_AFTER;

/// How often the store is asked.
const LOOK: Duration = Duration::from_secs(1);
/// Machines whose locks are waited for at once.
const AT_ONCE: usize = 64;

impl Sessions {
    /// Looks until `stop`. An agent goes on with its work by its lease, and connects to the coordinator that takes its session.
    pub async fn let_go_in_doubt(&self, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK);
        let mut was_unsure = false;
        while stop.run_until_cancelled(look.tick()).await.is_some() {
            let is_unsure = self.fleet.has_lost_store();
            if is_unsure && !was_unsure {
                tracing::warn!(
                    "the store has not answered for {} s: agents are let go, to another coordinator if there is one",
                    GIVE_UP_AFTER.as_secs()
                );
                self.let_go().await;
            }
            was_unsure = is_unsure;
        }
    }

    /// Ends every session's stream. A machine whose lock waits for the store holds up few others.
    pub async fn let_go(&self) {
        let uids = futures::stream::iter(self.fleet.machines().uids());
        uids.for_each_concurrent(AT_ONCE, |uid| async move { self.fleet.machines().lock(uid).await.cut() }).await;
    }
}
