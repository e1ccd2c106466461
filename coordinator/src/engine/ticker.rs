//! Time: deadlines, silent agents, progress into the status, expired secrets.

use std::time::Duration;

use landfall_api::{ActionState, Document, Problem, WorkflowPhase};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Engine, derive, live::Live, sessions::SILENT_AFTER};
use crate::{store::StoreError, workflow::Event};

/// How often everything here is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Secrets are purged once in so many ticks.
const PURGE_EVERY: u32 = 60;

impl Engine {
    /// Looks at everything that time changes, until `stop`.
    pub async fn run_ticker(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(TICK);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = 0u32;
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            if let Err(problem) = self.tick().await {
                tracing::error!(%problem, "a tick failed; the next one tries again");
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(PURGE_EVERY)
                && let Err(error) = self.inner.store.secrets().purge(self.now()).await
            {
                tracing::error!(%error, "expired secrets were not purged; the next minute tries again");
            }
        }
    }

    /// One look.
    ///
    /// # Errors
    /// The first [`Problem`] of the store.
    pub async fn tick(&self) -> Result<(), Problem> {
        for uid in self.inner.machines.uids() {
            let mut live = self.inner.machines.lock(uid).await;
            self.fold_progress(&mut live).await?;
            self.note_silence(uid, &mut live).await?;
        }
        let now = self.now();
        // On a line of its own: inside the loop's head the lock would be held over every await below.
        let active = self.index().active();
        for (name, machine) in active {
            let Some(workflow) = self.inner.store.workflow(&name).await? else { continue };
            let overdue = workflow.status.as_ref().and_then(|s| s.deadline).is_some_and(|deadline| deadline <= now);
            if !overdue {
                continue;
            }
            let uid = self.inner.store.machine(&machine).await?.and_then(|m| m.metadata.uid);
            let mut live = self.inner.machines.lock(uid.or(workflow.metadata.uid).unwrap_or_default()).await;
            self.advance(&mut live, &name, Event::Tick).await?;
        }
        Ok(())
    }

    async fn fold_progress(&self, live: &mut Live) -> Result<(), Problem> {
        let Some((uid, index, attempt, progress)) = live.progress.take() else { return Ok(()) };
        let Some(name) = self.index().workflow_name(uid) else { return Ok(()) };
        let Some(mut workflow) = self.inner.store.workflow(&name).await? else { return Ok(()) };
        let Some(status) = workflow.status.as_mut().filter(|s| s.phase == WorkflowPhase::Running) else {
            return Ok(());
        };
        let Some(action) = status.actions.get_mut(index as usize) else { return Ok(()) };
        if action.state == ActionState::Succeeded || action.attempt != attempt {
            return Ok(());
        }
        action.progress = Some(progress);
        match self.inner.store.documents().update(Document::Workflow(Box::new(workflow))).await {
            // Progress may be thinned: whoever won said something newer or better.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn note_silence(&self, uid: Uuid, live: &mut Live) -> Result<(), Problem> {
        let now = self.now();
        let limit = self.inner.settings.heartbeat * SILENT_AFTER;
        let Some(session) = live.session.as_mut().filter(|s| s.to_agent.is_some() && !s.silent) else { return Ok(()) };
        if now.duration_since(session.last_heard).unsigned_abs() < limit {
            return Ok(());
        }
        session.silent = true;
        let heard = session.last_heard;
        let Some(name) = self.index().machine_name(uid) else { return Ok(()) };
        tracing::warn!(machine = %name, last_heard = %heard, "the agent is silent");
        self.mutate_machine(&name, |machine| {
            let at = (now, machine.metadata.generation);
            let status = machine.status.get_or_insert_with(derive::new_machine_status);
            status.last_heard = Some(heard);
            let message = format!("nothing was heard of the agent since {heard}");
            derive::set(&mut status.conditions, "Connected", false, "Silent", message, at);
        })
        .await
        .map(drop)
    }
}
