//! Time: deadlines, silent agents, progress into the status, expired secrets.

mod clock_set;
mod horizon;
mod replay;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use landfall_api::{Document, Kind, Machine, Problem, Shared, Workflow};
use landfall_edge::metrics::metrics;
use landfall_machine::{Input, Now, Steady, elsewhere, has_begun, is_due, is_open};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::enrolments::Enrolments;
use super::fleet::Fleet;
use super::removals::Removals;
use super::requests::Requests;
use super::steps::Steps;
use super::telemetry::Telemetry;
use clock_set::ClockWatch;
pub(in crate::engine) use horizon::last_beat;
pub(crate) use horizon::{BEAT, forget_last_beat};

/// How often everything here is looked at.
const TICK: Duration = Duration::from_secs(1);
/// So long a status that the event log has may be newer in memory than on the disk. A start after a crash makes it up, with
/// the times of that start.
const UNWRITTEN: Duration = Duration::from_secs(10);
/// Workflows whose events are read again at once, at the start.
const AT_ONCE: usize = 64;
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

/// No request takes so long.
const LONGEST_REQUEST: Duration = Duration::from_secs(15 * 60);

/// What a tick sees of a machine's session.
struct SessionLook {
    machine: String,
    /// Absent: it has no stream.
    last_heard: Option<Timestamp>,
    may_act: bool,
    outcome: Result<(), Problem>,
}

/// What time changes, and what a start finds.
pub struct Upkeep {
    fleet: Arc<Fleet>,
    steps: Steps,
    telemetry: Arc<Telemetry>,
    removals: Arc<Removals>,
    requests: Requests,
    enrolments: Enrolments,
    /// When the last tick ended, in milliseconds after the start.
    ticked: AtomicU64,
    /// When it was last noted that this coordinator is there.
    beat: Mutex<Option<Timestamp>>,
    unheard: Mutex<elsewhere::Unheard>,
}

impl Upkeep {
    pub(in crate::engine) fn new(
        fleet: Arc<Fleet>, steps: Steps, telemetry: Arc<Telemetry>, removals: Arc<Removals>, requests: Requests,
        enrolments: Enrolments,
    ) -> Self {
        Self {
            fleet,
            steps,
            telemetry,
            removals,
            requests,
            enrolments,
            ticked: AtomicU64::new(0),
            beat: Mutex::default(),
            unheard: Mutex::default(),
        }
    }

    fn unheard(&self) -> MutexGuard<'_, elsewhere::Unheard> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) const fn steps(&self) -> &Steps {
        &self.steps
    }

    #[cfg(test)]
    pub(super) fn removals(&self) -> &Removals {
        &self.removals
    }

    /// Before time passes here for those machines that this coordinator `has`: mends what a crash left behind.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(super) async fn begin(
        &self, machines: &[Shared<Machine>], workflows: Vec<Shared<Workflow>>, has: impl Fn(&Machine) -> bool,
    ) -> Result<(), Problem> {
        let mut workflows = workflows;
        if self.fleet.own().is_none() {
            self.enrolments.end_starts(machines, Timestamp::MAX).await?;
        } else {
            let has = machines.iter().filter(|machine| has(machine));
            let has: HashSet<_> = has.map(|machine| machine.metadata.name.as_str()).collect();
            workflows.retain(|workflow| has.contains(workflow.spec.machine.as_str()));
        }
        // Of an earlier process: others would go on to wait for what this one hears of it.
        let is_left =
            |machine: &&Shared<Machine>| self.fleet.beside().has_session(machine) && elsewhere::is_connected(machine);
        let connected = machines.iter().filter(is_left);
        let own = self.fleet.own().unwrap_or_default();
        let take_over = || Input::TakeOver(own.to_string());
        let connected: Vec<_> =
            connected.map(|machine| self.steps.hand_in(&machine.metadata.name, take_over())).collect();
        futures::stream::iter(connected).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        self.tell_of_the_start(machines, &workflows).await?;
        // Only now: after a crash in between the same state must be found again.
        self.beat().await?;
        let begun = workflows.iter().filter(|workflow| is_open(workflow) && has_begun(workflow));
        // Side by side, so that they share a commit: no agent is heard before the last of them.
        let begun: Vec<_> = begun.map(|workflow| self.catch_up(workflow)).collect();
        futures::stream::iter(begun).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// The time since the last tick ended, or since the start before the first.
    pub fn since_last_tick(&self) -> Duration {
        let last = Steady::after_start(Duration::from_millis(self.ticked.load(Ordering::Relaxed)));
        self.fleet.moment().steady.since(last)
    }

    /// A tick has ended, well or not.
    fn ticked(&self) {
        let moment = self.fleet.moment();
        let passed = u64::try_from(moment.steady.since(Steady::START).as_millis()).unwrap_or(u64::MAX);
        self.ticked.store(passed, Ordering::Relaxed);
        metrics().ticked.set(moment.wall.as_second());
    }

    /// Looks at everything that time changes, until `stop`.
    pub async fn run_ticker(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(TICK);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = 0u32;
        let mut clock = ClockWatch::new(self.fleet.now(), Instant::now());
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            if let Some(by) = clock.leap(self.fleet.now(), Instant::now())
                && let Err(problem) = self.clock_set(by).await
            {
                tracing::error!(%problem, "not everything was given its time after the clock was set");
            }
            if let Err(problem) = self.tick().await {
                tracing::error!(%problem, "a tick failed; the next one retries");
            }
            self.ticked();
            count = count.wrapping_add(1);
            if count.is_multiple_of(PURGE_EVERY)
                && self.fleet.leads()
                && let Err(error) = self.fleet.store().secrets().purge(self.fleet.now()).await
            {
                tracing::error!(%error, "expired secrets were not removed; retry in a minute");
            }
            if count.is_multiple_of(PURGE_EVERY) {
                self.forget_locks();
            }
            if count.is_multiple_of(RETAIN_EVERY)
                && self.fleet.leads()
                && let Err(problem) = self.removals.retain().await
            {
                tracing::error!(%problem, "history and events were not trimmed; the next run retries");
            }
            if count.is_multiple_of(RETAIN_EVERY)
                && self.fleet.own().is_some()
                && self.fleet.leads()
                && let Err(problem) = self.end_interrupted().await
            {
                tracing::error!(%problem, "not all that was interrupted at another coordinator was ended; the next run retries");
            }
            if count.is_multiple_of(PURGE_EVERY)
                && self.fleet.leads()
                && let Err(problem) = self.enrolments.forget_unapproved().await
            {
                tracing::error!(%problem, "discovered machines were not forgotten; retry in a minute");
            }
        }
    }

    /// What was begun long ago at one of several coordinators has ended, or was interrupted.
    async fn end_interrupted(&self) -> Result<(), Problem> {
        let long_ago = self.fleet.now().checked_sub(LONGEST_REQUEST).unwrap_or(Timestamp::MIN);
        self.fleet.store().audit().reveal(long_ago).await?;
        self.enrolments.end_starts(&self.fleet.store().machines().await?, long_ago).await
    }

    /// One look. A fault of one workflow or machine does not prevent the check of the others.
    ///
    /// # Errors
    /// The first [`Problem`] there was.
    pub async fn tick(&self) -> Result<(), Problem> {
        let mut first = First::default();
        first.note(self.telemetry.fold_progress().await);
        first.note(self.telemetry.fold_tails().await);
        // When each machine's agent was last heard, by the machine's name; only of those with a stream.
        let mut heard = HashMap::new();
        // Machines with a working agent, or a possible one.
        let mut acting = HashSet::new();
        let (now, limits) = (self.fleet.moment(), self.fleet.limits());
        // Side by side, here and below, so that they share commits: a whole fleet may fall silent at once.
        let uids = futures::stream::iter(self.fleet.machines().uids());
        let mut looks = uids.map(|uid| self.look_at_session(uid, now)).buffer_unordered(AT_ONCE);
        while let Some(look) = looks.next().await {
            let Some(SessionLook { machine, last_heard, may_act, outcome }) = look else { continue };
            first.note(outcome);
            if let Some(last) = last_heard {
                heard.insert(machine.clone(), last);
            }
            if may_act {
                acting.insert(machine);
            }
        }
        drop(looks);
        first.note(self.requests.finish_deletions().await);
        if let Some(store) = self.fleet.store().upkeep() {
            first.note(store.write_older(UNWRITTEN).await.map_err(Problem::from));
        }
        first.note(self.beat().await);
        // On a line of its own: inside the loop's head the lock would be held over every await below.
        let active = self.fleet.index().active();
        // Machines not heard since the start are unknown, for as long as an earlier lease may last.
        let known = now.steady > Steady::START.plus(limits.lease);
        let named: HashSet<_> = active.iter().map(|(_, machine)| machine.as_str()).collect();
        // Time without news is not silence.
        let hears = self.fleet.may_promise();
        self.unheard().retain(|machine| hears && named.contains(machine));
        let active = active.into_iter().map(|(name, machine)| {
            let rests = known && !acting.contains(&machine);
            let heard = heard.get(&machine).copied();
            (name, machine, heard, rests)
        });
        let looks = futures::stream::iter(active)
            .map(|(name, machine, heard, rests)| self.look_at(name, machine, heard, rests));
        let mut looks = looks.buffer_unordered(AT_ONCE);
        while let Some(outcome) = looks.next().await {
            first.note(outcome);
        }
        drop(looks);
        // An ending workflow wakes the queue at once; this is for a wake that failed.
        first.note(self.steps.admit().await);
        if self.fleet.leads() {
            first.note(self.steps.show_queue().await);
        }
        first.0.map_or(Ok(()), Err)
    }

    /// Locks that were taken for machines there are no more.
    fn forget_locks(&self) {
        self.fleet.machines().sweep(|uid| self.fleet.index().machine_name(uid).is_some());
    }

    /// What time does to a machine's session; nothing of one that has none.
    async fn look_at_session(&self, uid: Uuid, now: Now) -> Option<SessionLook> {
        let mut live = self.fleet.machines().lock(uid).await;
        let machine = self.fleet.index().machine_name(uid)?;
        let mut outcome = Ok(());
        if live.session.as_ref().is_some_and(|session| session.is_newly_silent(&self.fleet.limits(), now)) {
            tracing::warn!(%machine, "the agent is silent");
            let stepped = self.steps.drive(&mut live, &machine, Input::Tick).await;
            outcome = stepped.map(drop).map_err(|refused| refused.problem);
        }
        if let Some(epoch) = live.lost() {
            // Its stream has ended, and the document could not be changed then.
            let closed = Input::Closed { epoch, why: "the agent's stream has ended".to_owned() };
            let stepped = self.steps.drive(&mut live, &machine, closed).await;
            outcome = outcome.and(stepped.map(drop).map_err(|refused| refused.problem));
        }
        let Some(session) = &live.session else {
            return outcome.is_err().then_some(SessionLook { machine, last_heard: None, may_act: false, outcome });
        };
        let (last_heard, may_act) = (session.last_heard(now), session.is_connected() || session.may_act(now));
        Some(SessionLook { machine, last_heard, may_act, outcome })
    }

    /// What time does to a run, and to its machine's session. `rests`: no agent works on it, or can.
    async fn look_at(
        &self, name: String, machine: String, heard: Option<Timestamp>, rests: bool,
    ) -> Result<(), Problem> {
        let Some(found) = self.fleet.store().documents().get(Kind::Workflow, &name).await? else { return Ok(()) };
        let Document::Workflow(workflow) = &found else { return Ok(()) };
        if !self.fleet.has_named(&machine).await? {
            let found = self.fleet.store().machine(&machine).await?;
            let (limits, now) = (self.fleet.limits(), self.fleet.moment().steady);
            if found.is_some_and(|found| self.unheard().rests(&found, &limits, now)) {
                self.fleet.index().admission.rest(&name);
            } else {
                // Its agent may be there again.
                self.fleet.index().admission.note(workflow);
            }
            return Ok(());
        }
        if rests {
            self.fleet.index().admission.rest(&name);
        }
        // Judged as it is first: most runs have nothing new to say, and then no machine is locked and nothing written.
        if is_due(workflow, heard, &self.fleet.limits(), self.fleet.now()) {
            self.steps.hand_in(&machine, Input::Tick).await?;
        }
        Ok(())
    }
}
