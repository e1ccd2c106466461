//! The note that the coordinator is there, made once a minute: by it the next start knows for how long it was away.

use std::collections::HashMap;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use landfall_api::{Machine, Problem, Shared, Workflow};
use landfall_machine::{BEAT_EVERY, Input, derive, is_open};

use landfall_store::{Store, StoreError};

use super::{AT_ONCE, Upkeep};

/// The name under which it is noted that the coordinator was there.
pub(crate) const BEAT: &str = "store/alive";

/// For a store that was just put back from a copy: nothing says any more when it was last written, so that whatever it
/// holds of requests waits for a person.
///
/// # Errors
/// [`StoreError`] of the back end.
pub(crate) async fn forget_last_beat(store: &Store) -> Result<(), StoreError> {
    store.secrets().consume(BEAT, Timestamp::MIN).await.map(drop)
}

/// Reads when the store was last written.
///
/// # Errors
/// [`Problem`] of the store.
pub(in crate::engine) async fn last_beat(store: &Store, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
    // `Timestamp::MIN`: a beat counts whatever the clock says now.
    let bytes = store.secrets().get(BEAT, Timestamp::MIN).await?;
    let read = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).and_then(|text| text.parse().ok());
    if read.is_none() {
        tracing::info!(%now, "the time of the last write to this store is unknown");
    }
    Ok(read)
}

impl Upkeep {
    /// Notes that the coordinator is there, once in [`BEAT_EVERY`]. Not while agents may act on leases that a store put back
    /// does not know: a start before their end is to find that out again.
    pub(super) async fn beat(&self) -> Result<(), Problem> {
        // One that leads of a database that went back may not know yet that it did.
        let is_sure = self.fleet.leads() && self.fleet.may_promise();
        if !is_sure || self.fleet.limits().horizon.misses_leases(self.fleet.moment().steady) {
            return Ok(());
        }
        let now = self.fleet.now();
        {
            let mut last = self.beat.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if last.is_some_and(|last| now.duration_since(last).unsigned_abs() < BEAT_EVERY) {
                return Ok(());
            }
            *last = Some(now);
        }
        Ok(self.fleet.store().secrets().put(BEAT, now.to_string().as_bytes(), Timestamp::MAX).await?)
    }

    /// At the start: every machine with a workflow that has not ended takes in for how long the coordinator was away, and one
    /// whose document is behind its workflow's takes in the end.
    pub(super) async fn tell_of_the_start(
        &self, machines: &[Shared<Machine>], workflows: &[Shared<Workflow>],
    ) -> Result<(), Problem> {
        let at_work: HashMap<_, _> = machines
            .iter()
            .filter_map(|machine| Some((machine.status.as_ref()?.workflow.as_deref()?, machine)))
            .collect();
        let is_behind = |workflow: &Workflow| {
            at_work.get(workflow.metadata.name.as_str()).is_some_and(|machine| derive::is_behind(machine, workflow))
        };
        let concerned = workflows.iter().filter(|workflow| is_open(workflow) || is_behind(workflow));
        let steps: Vec<_> = concerned.map(|workflow| self.tell_of_start(workflow)).collect();
        futures::stream::iter(steps).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn tell_of_start(&self, workflow: &Workflow) -> Result<(), Problem> {
        // Untold, what was asked for too long ago could be carried out.
        match self.steps.hand_in(&workflow.spec.machine, Input::Started).await {
            Ok(()) => Ok(()),
            Err(problem) => self.give_up(workflow, "its machine cannot be marked", problem).await,
        }
    }
}
