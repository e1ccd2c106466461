//! Removes old data by age and number, so that the store stays bounded for years.

use std::time::Duration;

use landfall_api::{Kind, Problem};
use landfall_machine::has_ended;

use super::Removals;
use landfall_store::{HISTORY_AGE, HISTORY_TOTAL};

/// Events kept of all runs together: some hundred MB, and 50,000 installs of 20 events each.
const LOGGED_EVENTS: u64 = 1_000_000;

/// For so long the runs of a deleted machine can still be read.
const KEPT_AFTER_MACHINE: Duration = Duration::from_secs(24 * 3600);

impl Removals {
    /// Drops old history, the events of runs that are gone, and beyond a bound those of the runs that ended longest ago.
    /// A run that has not ended keeps its events whatever their number: it is replayed from them.
    ///
    /// # Errors
    /// [`Problem`] of the store; the next time tries again.
    pub(in crate::engine) async fn retain(&self) -> Result<(), Problem> {
        self.drop_runs_without_machine().await?;
        self.retain_events(LOGGED_EVENTS).await?;
        let oldest = self.fleet.now().checked_sub(HISTORY_AGE).unwrap_or(jiff::Timestamp::MIN);
        let dropped = self.fleet.store().documents().trim_history(oldest, HISTORY_TOTAL).await?;
        if dropped > 0 {
            tracing::info!(dropped, "old changes were removed from the history");
        }
        Ok(())
    }

    /// A deleted machine's runs can still be read for a day, then they go. One that has not ended stays.
    pub(in crate::engine) async fn drop_runs_without_machine(&self) -> Result<(), Problem> {
        let before = self.fleet.now().checked_sub(KEPT_AFTER_MACHINE).unwrap_or(jiff::Timestamp::MIN);
        let names = self.fleet.index().runs_without_machine();
        for name in names {
            let Some(run) = self.fleet.store().workflow(&name).await? else { continue };
            if self.fleet.store().is_unreadable(Kind::Machine, &run.spec.machine) {
                continue;
            }
            if run.status.as_ref().and_then(|status| status.ended_at).is_some_and(|ended| ended < before) {
                self.forget_workflow(&run).await?;
                tracing::info!(workflow = %name, machine = %run.spec.machine, "a run of a deleted machine was dropped");
            }
        }
        Ok(())
    }

    pub(in crate::engine) async fn retain_events(&self, most: u64) -> Result<(), Problem> {
        // Listed before the documents are looked at: every event is younger than its run's document, also one that another coordinator
        // has made.
        let runs = self.fleet.store().events().runs().await?;
        self.fleet.hear_others().await?;
        self.fleet.is_sure_to_lead()?;
        let mut total: u64 = runs.iter().map(|run| run.events).sum();
        let mut ended = Vec::new();
        for run in runs {
            let name = self.fleet.index().workflow_name(run.workflow_uid);
            let workflow = match &name {
                Some(name) => self.fleet.store().workflow(name).await?,
                None => None,
            };
            match workflow.filter(|w| w.metadata.uid == Some(run.workflow_uid)) {
                // They may be those of a workflow that could not be read.
                None if !self.fleet.store().unreadable().is_empty() => {}
                None => total -= self.fleet.store().events().forget(run.workflow_uid).await?.min(total),
                Some(workflow) if has_ended(&workflow) => ended.push(run),
                Some(_) => {}
            }
        }
        for run in ended {
            if total <= most {
                break;
            }
            total -= self.fleet.store().events().forget(run.workflow_uid).await?.min(total);
            tracing::info!(run = %run.workflow_uid, events = run.events, "events of an old ended workflow were \
                removed");
        }
        Ok(())
    }
}
