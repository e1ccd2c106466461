//! A pool's steps, made. Each looks at the machine again under its lock: a person may have been faster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_api::{
    Authority, Document, ErrorCode, Kind, Machine, Pool, PoolClaim, PoolRelease, PoolReleased, Problem, Shared,
    WipeSpec,
};
use landfall_machine::pool::{Member, Step, is_free};
use landfall_machine::{has_ended, waits};

use super::Pools;
use super::candidates::suits;
use crate::engine::requests::{Asker, Clearing};

/// A request that was refused is made again after so long.
const RETRY: Duration = Duration::from_secs(60);

impl Pools {
    /// Takes a machine out of its pool: it is cleared, and then free. A pool that has too few machines afterwards claims another.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, or `Conflict` if no pool has it.
    pub async fn release(&self, name: &str, by: Authority) -> Result<Shared<Machine>, Problem> {
        let release = match self.fleet.described(name).await?.status.as_ref().and_then(|status| status.pool.as_ref()) {
            Some(claim) => self.release_of(claim).await?,
            None => PoolRelease::default(),
        };
        let released = self
            .change(name, |claim, newest| {
                (claim.problem, claim.retry_at) = (None, None);
                if newest.clears {
                    // One that failed is no obstacle to the next.
                    (claim.before, claim.owned) = (newest.name.clone(), true);
                }
                if claim.released.as_ref().is_none_or(|released| released.by.is_none() || released.surplus) {
                    let by = Some(by.clone());
                    claim.released = Some(PoolReleased { by, release: release.clone(), surplus: false });
                }
            })
            .await;
        let machine = released?;
        if machine.status.as_ref().is_none_or(|status| status.pool.is_none()) {
            let hint = format!("clear it with: landfall deprovision {name}");
            let message = format!("machine \"{name}\" is in no pool");
            return Err(Problem::new(ErrorCode::Conflict, message).hint(hint).at(format!("Machine/{name}")));
        }
        tracing::info!(machine = name, person = by.person, "released");
        Ok(machine)
    }

    /// Makes these machines the pool's, as far as they are still free.
    pub(super) async fn claim(&self, pool: &Pool, machines: impl Iterator<Item = String>) -> Result<(), Problem> {
        let uid = pool.metadata.uid.unwrap_or_default();
        for machine in machines {
            let claim = |before: Option<String>| PoolClaim {
                name: pool.metadata.name.clone(),
                uid,
                since: self.fleet.now(),
                wanted: pool.spec.install(),
                installed: None,
                before,
                owned: false,
                problem: None,
                retry_at: None,
                released: None,
            };
            let Some((found, workflow)) = self.found(&machine).await? else { continue };
            let live = self.fleet.machines().lock(found.metadata.uid.unwrap_or_default()).await;
            // Before the document says so: what is not the pool's is passed over, and what is must not be.
            let other = self.claimed().insert(machine.clone(), uid);
            let claimed = AtomicBool::new(false);
            self.fleet
                .mutate_machine(&machine, |machine| {
                    let is_same = machine.status.as_ref().is_some_and(|status| {
                        status.workflow.as_ref() == workflow.as_ref().map(|workflow| &workflow.metadata.name)
                    });
                    let free = is_same && is_free(machine, workflow.as_deref()) && suits(&pool.spec, machine);
                    claimed.store(free, Ordering::Relaxed);
                    if let Some(status) = machine.status.as_mut().filter(|_| free) {
                        status.pool = Some(claim(status.workflow.clone()));
                    }
                })
                .await?;
            drop(live);
            if claimed.into_inner() {
                tracing::info!(pool = %pool.metadata.name, machine, "claimed");
                continue;
            }
            match other {
                Some(other) => drop(self.claimed().insert(machine, other)),
                None => drop(self.claimed().remove(&machine)),
            }
        }
        Ok(())
    }

    /// Makes a step of one machine; `pool` is absent where it is no more.
    pub(super) async fn act(&self, pool: Option<&Pool>, step: &Step) -> Result<(), Problem> {
        let person = || pool.and_then(|pool| pool.status.as_ref()?.requested.clone());
        match step {
            // Needs the machines' names.
            Step::Claim(_) => Ok(()),
            Step::Install { machine, authorised } => {
                let authority = if *authorised { person() } else { None };
                self.install(machine, authority).await
            }
            Step::Note(machine) => self
                .change(machine, |claim, newest| {
                    claim.owned |= newest.written;
                    if newest.replaced {
                        claim.installed = None;
                    }
                    if newest.installed {
                        (claim.installed, claim.before) = (Some(claim.wanted.clone()), newest.name.clone());
                    }
                    (claim.problem, claim.retry_at) = (None, None);
                })
                .await
                .map(drop),
            Step::Renew(machine) => {
                let Some(pool) = pool else { return Ok(()) };
                self.change(machine, |claim, newest| {
                    claim.owned |= newest.written;
                    (claim.wanted, claim.before) = (pool.spec.install(), newest.name.clone());
                    (claim.problem, claim.retry_at) = (None, None);
                    claim.installed = claim.installed.take().filter(|_| newest.intact);
                })
                .await
                .map(drop)
            }
            Step::Release { machine, authorised } => {
                let Some(pool) = pool else { return Ok(()) };
                let by = if *authorised { person() } else { None };
                let released = PoolReleased { by, release: pool.spec.release.clone(), surplus: true };
                self.change(machine, |claim, _| {
                    claim.problem = None;
                    claim.released.get_or_insert_with(|| released.clone());
                })
                .await
                .map(drop)
            }
            Step::Withdraw(machine) => self
                .change(machine, |claim, _| claim.released = claim.released.take().filter(|released| !released.surplus))
                .await
                .map(drop),
            Step::Cancel(machine) => {
                let Some((found, Some(workflow))) = self.found(machine).await? else { return Ok(()) };
                let claim = found.status.as_ref().and_then(|status| status.pool.as_ref());
                let released = claim.and_then(|claim| claim.released.as_ref());
                // Its agent was faster, and the machine is to stay.
                if released.is_none() && !waits(&workflow) {
                    return Ok(());
                }
                let authority = released.and_then(|released| released.by.clone().filter(|_| !released.surplus));
                let authority = authority.unwrap_or_else(|| self.own(pool));
                match self.requests.cancel(&workflow.metadata.name, authority).await {
                    // It ended at this moment.
                    Err(problem) if problem.code == ErrorCode::WorkflowEnded => Ok(()),
                    outcome => outcome.map(drop),
                }
            }
            Step::Clear(machine) => self.clear(machine).await,
            Step::Free(machine) => {
                self.fleet
                    .mutate_machine(machine, |machine| {
                        if let Some(status) = &mut machine.status {
                            status.pool = None;
                        }
                    })
                    .await?;
                self.claimed().remove(machine);
                tracing::info!(machine, "a pool has it no more");
                Ok(())
            }
        }
    }

    /// What a pool does where no person stands behind it, and nothing is wiped.
    fn own(&self, pool: Option<&Pool>) -> Authority {
        let name = pool.map_or("?", |pool| &pool.metadata.name);
        Authority { person: format!("{}{name}", PoolClaim::BY), at: self.fleet.now(), force: false }
    }

    async fn install(&self, machine: &str, authority: Option<Authority>) -> Result<(), Problem> {
        let found = self.fleet.described(machine).await?;
        let claim = found.status.as_ref().and_then(|status| status.pool.clone());
        let Some(claim) = claim.filter(|claim| claim.released.is_none()) else { return Ok(()) };
        let (template, parameters) = (&claim.wanted.template, claim.wanted.parameters.clone());
        match self.requests.provision_by(machine, template, parameters, Asker::Pool(&claim, authority)).await {
            Ok(workflow) => {
                tracing::info!(pool = %claim.name, machine, workflow = %workflow.metadata.name, "requested");
                Ok(())
            }
            Err(problem) => self.refused(machine, &claim, problem).await,
        }
    }

    async fn clear(&self, machine: &str) -> Result<(), Problem> {
        let found = self.fleet.described(machine).await?;
        let Some(claim) = found.status.as_ref().and_then(|status| status.pool.clone()) else { return Ok(()) };
        let Some(PoolReleased { by: Some(by), release, .. }) = claim.released.clone() else { return Ok(()) };
        let wipe = WipeSpec { disks: Vec::new(), level: release.level, fallback: release.fallback };
        let clearing = Clearing { wipe, power_off: release.power_off };
        match self.requests.deprovision(machine, clearing, Asker::Pool(&claim, Some(by)), None).await {
            Ok(_) => Ok(()),
            Err(problem) => self.refused(machine, &claim, problem).await,
        }
    }

    /// Notes that a request was refused, unless something else is wanted of the machine by now. It is made again, but not at once; the
    /// other steps of this look are left, since they may fail for the same reason, and each may take its time for that.
    async fn refused(&self, machine: &str, wanted: &PoolClaim, problem: Problem) -> Result<(), Problem> {
        let (text, at) = (problem.to_string(), self.fleet.after(RETRY));
        let unknown = wanted.problem.as_ref() != Some(&text);
        self.change(machine, |claim, _| {
            if claim == wanted {
                (claim.problem, claim.retry_at) = (Some(text.clone()), Some(at));
            }
        })
        .await?;
        if unknown {
            tracing::warn!(pool = %wanted.name, machine, %problem, "a pool's request was refused; it is made again");
        }
        Err(problem)
    }

    /// How the machines of a claim's pool are cleared.
    async fn release_of(&self, claim: &PoolClaim) -> Result<PoolRelease, Problem> {
        let found = self.fleet.store().documents().get(Kind::Pool, &claim.name).await?;
        Ok(match found {
            Some(Document::Pool(pool)) if pool.metadata.uid == Some(claim.uid) => pool.spec.release.clone(),
            _ => PoolRelease::default(),
        })
    }

    /// Changes what a pool wants of a machine; the change also gets the machine's newest workflow.
    async fn change(
        &self, name: &str, change: impl Fn(&mut PoolClaim, &Newest) + Send + Sync,
    ) -> Result<Shared<Machine>, Problem> {
        let found = self.fleet.described(name).await?;
        // No workflow is requested, and none begins, while the lock is held.
        let live = self.fleet.machines().lock(found.metadata.uid.unwrap_or_default()).await;
        let machine = self.fleet.described(name).await?;
        let workflow = self.fleet.current_workflow(&machine).await?;
        let claim = machine.status.as_ref().and_then(|status| status.pool.as_ref());
        let member = claim.and_then(|claim| Member::of(&machine, workflow.as_deref(), claim.uid));
        let newest = Newest {
            name: machine.status.as_ref().and_then(|status| status.workflow.clone()),
            written: member.is_some_and(|member| member.has_written()),
            installed: member.is_some_and(|member| member.has_installed()),
            replaced: member.is_some_and(|member| member.has_begun() && !member.has_installed()),
            intact: member.is_some_and(|member| member.is_intact()),
            clears: member.is_some_and(|member| member.clearing().is_some_and(has_ended)),
        };
        let of = |machine: &mut Machine| {
            if let Some(claim) = machine.status.as_mut().and_then(|status| status.pool.as_mut()) {
                change(claim, &newest);
            }
        };
        let changed = self.fleet.mutate_machine(name, of).await;
        drop(live);
        changed
    }
}

/// What a change goes by: the machine's newest workflow.
struct Newest {
    name: Option<String>,
    /// It is the pool's, and has written a disk.
    written: bool,
    /// It has installed what is wanted.
    installed: bool,
    /// It has begun to, and what was installed before is gone.
    replaced: bool,
    /// What the pool installed is still there.
    intact: bool,
    /// It cleared the machine for its release, well or not.
    clears: bool,
}
