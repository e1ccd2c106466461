//! A coordinator that may have lost its store lets its agents go, so that another one can answer them.

use std::time::Duration;

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::Sessions;

/// How often the store is asked.
const LOOK: Duration = Duration::from_secs(1);
/// After so long without a word of the store. A database that restarts takes less, and disturbs no agent.
const LET_GO_AFTER: Duration = Duration::from_secs(10);
/// Machines whose locks are waited for at once.
const AT_ONCE: usize = 64;

impl Sessions {
    /// Looks until `stop`. An agent goes on with its work by its lease, and connects to the coordinator that takes its session.
    pub async fn let_go_in_doubt(&self, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK);
        let mut was_unsure = false;
        while stop.run_until_cancelled(look.tick()).await.is_some() {
            let is_unsure = self.fleet.store().documents().unconfirmed() > LET_GO_AFTER;
            if is_unsure && !was_unsure {
                tracing::warn!(
                    "the store has not answered for {} s: agents are let go, to another coordinator if there is one",
                    LET_GO_AFTER.as_secs()
                );
                self.let_go().await;
            }
            was_unsure = is_unsure;
        }
    }

    /// Ends every session's stream. A machine whose lock waits for the store holds up no other.
    pub(in crate::engine) async fn let_go(&self) {
        let uids = futures::stream::iter(self.fleet.machines().uids());
        uids.for_each_concurrent(AT_ONCE, |uid| async move { self.fleet.machines().lock(uid).await.cut() }).await;
    }
}
