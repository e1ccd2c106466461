//! What people and rules request of a machine or a workflow: install, clear, adopt, delete; stop, pause, resume, retry.

mod check;
mod control;
mod life;
mod preview;
mod render;

use std::{collections::BTreeMap, sync::Arc};

use landfall_api::{
    API_VERSION, Action, ActionSpec, Authority, BUILT_IN_DEPROVISION, DiskReceipt, Document, DurationSpec, ErrorCode,
    Kind, Machine, MachineStatus, Metadata, PoolClaim, PowerOffSpec, Problem, Purpose, RebootSpec, Shared, WipeLevel,
    WipeSpec, Workflow, WorkflowSpec, WorkflowStatus,
};
use landfall_machine::life::{busy, is_installed, may_begin, take_up, was_installed};
use landfall_machine::pool::carries_system;
use landfall_machine::{Input, derive, is_held, turn};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use self::{check::Checks, render::Renderings};
use super::assignments::{Assignments, lays_out};
use super::fleet::{CAS_TRIES, Fleet, Live, contended};
use super::removals::Removals;
use super::secrets::Vault;
use super::source::SourceChecker;
use super::steps::Steps;
use crate::workflow::Plan;
use landfall_store::{ChangeSet, StoreError};

/// How long the clearing of signatures may take in deprovisioning, seconds.
const CLEARS_WITHIN: u64 = 5 * 60;

/// The label of a run that a rule started: the rule's name.
pub(in crate::engine) const RULE_LABEL: &str = "landfall.dev/rule";

/// The label of a run that a pool started: the pool's name.
const POOL_LABEL: &str = "landfall.dev/pool";

/// A run that is asked for.
struct Asked<'a> {
    machine: &'a str,
    /// The digest of the preview that the person agreed to.
    expects: Option<&'a str>,
    template: &'a str,
    purpose: Purpose,
    parameters: BTreeMap<String, serde_json::Value>,
    plan: Plan,
    by: Asker<'a>,
}

/// How a machine is cleared.
#[derive(Debug, Default)]
pub struct Clearing {
    /// Which disks, and how thoroughly.
    pub wipe: WipeSpec,
    /// Whether the machine is turned off afterwards, in place of a restart.
    pub power_off: bool,
}

impl From<WipeSpec> for Clearing {
    fn from(wipe: WipeSpec) -> Self {
        Self { wipe, power_off: false }
    }
}

/// Who requests it. A rule is not a person's request.
pub(crate) enum Asker<'a> {
    /// A person.
    Person(Authority),
    /// The enrolment rule of that name.
    Rule(&'a str),
    /// A pool that wants this of the machine, with the person behind it.
    Pool(&'a PoolClaim, Option<Authority>),
}

impl From<Authority> for Asker<'_> {
    fn from(person: Authority) -> Self {
        Self::Person(person)
    }
}

impl Asker<'_> {
    fn force(&self) -> bool {
        matches!(self, Self::Person(by) if by.force)
    }
}

/// What a person or a rule asks of a machine or a workflow. Cloning it shares it.
#[derive(Clone)]
pub struct Requests {
    fleet: Arc<Fleet>,
    steps: Steps,
    removals: Arc<Removals>,
    vault: Arc<Vault>,
    sources: Arc<dyn SourceChecker>,
    assignments: Arc<Assignments>,
    checks: Arc<Checks>,
    pub(in crate::engine) renderings: Renderings,
}

impl Requests {
    pub(in crate::engine) fn new(
        fleet: Arc<Fleet>, steps: Steps, removals: Arc<Removals>, vault: Arc<Vault>, sources: Arc<dyn SourceChecker>,
        assignments: Arc<Assignments>,
    ) -> Self {
        let renderings = Renderings::new();
        Self { fleet, steps, removals, vault, sources, assignments, checks: Arc::default(), renderings }
    }

    /// Starts a run of a template on a machine: renders and pins the list, asks each image's server, and hands the list
    /// to the agent if one is there; otherwise it waits for the machine to netboot, and for its turn.
    ///
    /// With `--force` a hold on the machine ends, and with it a run that the hold kept from beginning. `expects` is the digest
    /// of the [`Requests::preview`] that the person agreed to.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (names that are near), `MachineBusy` (the run that is), `InvalidTemplate`,
    /// `SourceUnreachable`, `NoToolsLayer`, `ReceiptMismatch` (held until a person says `--force`), `Unmanaged`, `Maintenance`,
    /// `Conflict` (it would destroy something else than the person saw).
    pub async fn provision(
        &self, machine: &str, template: &str, parameters: BTreeMap<String, serde_json::Value>, authority: Authority,
        expects: Option<&str>,
    ) -> Result<Shared<Workflow>, Problem> {
        let plan = self.rendered(machine, template, &parameters).await?;
        let by = Asker::Person(authority);
        self.begin_run(Asked { machine, expects, template, purpose: Purpose::Provision, parameters, plan, by }).await
    }

    /// The same where no person asks at this moment. For an enrolment rule: once in a machine's life, and only where nothing was ever
    /// installed. For a pool: of what it wants of that machine. Without a person's authority the agent writes a blank disk and
    /// refuses any other.
    ///
    /// # Errors
    /// As [`Requests::provision`]; `DiskNotBlank` if something may be installed and no person stands behind the request, `Conflict` if
    /// the pool wants something else of the machine by now.
    pub(in crate::engine) async fn provision_by(
        &self, machine: &str, template: &str, parameters: BTreeMap<String, serde_json::Value>, by: Asker<'_>,
    ) -> Result<Shared<Workflow>, Problem> {
        let plan = self.rendered(machine, template, &parameters).await?;
        self.begin_run(Asked { machine, expects: None, template, purpose: Purpose::Provision, parameters, plan, by })
            .await
    }

    /// Starts a run that wipes what installs left: every disk with a receipt of this machine, or those that the request
    /// chooses; receipts last. Then the machine restarts, or is turned off, and is available.
    ///
    /// # Errors
    /// As [`Requests::provision`]; `Conflict` if nothing is known to be installed and no disk is named.
    pub(crate) async fn deprovision<'a>(
        &self, machine: &str, clearing: impl Into<Clearing>, by: impl Into<Asker<'a>>, expects: Option<&str>,
    ) -> Result<Shared<Workflow>, Problem> {
        let Clearing { wipe: spec, power_off } = clearing.into();
        for disk in &spec.disks {
            disk.validate().map_err(|error| {
                Problem::new(ErrorCode::InvalidDocument, error.to_string())
                    .at("disks")
                    .hint("landfall explain templates lists a disk selector's fields")
            })?;
        }
        spec.check_levels()?;
        // Signatures are few; what takes longer is a disk that hangs.
        let quick = (spec.level == WipeLevel::Signatures).then(|| DurationSpec::from_secs(CLEARS_WITHIN));
        let step = |name: &str, timeout, spec| Action {
            name: name.into(),
            timeout,
            retry: None,
            branch: None,
            when: None,
            spec,
        };
        let last = match power_off {
            true => step("power-off", None, ActionSpec::PowerOff(PowerOffSpec {})),
            false => step("restart", None, ActionSpec::Reboot(RebootSpec {})),
        };
        let actions = vec![step("wipe", quick, ActionSpec::Wipe(spec)), last];
        self.begin_run(Asked {
            machine,
            expects,
            template: BUILT_IN_DEPROVISION,
            purpose: Purpose::Deprovision,
            parameters: BTreeMap::new(),
            plan: Plan { actions, ..Plan::default() },
            by: by.into(),
        })
        .await
    }

    /// The template's list for this machine, every image of it looked at.
    async fn rendered(
        &self, machine: &str, template: &str, parameters: &BTreeMap<String, serde_json::Value>,
    ) -> Result<Plan, Problem> {
        let found = self.fleet.described(machine).await?;
        may_begin(&found)?;
        let described = self.template(template).await?;
        let plan = self.renderings.plan(&found, &described, parameters, self.fragments(&described).await?).await?;
        let all = || plan.actions.iter().chain(&plan.on_failure);
        self.fleet.settings().tools_for(&found, lays_out(all()), all())?;
        // Every secret must be there; with their values in place the lists live here and no longer, and no server is shown one.
        for list in [&plan.actions, &plan.on_failure] {
            self.sources.check_all(&self.vault.insert_all(&found, list).await?).await?;
        }
        Ok(plan)
    }

    async fn begin_run(&self, asked: Asked<'_>) -> Result<Shared<Workflow>, Problem> {
        let (mut live, _) = self.locked_machine(asked.machine).await?;
        let forced = match &asked.by {
            Asker::Person(by) if by.force => Some(by.clone()),
            _ => None,
        };
        let made = self.steps.drive(&mut live, asked.machine, Input::MakeWay(forced)).await;
        let found = made.map_err(|refused| refused.problem)?.state.machine;
        refuse_if_held(&found, asked.by.force())?;
        may_be_asked(&asked, &found)?;
        preview::is_expected(asked.expects, &asked.plan.actions, &found)?;
        let status = asked.plan.status(&found, believed(&live, &found, asked.by.force()));
        let mut labels = BTreeMap::new();
        let authority = match asked.by {
            Asker::Person(by) => Some(by),
            Asker::Rule(rule) => {
                labels.insert(RULE_LABEL.to_owned(), rule.to_owned());
                None
            }
            Asker::Pool(claim, by) => {
                labels.insert(POOL_LABEL.to_owned(), claim.name.clone());
                by
            }
        };
        let spec = WorkflowSpec {
            machine: asked.machine.to_owned(),
            template: asked.template.to_owned(),
            purpose: asked.purpose,
            parameters: asked.parameters,
            authority,
            ..WorkflowSpec::default()
        };
        self.launch((live, &found), labels, spec, status).await
    }

    /// The machine, locked, if anything may begin on it.
    async fn locked_machine(&self, machine: &str) -> Result<(OwnedMutexGuard<Live>, Shared<Machine>), Problem> {
        let Some(machine_uid) = self.fleet.described(machine).await?.metadata.uid else {
            return Err(Problem::new(ErrorCode::Internal, format!("machine \"{machine}\" was stored without a uid")));
        };
        let live = self.fleet.machines().lock(machine_uid).await;
        // Read under the lock: another request may have been faster.
        let found = self.fleet.described(machine).await?;
        may_begin(&found)?;
        Ok((live, found))
    }

    /// The machine, locked, with no run under way on it and nothing that holds it.
    async fn idle_machine(
        &self, machine: &str, force: bool,
    ) -> Result<(OwnedMutexGuard<Live>, Shared<Machine>), Problem> {
        let (mut live, _) = self.locked_machine(machine).await?;
        let made = self.steps.drive(&mut live, machine, Input::MakeWay(None)).await;
        let found = made.map_err(|refused| refused.problem)?.state.machine;
        refuse_if_held(&found, force)?;
        Ok((live, found))
    }

    /// Makes the run, gives it its place in the queue, and hands it to the machine's agent if one is there and it is its
    /// turn.
    async fn launch(
        &self, (mut live, idle): (OwnedMutexGuard<Live>, &Machine), labels: BTreeMap<String, String>,
        spec: WorkflowSpec, status: WorkflowStatus,
    ) -> Result<Shared<Workflow>, Problem> {
        let now = self.fleet.now();
        let machine = spec.machine.clone();
        let machine = machine.as_str();
        let name = run_name(machine);
        let mut workflow = Workflow {
            api_version: API_VERSION.to_owned(),
            kind: Kind::Workflow,
            metadata: Metadata { name: name.clone(), labels, creation_timestamp: Some(now), ..Metadata::default() },
            spec,
            status: Some(status),
        };
        {
            let mut index = self.fleet.index();
            if let Some(status) = &mut workflow.status {
                status.ticket = index.admission.ticket();
            }
            // Its place is known before it is stored; a store that refuses it gives the place back.
            index.admission.note(&workflow);
            if let Some(standing) = index.admission.standing(&workflow.metadata.name) {
                turn::show(&mut workflow, &standing, now);
            }
        }
        derive::workflow(&mut workflow, now);
        let created = self.create_run(&workflow, idle).await;
        let mut workflow = created.inspect_err(|_| self.fleet.index().admission.forget(&name))?;
        self.fleet.index().put_workflow(&workflow);
        let by = workflow.spec.authority.as_ref();
        let (person, force) = (by.map_or("none", |by| by.person.as_str()), by.is_some_and(|by| by.force));
        tracing::info!(machine, template = %workflow.spec.template, workflow = %name, person, force, "a workflow was \
            requested");
        self.steps.accept_run(&mut live, machine).await?;
        // The request is complete: if the agent cannot be notified, its session is closed and it reconnects.
        match self.steps.drive(&mut live, machine, Input::Launched).await {
            Ok(driven) => {
                if let Some(newer) = driven.state.newest {
                    workflow = newer;
                }
            }
            Err(refused) => {
                let problem = refused.problem;
                tracing::warn!(machine, workflow = %name, %problem, "cannot give the workflow to its agent yet");
                live.cut();
                if let Some(newer) = self.fleet.store().workflow(&name).await? {
                    workflow = newer;
                }
            }
        }
        drop(live);
        if let Err(problem) = self.removals.drop_old_runs(machine).await {
            tracing::warn!(machine, %problem, "old workflows were not removed; the next request does it");
        }
        Ok(workflow)
    }

    /// Stores a run, and its machine's word of it. `idle`: the machine as it was found free for it.
    async fn create_run(&self, workflow: &Workflow, idle: &Machine) -> Result<Shared<Workflow>, Problem> {
        let newest = |machine: &Machine| machine.status.as_ref().and_then(|status| status.workflow.clone());
        let force = workflow.spec.authority.as_ref().is_some_and(|by| by.force);
        for _ in 0..CAS_TRIES {
            // What is not changed under this coordinator's lock may be changed by another one.
            let mut machine = self.fleet.described(&workflow.spec.machine).await?;
            may_begin(&machine)?;
            refuse_if_held(&machine, force)?;
            if let Some(other) = newest(&machine).filter(|_| newest(&machine) != newest(idle)) {
                return Err(busy(&workflow.spec.machine, &other));
            }
            take_up(&mut machine, workflow, self.fleet.now());
            let (new, changed) = (vec![Document::from(workflow.clone())], vec![Document::from(machine)]);
            match self.fleet.store().documents().write(ChangeSet { new, changed, ..ChangeSet::default() }).await {
                Ok(stored) => {
                    let run = stored.into_iter().find_map(|document| match document {
                        Document::Workflow(run) => Some(run),
                        _ => None,
                    });
                    return run.ok_or_else(|| Problem::new(ErrorCode::Internal, "the store answered no workflow"));
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(contended(&workflow.spec.machine))
    }
}

/// The receipts that a workflow expects: with --force those that the person has seen, else those that the store knows.
fn believed(live: &Live, machine: &Machine, force: bool) -> Vec<DiskReceipt> {
    let seen = live.session.as_ref().filter(|_| force).map(|session| session.receipts().to_vec());
    seen.unwrap_or_else(|| machine.status.as_ref().map(|s| s.receipts.clone()).unwrap_or_default())
}

/// Nothing happens to a held machine before a person decides.
fn refuse_if_held(machine: &Machine, force: bool) -> Result<(), Problem> {
    let name = &machine.metadata.name;
    match is_held(machine).filter(|_| !force) {
        None => Ok(()),
        Some(held) => Err(Problem::new(ErrorCode::ReceiptMismatch, held.message.clone())
            .at(format!("Machine/{name}"))
            .hint(format!("adopt it with landfall adopt {name}, or overwrite its disks with --force"))),
    }
}

/// Whether this may be asked of the machine as it is.
fn may_be_asked(asked: &Asked<'_>, machine: &Machine) -> Result<(), Problem> {
    let name = &machine.metadata.name;
    let Some(status) = &machine.status else { return Ok(()) };
    let refused =
        |code, message: String, hint: String| Err(Problem::new(code, message).hint(hint).at(format!("Machine/{name}")));
    let installed = is_installed(status);
    of_the_pool(asked, status, name)?;
    if let Asker::Rule(rule) = asked.by {
        let why = if let Some(run) = &status.workflow {
            Some(format!("it already had workflow \"{run}\""))
        } else if installed {
            Some("it is installed".to_owned())
        } else if was_installed(status) {
            Some("one of its disks was installed".to_owned())
        } else {
            None
        };
        if let Some(why) = why {
            let message = format!("rule \"{rule}\" does not install machine \"{name}\": {why}");
            let hint = format!("a person can request it: landfall provision {name} --template {}", asked.template);
            return refused(ErrorCode::DiskNotBlank, message, hint);
        }
    }
    if let Some(ActionSpec::Wipe(spec)) = asked.plan.actions.first().map(|a| &a.spec)
        && asked.purpose == Purpose::Deprovision
        && spec.disks.is_empty()
        && !installed
        && status.receipts.is_empty()
    {
        let message = format!("machine \"{name}\" has no known installation");
        return refused(
            ErrorCode::Conflict,
            message,
            format!("name the disks to wipe, such as: landfall deprovision {name} --disk serial=S4EVNX0R"),
        );
    }
    Ok(())
}

/// Whether the machine's pool, if it has one, lets this begin.
fn of_the_pool(asked: &Asked<'_>, status: &MachineStatus, machine: &str) -> Result<(), Problem> {
    let refused = |code, message: String, hint: String| {
        Err(Problem::new(code, message).hint(hint).at(format!("Machine/{machine}")))
    };
    match (&asked.by, &status.pool) {
        (Asker::Pool(wanted, _), claim) if claim.as_ref() != Some(*wanted) => {
            let message = format!("pool \"{}\" wants something else of machine \"{machine}\" by now", wanted.name);
            refused(ErrorCode::Conflict, message, "the pool goes on by itself".into())
        }
        (Asker::Pool(wanted, by), _)
            if carries_system(status) && (by.is_none() || !wanted.owned) || status.adopted.is_some() =>
        {
            let message = format!(
                "pool \"{}\" does not install machine \"{machine}\": one of its disks was installed",
                wanted.name
            );
            let hint = format!("take it out of the pool and clear it: landfall release {machine}");
            refused(ErrorCode::DiskNotBlank, message, hint)
        }
        // One that is released is cleared by a person too, where the pool could not.
        (Asker::Person(_) | Asker::Rule(_), Some(claim))
            if claim.released.is_none() || asked.purpose == Purpose::Provision =>
        {
            let message = format!("machine \"{machine}\" is of pool \"{}\", which installs it", claim.name);
            let hint = format!("take it out of the pool first: landfall release {machine}");
            refused(ErrorCode::Conflict, message, hint)
        }
        _ => Ok(()),
    }
}

/// The machine's name and something that no other run of it has; a DNS label.
fn run_name(machine: &str) -> String {
    let unique = Uuid::new_v4().simple().to_string();
    // Names are ASCII; 63 characters at most, 9 of them the dash and the unique part.
    format!("{}-{}", machine[..machine.len().min(54)].trim_end_matches('-'), &unique[..8])
}
