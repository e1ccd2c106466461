//! Pools: one task looks at them in turn, plans, and makes the steps.

mod act;
mod candidates;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_api::{Document, Kind, Machine, Pool, PoolStatus, Problem, Shared, Workflow};
use landfall_machine::Steady;
use landfall_machine::pool::{Member, Plan, Seen, Step, orphaned, plan};
use landfall_store::StoreError;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::fleet::Fleet;
use super::requests::Requests;

/// How often the pools are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Where too few machines were free, others are looked for again after so long: every machine's document is read for it.
const LOOKS_AGAIN: Duration = Duration::from_secs(5);
/// Beside other coordinators, every so many looks begin with the claims that all machines' documents have.
const CLAIMS_AGAIN: u64 = 10;
/// Steps of one pool in one look: others get their turn.
const STEPS: usize = 16;

/// Pools.
pub struct Pools {
    fleet: Arc<Fleet>,
    requests: Requests,
    /// The pool of each machine that one has, by the machine's name. Machines' documents say it; only this task adds to it.
    claimed: Mutex<BTreeMap<String, Uuid>>,
    /// When a pool found too few machines.
    lacked: Mutex<HashMap<Uuid, Steady>>,
    ticks: AtomicU64,
}

/// A machine and its newest workflow.
type Found = (Shared<Machine>, Option<Shared<Workflow>>);

impl Pools {
    pub(in crate::engine) fn new(fleet: Arc<Fleet>, requests: Requests, machines: &[Shared<Machine>]) -> Self {
        let pools =
            Self { fleet, requests, claimed: Mutex::default(), lacked: Mutex::default(), ticks: AtomicU64::new(0) };
        pools.claim_all(machines);
        pools
    }

    /// Takes in which of all machines the pools have.
    pub(in crate::engine) fn claim_all(&self, machines: &[Shared<Machine>]) {
        let claim = |machine: &Shared<Machine>| {
            Some((machine.metadata.name.clone(), machine.status.as_ref()?.pool.as_ref()?.uid))
        };
        let mut claimed = self.claimed();
        claimed.retain(|name, _| self.fleet.store().is_unreadable(Kind::Machine, name));
        claimed.extend(machines.iter().filter_map(claim));
    }

    /// Looks at the pools until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(TICK);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            if let Err(problem) = self.tick().await {
                tracing::debug!(%problem, "a look at the pools did not do all; the next one goes on");
            }
        }
    }

    /// One look. A fault of one pool does not prevent the look at the others.
    ///
    /// # Errors
    /// The first [`Problem`] there was.
    pub async fn tick(&self) -> Result<(), Problem> {
        // The one that led before may have stored a claim after this one had looked.
        if self.fleet.own().is_some() && self.ticks.fetch_add(1, Ordering::Relaxed).is_multiple_of(CLAIMS_AGAIN) {
            self.claim_all(&self.fleet.store().machines().await?);
        }
        let (documents, _) = self.fleet.store().documents().list(Kind::Pool).await?;
        let mut outcome = Ok(());
        let mut of: BTreeMap<Uuid, Vec<Found>> = BTreeMap::new();
        let claimed = self.claimed().clone();
        for (name, pool) in claimed {
            match self.found(&name).await? {
                Some(found) => of.entry(pool).or_default().push(found),
                None if self.fleet.store().is_unreadable(Kind::Machine, &name) => {}
                None => drop(self.claimed().remove(&name)),
            }
        }
        for document in documents {
            let Document::Pool(pool) = document else { continue };
            let Some(uid) = pool.metadata.uid else { continue };
            let members = of.remove(&uid).unwrap_or_default();
            outcome = outcome.and(self.look_at(&pool, &members).await);
        }
        // Of pools that are no more. Their machines stay as they are, unless a person released them.
        for (machine, workflow) in of.into_values().flatten() {
            let claim = machine.status.as_ref().and_then(|status| status.pool.as_ref());
            // A pool that cannot be read is there.
            if claim.is_some_and(|claim| self.fleet.store().is_unreadable(Kind::Pool, &claim.name)) {
                continue;
            }
            let Some(step) = orphaned(&machine, workflow.as_deref(), self.fleet.now()) else { continue };
            self.fleet.is_sure_to_lead()?;
            outcome = outcome.and(self.act(None, &step).await);
        }
        outcome
    }

    async fn look_at(&self, pool: &Shared<Pool>, found: &[Found]) -> Result<(), Problem> {
        let uid = pool.metadata.uid.unwrap_or_default();
        let members: Vec<_> =
            found.iter().filter_map(|(machine, workflow)| Member::of(machine, workflow.as_deref(), uid)).collect();
        let template = self.fleet.store().template(&pool.spec.template).await?.is_some();
        let mut seen = Seen { free: usize::MAX, template, now: self.fleet.now() };
        let mut planned = plan(pool, &members, seen);
        let mut candidates = Vec::new();
        if planned.steps.iter().any(|step| matches!(step, Step::Claim(_))) {
            let missing =
                planned.steps.iter().find_map(|step| if let Step::Claim(many) = step { Some(*many) } else { None });
            candidates = self.free_for(pool, missing.unwrap_or_default()).await?;
            seen.free = candidates.len();
            planned = plan(pool, &members, seen);
        }
        let Plan { steps, status } = planned;
        self.show(pool, status).await?;
        for step in steps.iter().take(STEPS) {
            // A request may have taken its time, and a person have changed what is wanted.
            self.fleet.is_sure_to_lead()?;
            if !self.is_current(pool).await? {
                return Ok(());
            }
            match step {
                Step::Claim(many) => self.claim(pool, candidates.drain(..(*many).min(candidates.len()))).await?,
                other => self.act(Some(pool), other).await?,
            }
        }
        Ok(())
    }

    /// Whether the pool's document says the same as when it was read.
    async fn is_current(&self, pool: &Pool) -> Result<bool, Problem> {
        let found = self.fleet.store().documents().get(Kind::Pool, &pool.metadata.name).await?;
        let by = |pool: &Pool| pool.status.as_ref().and_then(|status| status.requested.clone());
        Ok(
            matches!(found, Some(Document::Pool(now)) if now.metadata.uid == pool.metadata.uid && now.spec == pool.spec && by(&now) == by(pool)),
        )
    }

    /// A machine and its newest workflow.
    async fn found(&self, name: &str) -> Result<Option<Found>, Problem> {
        let Some(machine) = self.fleet.store().machine(name).await? else { return Ok(None) };
        let workflow = self.fleet.current_workflow(&machine).await?;
        Ok(Some((machine, workflow)))
    }

    /// Stores how the pool stands. What changed at the same moment is looked at again in the next look.
    async fn show(&self, pool: &Shared<Pool>, status: PoolStatus) -> Result<(), Problem> {
        if pool.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut shown = pool.clone();
        shown.status = Some(status);
        match self.fleet.store().documents().update(Document::from(shown)).await {
            Ok(_) | Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn claimed(&self) -> MutexGuard<'_, BTreeMap<String, Uuid>> {
        // Every change of it is one insertion or removal.
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
