//! A pool's steps, made. Each looks at the machine again under its lock: a person may have been faster.

use std::sync::atomic::{AtomicBool, Ordering};

use landfall_api::{Authority, ErrorCode, Kind, Machine, Pool, PoolClaim, PoolRelease, Problem, Shared, WipeSpec};
use landfall_machine::pool::{Step, is_free};

use super::Pools;
use super::candidates::suits;
use crate::engine::requests::{Asker, Clearing};

/// The name in the audit log and in histories of what a pool does by itself.
fn by(pool: &str) -> String {
    format!("pool/{pool}")
}

impl Pools {
    /// Takes a machine out of its pool: it is cleared, and then free. A pool that has too few machines afterwards claims another.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, or `Conflict` if no pool has it.
    pub async fn release(&self, name: &str, by: Authority) -> Result<Shared<Machine>, Problem> {
        let released = self
            .fleet
            .mutate_machine(name, |machine| {
                if let Some(claim) = machine.status.as_mut().and_then(|status| status.pool.as_mut()) {
                    claim.problem = None;
                    claim.released.get_or_insert_with(|| by.clone());
                }
            })
            .await;
        let machine = match released {
            Err(problem) if problem.code == ErrorCode::NotFound => {
                return Err(self.fleet.not_found(Kind::Machine, name).await);
            }
            released => released?,
        };
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
                template: pool.spec.template.clone(),
                parameters: pool.spec.parameters.clone(),
                before,
                problem: None,
                released: None,
            };
            let Some((found, workflow)) = self.found(&machine).await? else { continue };
            let live = self.fleet.machines().lock(found.metadata.uid.unwrap_or_default()).await;
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
                self.claimed().insert(machine.clone(), uid);
                tracing::info!(pool = %pool.metadata.name, machine, "claimed");
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
            Step::Renew(machine) => {
                let Some(pool) = pool else { return Ok(()) };
                let (template, parameters) = (pool.spec.template.clone(), pool.spec.parameters.clone());
                self.change(machine, |claim, newest| {
                    (claim.template, claim.parameters) = (template.clone(), parameters.clone());
                    (claim.before, claim.problem) = (newest, None);
                })
                .await
            }
            Step::Release(machine) => {
                let released = person().unwrap_or_else(|| self.own(pool));
                self.change(machine, |claim, _| claim.released = Some(released.clone())).await
            }
            Step::Cancel(machine) => {
                let Some((found, Some(workflow))) = self.found(machine).await? else { return Ok(()) };
                let released = found.status.as_ref().and_then(|status| status.pool.as_ref()?.released.clone());
                let authority = released.or_else(person).unwrap_or_else(|| self.own(pool));
                match self.requests.cancel(&workflow.metadata.name, authority).await {
                    // It ended at this moment.
                    Err(problem) if problem.code == ErrorCode::WorkflowEnded => Ok(()),
                    outcome => outcome.map(drop),
                }
            }
            Step::Clear(machine) => self.clear(machine, pool.map(|pool| &pool.spec.release)).await,
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
        Authority { person: by(name), at: self.fleet.now(), force: false }
    }

    async fn install(&self, machine: &str, authority: Option<Authority>) -> Result<(), Problem> {
        let found = self.fleet.described(machine).await?;
        let Some(claim) = found.status.as_ref().and_then(|status| status.pool.clone()) else { return Ok(()) };
        let (template, parameters) = (&claim.template, claim.parameters.clone());
        match self.requests.provision_by(machine, template, parameters, Asker::Pool(&claim, authority)).await {
            Ok(workflow) => {
                tracing::info!(pool = %claim.name, machine, workflow = %workflow.metadata.name, "requested");
                Ok(())
            }
            Err(problem) if passes(&problem) => Err(problem),
            Err(problem) => {
                tracing::warn!(pool = %claim.name, machine, %problem, "the pool's workflow cannot be requested");
                self.fails(machine, &claim, &problem).await
            }
        }
    }

    /// Notes that nothing more is done with the machine, unless something else is wanted of it by now.
    async fn fails(&self, machine: &str, wanted: &PoolClaim, problem: &Problem) -> Result<(), Problem> {
        let text = problem.to_string();
        self.change(machine, |claim, _| {
            if claim == wanted {
                claim.problem = Some(text.clone());
            }
        })
        .await
    }

    async fn clear(&self, machine: &str, release: Option<&PoolRelease>) -> Result<(), Problem> {
        let found = self.fleet.described(machine).await?;
        let Some(claim) = found.status.as_ref().and_then(|status| status.pool.clone()) else { return Ok(()) };
        let Some(authority) = claim.released.clone() else { return Ok(()) };
        let PoolRelease { level, fallback, power_off } = release.cloned().unwrap_or_default();
        let clearing = Clearing { wipe: WipeSpec { disks: Vec::new(), level, fallback }, power_off };
        match self.requests.deprovision(machine, clearing, authority, None).await {
            Ok(_) => Ok(()),
            Err(problem) if passes(&problem) => Err(problem),
            Err(problem) => self.fails(machine, &claim, &problem).await,
        }
    }

    /// Changes what a pool wants of a machine; the change also gets the name of the machine's newest workflow.
    async fn change(
        &self, machine: &str, change: impl Fn(&mut PoolClaim, Option<String>) + Send + Sync,
    ) -> Result<(), Problem> {
        let of = |machine: &mut Machine| {
            let Some(status) = &mut machine.status else { return };
            let newest = status.workflow.clone();
            if let Some(claim) = &mut status.pool {
                change(claim, newest);
            }
        };
        self.fleet.mutate_machine(machine, of).await.map(drop)
    }
}

/// Whether the same request may succeed later, without a change of a document.
fn passes(problem: &Problem) -> bool {
    matches!(
        problem.code,
        ErrorCode::SourceUnreachable
            | ErrorCode::StoreUnavailable
            | ErrorCode::MachineBusy
            | ErrorCode::Maintenance
            | ErrorCode::Timeout
            | ErrorCode::Internal
    )
}
