//! Time: deadlines, silent agents, progress into the status, expired secrets.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use landfall_api::{Document, Kind, Problem};
use landfall_machine::run::{
    Event,
    conditions::{self, Heard},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Engine, clock_set::ClockWatch, derive, live::Live, sessions::SILENT_AFTER};
use landfall_store::StoreError;

/// How often everything here is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Secrets are purged once in so many ticks.
const PURGE_EVERY: u32 = 60;
/// History and event log are cut to their bounds once in so many ticks.
const RETAIN_EVERY: u32 = 600;

/// The first problem of several; the others are logged.
#[derive(Default)]
struct First(Option<Problem>);

impl First {
    fn note(&mut self, outcome: Result<(), Problem>) {
        match (outcome, &self.0) {
            (Ok(()), _) => {}
            (Err(problem), None) => self.0 = Some(problem),
            (Err(problem), Some(_)) => tracing::error!(%problem, "a tick failed here too"),
        }
    }
}

impl Engine {
    /// Looks at everything that time changes, until `stop`.
    pub async fn run_ticker(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(TICK);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = 0u32;
        let mut clock = ClockWatch::new(self.now(), Instant::now());
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            if let Some(by) = clock.leap(self.now(), Instant::now())
                && let Err(problem) = self.clock_set(by).await
            {
                tracing::error!(%problem, "not everything was given its time after the clock was set forward");
            }
            if let Err(problem) = self.tick().await {
                tracing::error!(%problem, "a tick failed; the next one tries again");
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(PURGE_EVERY)
                && let Err(error) = self.inner.store.secrets().purge(self.now()).await
            {
                tracing::error!(%error, "expired secrets were not purged; the next minute tries again");
            }
            if count.is_multiple_of(PURGE_EVERY) {
                self.forget_locks();
            }
            if count.is_multiple_of(RETAIN_EVERY)
                && let Err(problem) = self.retain().await
            {
                tracing::error!(%problem, "history and events were not cut; the next time tries again");
            }
            if count.is_multiple_of(PURGE_EVERY)
                && let Err(problem) = self.forget_strangers().await
            {
                tracing::error!(%problem, "discovered machines were not forgotten; the next minute tries again");
            }
        }
    }

    /// One look. What goes wrong with one run or machine keeps none of the others from being looked at.
    ///
    /// # Errors
    /// The first [`Problem`] there was.
    pub async fn tick(&self) -> Result<(), Problem> {
        let mut first = First::default();
        first.note(self.fold_progress().await);
        first.note(self.fold_tails().await);
        // When each machine's agent was last heard, by the machine's name; only of those with a stream.
        let mut heard = HashMap::new();
        // Machines on which somebody works, or may.
        let mut acting = HashSet::new();
        for uid in self.inner.machines.uids() {
            let mut live = self.inner.machines.lock(uid).await;
            first.note(self.note_silence(uid, &mut live).await);
            let (Some(session), Some(name)) = (&live.session, self.index().machine_name(uid)) else { continue };
            if session.to_agent.is_some() {
                heard.insert(name.clone(), session.last_heard);
            }
            if session.to_agent.is_some() || live.may_act(self.now()) {
                acting.insert(name);
            }
        }
        first.note(self.finish_deletions().await);
        first.note(self.take_back_again().await);
        first.note(self.beat().await);
        // On a line of its own: inside the loop's head the lock would be held over every await below.
        let active = self.index().active();
        // Of those not heard since the start nobody knows, for as long as a lease that was given before it may last.
        let known = self.now() > self.inner.started.checked_add(self.inner.settings.lease).unwrap_or(Timestamp::MAX);
        for (name, machine) in active {
            if known && !acting.contains(&machine) {
                self.index().admission.rest(&name);
            }
            first.note(self.look_at(&name, &machine, heard.get(&machine).copied()).await);
        }
        // Whoever ends wakes the queue at once; this is for a wake that failed.
        first.note(self.admit().await);
        first.note(self.show_queue().await);
        first.0.map_or(Ok(()), Err)
    }

    /// Locks that were taken for machines there are no more.
    fn forget_locks(&self) {
        self.inner.machines.sweep(|uid| self.index().machine_name(uid).is_some());
    }

    /// What time does to a run. `heard`: when its agent was last heard, if there is one.
    async fn look_at(&self, name: &str, machine: &str, heard: Option<Timestamp>) -> Result<(), Problem> {
        let now = self.now();
        let limit = self.inner.settings.heartbeat * SILENT_AFTER;
        let Some(found) = self.inner.store.documents().get(Kind::Workflow, name).await? else { return Ok(()) };
        let Document::Workflow(workflow) = &*found else { return Ok(()) };
        let overdue = workflow.status.as_ref().and_then(|s| s.deadline).is_some_and(|deadline| deadline <= now);
        let heard = Heard { last: heard, limit };
        // Judged as it is first: most runs have nothing new to say, and then nobody is locked and nothing written.
        if !overdue && !conditions::has_news(workflow, Some(heard), now) {
            return Ok(());
        }
        let described = self.inner.store.documents().get(Kind::Machine, machine).await?;
        let uid = described.and_then(|machine| machine.metadata().uid);
        let mut live = self.inner.machines.lock(uid.or(workflow.metadata.uid).unwrap_or_default()).await;
        if overdue {
            self.advance(&mut live, name, Event::Tick).await.map(drop)
        } else {
            self.note_pace(name, heard, now).await
        }
    }

    /// Whether the run is slow, silent or stuck. Under its machine's lock: a person's request at the same moment must not
    /// lose against it.
    async fn note_pace(&self, name: &str, heard: Heard, now: Timestamp) -> Result<(), Problem> {
        let Some(mut workflow) = self.inner.store.workflow(name).await? else { return Ok(()) };
        if !conditions::derive(&mut workflow, Some(heard), now) {
            return Ok(());
        }
        match self.inner.store.documents().update(Document::Workflow(Box::new(workflow))).await {
            // The next look, a second from now, sees what the other wrote.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn note_silence(&self, uid: Uuid, live: &mut Live) -> Result<(), Problem> {
        let now = self.now();
        let limit = self.inner.settings.heartbeat * SILENT_AFTER;
        let Some(session) = live.session.as_mut().filter(|s| s.to_agent.is_some() && !s.silent) else { return Ok(()) };
        // A clock that was set back makes the last word a future one: silence is counted from now on.
        session.last_heard = session.last_heard.min(now);
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
