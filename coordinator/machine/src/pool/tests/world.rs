//! A fleet and one pool; workflows end as the test says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use landfall_api::{
    Authority, ConditionType as Type, DiskId, DiskReceipt, Kind, Machine, MachineStatus, Metadata, Pool, PoolClaim,
    PoolRelease, PoolReleased, PoolSpec, PoolStatus, Purpose, Reason, Receipt, ReceiptState, Workflow, WorkflowPhase,
    WorkflowSpec, WorkflowStatus,
};
use uuid::Uuid;

use super::super::*;
use crate::derive;
use crate::life::is_open;

pub(super) const POOL: Uuid = Uuid::from_u128(7);

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

pub(super) fn ann() -> Authority {
    Authority { person: "ann".into(), at: now(), force: false }
}

/// A fleet and one pool.
pub(super) struct World {
    pub(super) pool: Pool,
    pub(super) machines: BTreeMap<String, (Machine, Option<Workflow>)>,
    pub(super) runs: usize,
    /// Machines that were written or wiped although a system may have been on them.
    pub(super) wiped: Vec<String>,
}

impl World {
    pub(super) fn new(machines: usize, replicas: u32) -> Self {
        let machine = |name: &str| Machine {
            api_version: landfall_api::API_VERSION.into(),
            kind: Kind::Machine,
            metadata: Metadata { name: name.into(), ..Metadata::default() },
            spec: landfall_api::MachineSpec::default(),
            status: Some(MachineStatus::default()),
        };
        let pool = Pool {
            api_version: landfall_api::API_VERSION.into(),
            kind: Kind::Pool,
            metadata: Metadata { name: "web".into(), uid: Some(POOL), ..Metadata::default() },
            spec: PoolSpec {
                replicas,
                template: "a".into(),
                max_unavailable: 1,
                max_failures: 1,
                ..PoolSpec::default()
            },
            status: Some(PoolStatus { requested: Some(ann()), ..PoolStatus::default() }),
        };
        let named = |n: usize| {
            let name = format!("m{n}");
            (name.clone(), (machine(&name), None))
        };
        Self { pool, machines: (1..=machines).map(named).collect(), runs: 0, wiped: Vec::new() }
    }

    pub(super) fn free(&self) -> Vec<String> {
        let is_free = |(name, (machine, workflow)): (&String, &(Machine, Option<Workflow>))| {
            is_free(machine, workflow.as_ref()).then(|| name.clone())
        };
        self.machines.iter().filter_map(is_free).collect()
    }

    pub(super) fn plan(&self) -> Plan {
        let members: Vec<_> = self
            .machines
            .values()
            .filter_map(|(machine, workflow)| Member::of(machine, workflow.as_ref(), POOL))
            .collect();
        plan(&self.pool, &members, Seen { free: self.free().len(), template: true, now: now() })
    }

    pub(super) fn claim(&mut self, name: &str) -> Option<&mut PoolClaim> {
        self.machines.get_mut(name)?.0.status.as_mut()?.pool.as_mut()
    }

    pub(super) fn begin(&mut self, name: &str, purpose: Purpose, template: &str) {
        self.runs += 1;
        let (machine, workflow) = self.machines.get_mut(name).unwrap();
        assert!(!workflow.as_ref().is_some_and(is_open), "{name} has an open workflow");
        let run = format!("{name}-{}", self.runs);
        machine.status.as_mut().unwrap().workflow = Some(run.clone());
        *workflow = Some(Workflow {
            api_version: landfall_api::API_VERSION.into(),
            kind: Kind::Workflow,
            metadata: Metadata { name: run, uid: Some(Uuid::from_u128(self.runs as u128)), ..Metadata::default() },
            spec: WorkflowSpec { machine: name.into(), template: template.into(), purpose, ..WorkflowSpec::default() },
            status: Some(WorkflowStatus { phase: WorkflowPhase::Pending, ..WorkflowStatus::default() }),
        });
    }

    pub(super) fn make(&mut self, step: &Step) {
        match step {
            Step::Claim(many) => {
                let (free, wanted) = (self.free(), self.pool.spec.clone());
                assert!(free.len() >= *many);
                for name in free.into_iter().take(*many) {
                    let status = self.machines.get_mut(&name).unwrap().0.status.as_mut().unwrap();
                    status.pool = Some(PoolClaim {
                        name: "web".into(),
                        uid: POOL,
                        since: now(),
                        wanted: wanted.install(),
                        installed: None,
                        before: status.workflow.clone(),
                        owned: false,
                        problem: None,
                        retry_at: None,
                        released: None,
                    });
                }
            }
            Step::Install { machine, authorised } => {
                assert_eq!(*authorised, self.carries(machine), "{machine}");
                let claim = self.claim(machine).unwrap();
                assert!(claim.owned || !*authorised, "{machine} carries what is not the pool's");
                let template = claim.wanted.template.clone();
                self.writes(machine);
                self.begin(machine, Purpose::Provision, &template);
            }
            Step::Note(machine) => {
                let (found, workflow) = &self.machines[machine];
                let member = Member::of(found, workflow.as_ref(), POOL).unwrap();
                let (written, installed, newest) = (member.has_written(), member.has_installed(), self.newest(machine));
                let replaced = member.has_begun() && !installed;
                let claim = self.claim(machine).unwrap();
                claim.owned |= written;
                if replaced {
                    claim.installed = None;
                }
                if installed {
                    (claim.installed, claim.before) = (Some(claim.wanted.clone()), newest);
                }
            }
            Step::Renew(machine) => {
                let (found, workflow) = &self.machines[machine];
                let member = Member::of(found, workflow.as_ref(), POOL).unwrap();
                let (intact, written) = (member.is_intact(), member.has_written());
                let (wanted, newest) = (self.pool.spec.install(), self.newest(machine));
                let claim = self.claim(machine).unwrap();
                claim.owned |= written;
                (claim.wanted, claim.before, claim.problem) = (wanted, newest, None);
                claim.installed = claim.installed.take().filter(|_| intact);
            }
            Step::Release { machine, authorised } => {
                self.writes(machine);
                let claim = self.claim(machine).unwrap();
                let by = authorised.then(ann);
                claim.released = Some(PoolReleased { by, release: PoolRelease::default(), surplus: true });
            }
            Step::Withdraw(machine) => self.claim(machine).unwrap().released = None,
            Step::Cancel(machine) => {
                let by = Authority { person: format!("{}web", PoolClaim::BY), ..ann() };
                self.machines.get_mut(machine).unwrap().1.as_mut().unwrap().spec.cancel = Some(by);
                self.end(machine, WorkflowPhase::Cancelled);
            }
            Step::Clear(machine) => {
                assert!(self.claim(machine).unwrap().released.as_ref().unwrap().by.is_some());
                self.begin(machine, Purpose::Deprovision, landfall_api::BUILT_IN_DEPROVISION);
            }
            Step::Free(machine) => self.machines.get_mut(machine).unwrap().0.status.as_mut().unwrap().pool = None,
        }
    }

    /// The pool, not a person, has the machine written or wiped.
    pub(super) fn writes(&mut self, machine: &str) {
        if self.carries(machine) {
            self.wiped.push(machine.into());
        }
    }

    /// A person releases the machine.
    pub(super) fn release(&mut self, name: &str) {
        let newest = self.newest(name);
        let (machine, workflow) = &self.machines[name];
        let Some(member) = Member::of(machine, workflow.as_ref(), POOL) else { return };
        let clears = member.clearing().is_some_and(crate::has_ended);
        let claim = self.claim(name).unwrap();
        let released = PoolReleased { by: Some(ann()), release: PoolRelease::default(), surplus: false };
        (claim.released, claim.problem) = (Some(released), None);
        if clears {
            (claim.before, claim.owned) = (newest, true);
        }
    }

    pub(super) fn newest(&self, name: &str) -> Option<String> {
        self.machines[name].0.status.as_ref()?.workflow.clone()
    }

    pub(super) fn carries(&self, name: &str) -> bool {
        carries_system(self.machines[name].0.status.as_ref().unwrap())
    }

    /// The machine's workflow ends like this.
    pub(super) fn end(&mut self, name: &str, phase: WorkflowPhase) {
        let (machine, workflow) = self.machines.get_mut(name).unwrap();
        let workflow = workflow.as_mut().unwrap();
        let run = workflow.status.as_mut().unwrap();
        run.phase = phase;
        if phase != WorkflowPhase::Cancelled {
            run.started_at = Some(now());
        }
        let status = machine.status.as_mut().unwrap();
        let cleared = workflow.spec.purpose == Purpose::Deprovision;
        match phase {
            WorkflowPhase::Cancelled => {}
            WorkflowPhase::Succeeded if cleared => {
                status.receipts.clear();
                derive::set(&mut status.conditions, Type::Provisioned, false, Reason::Deprovisioned, "", (now(), 1));
            }
            _ if cleared => {}
            _ => {
                let state = if phase == WorkflowPhase::Succeeded { ReceiptState::Done } else { ReceiptState::Intent };
                let receipt = Receipt {
                    machine_uid: Uuid::from_u128(9),
                    workflow_uid: workflow.metadata.uid.unwrap(),
                    workflow_name: "w".into(),
                    generation: 1,
                    action_index: 0,
                    image_digest: None,
                    state,
                    written_at: now(),
                };
                status.receipts = vec![DiskReceipt { disk: DiskId::default(), receipt }];
                let installed = phase == WorkflowPhase::Succeeded;
                derive::set(&mut status.conditions, Type::Provisioned, installed, Reason::Installed, "", (now(), 1));
            }
        }
    }

    /// Makes one look's steps.
    pub(super) fn look(&mut self) -> usize {
        let plan = self.plan();
        self.pool.status = Some(plan.status);
        plan.steps.iter().for_each(|step| self.make(step));
        plan.steps.len()
    }

    /// Until nothing happens any more; every workflow ends as `outcome` says of its machine. Answers how many were open at once.
    pub(super) fn settle(&mut self, outcome: impl Fn(&str) -> WorkflowPhase) -> usize {
        let mut most = 0;
        for _ in 0..300 {
            let steps = self.look();
            let open: Vec<_> = self
                .machines
                .iter()
                .filter(|(_, (_, workflow))| workflow.as_ref().is_some_and(is_open))
                .map(|(name, _)| name.clone())
                .collect();
            most = most.max(open.len());
            if steps == 0 && open.is_empty() {
                return most;
            }
            open.iter().for_each(|name| self.end(name, outcome(name)));
        }
        panic!("it does not settle: {:?}", self.plan());
    }

    pub(super) fn counts(&self) -> (u32, u32, u32) {
        let status = self.plan().status;
        (status.ready, status.outdated, status.failed)
    }

    pub(super) fn reason(&self) -> Reason {
        self.plan().status.conditions[0].reason.clone()
    }

    pub(super) fn members(&self) -> Vec<&str> {
        let has = |machine: &Machine| machine.status.as_ref().unwrap().pool.is_some();
        self.machines.iter().filter(|(_, (machine, _))| has(machine)).map(|(name, _)| name.as_str()).collect()
    }
}

pub(super) fn well(_: &str) -> WorkflowPhase {
    WorkflowPhase::Succeeded
}
