//! How a machine stands towards pools.

use landfall_api::{
    ConditionStatus, ConditionType as Type, EnrolmentStatus, Machine, MachineStatus, PoolClaim, PoolMemberState,
    PoolSpec, Purpose, Workflow,
};

use uuid::Uuid;

use crate::derive;
use crate::life::{is_held, is_installed, is_open, may_begin, succeeded, waits, was_cancelled, was_installed};

/// A machine of a pool, with its newest workflow.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// What the pool wants of it.
    pub claim: &'a PoolClaim,
    /// Its newest workflow.
    pub workflow: Option<&'a Workflow>,
}

impl<'a> Member<'a> {
    /// The machine as a member of that pool, if it is one. A machine that is being deleted is none.
    pub fn of(machine: &'a Machine, workflow: Option<&'a Workflow>, pool: Uuid) -> Option<Self> {
        let claim = machine.status.as_ref()?.pool.as_ref().filter(|claim| claim.uid == pool)?;
        machine.metadata.deletion_timestamp.is_none().then_some(Self { machine, claim, workflow })
    }

    /// The machine's name.
    pub fn name(&self) -> &'a str {
        &self.machine.metadata.name
    }

    /// The newest workflow, if it is younger than what is wanted.
    fn later(&self) -> Option<&'a Workflow> {
        self.workflow.filter(|workflow| self.claim.before.as_ref() != Some(&workflow.metadata.name))
    }

    /// The newest workflow, if it installs what the pool wants of the machine.
    pub(super) fn install(&self) -> Option<&'a Workflow> {
        self.later().filter(|workflow| {
            let (spec, wanted) = (&workflow.spec, &self.claim.wanted);
            let by_pool = spec.cancel.as_ref().is_some_and(|by| by.person.starts_with(PoolClaim::BY));
            spec.purpose == Purpose::Provision
                && spec.template == wanted.template
                && spec.parameters == wanted.parameters
                // What the pool itself took back before it began may be wanted again.
                && !(by_pool && was_cancelled(workflow) && !has_started(workflow))
        })
    }

    /// The workflow that clears the machine for its release.
    pub fn clearing(&self) -> Option<&'a Workflow> {
        self.later().filter(|workflow| workflow.spec.purpose == Purpose::Deprovision)
    }

    /// Whether a workflow that is younger than what is wanted has no document: a person deleted it, or it cannot be read. Then nothing is
    /// known of what it did.
    pub(super) fn is_unknown(&self) -> bool {
        let named = self.machine.status.as_ref().and_then(|status| status.workflow.as_ref());
        self.workflow.is_none() && named.is_some() && named != self.claim.before.as_ref()
    }

    /// Whether an agent has taken a workflow that is younger than what is wanted.
    pub fn has_begun(&self) -> bool {
        self.later().is_some_and(has_started)
    }

    /// Whether a workflow that is younger than what is wanted has written a disk: it has installed the machine, or left its receipt.
    pub fn has_written(&self) -> bool {
        let receipts = self.machine.status.iter().flat_map(|status| &status.receipts);
        let of = |uid: Uuid| receipts.clone().any(|found| found.receipt.workflow_uid == uid);
        self.has_installed() || self.later().and_then(|workflow| workflow.metadata.uid).is_some_and(of)
    }

    /// Whether the system that the pool installed is still there, as far as is known: nothing has begun since.
    pub fn is_intact(&self) -> bool {
        !self.is_unknown() && (!self.has_begun() || self.has_installed())
    }

    /// Whether the newest workflow has installed what is wanted.
    pub fn has_installed(&self) -> bool {
        self.install().is_some_and(succeeded)
    }

    /// Whether the claim is yet to say that, or that the machine is the pool's.
    pub(super) fn is_to_note(&self) -> bool {
        self.has_written() && !self.claim.owned
            || self.has_begun() && !self.has_installed() && self.claim.installed.is_some()
            || self.has_installed() && self.claim.installed.as_ref() != Some(&self.claim.wanted)
    }

    /// Whether the pool has yet to request the workflow that it wants.
    pub(super) fn is_to_install(&self) -> bool {
        self.claim.released.is_none()
            && !self.is_unknown()
            && self.install().is_none()
            && self.claim.installed.as_ref() != Some(&self.claim.wanted)
    }

    /// Whether the pool's document wants something else of the machine by now.
    pub(super) fn is_outdated(&self, wanted: &PoolSpec) -> bool {
        self.claim.wanted.template != wanted.template || self.claim.wanted.parameters != wanted.parameters
    }

    /// Whether anything may be installed on the machine, as far as is known.
    pub(super) fn carries_system(&self) -> bool {
        self.machine.status.as_ref().is_some_and(carries_system)
    }

    /// Whether what is on the machine is not the pool's: a person had it installed or adopted it after the claim.
    pub(super) fn is_of_others(&self) -> bool {
        let adopted = self.machine.status.as_ref().is_some_and(|status| status.adopted.is_some());
        adopted || self.carries_system() && !self.claim.owned && !self.has_written()
    }

    /// Whether no agent has taken the machine's workflow yet, or there is none: nothing was done for the pool.
    pub(super) fn has_not_begun(&self) -> bool {
        self.claim.released.is_none()
            && !self.is_unknown()
            && self.claim.installed.as_ref() != Some(&self.claim.wanted)
            && self.install().is_none_or(waits)
    }
}

/// Whether the workflow waits for its machine, and no person has stopped it.
pub(super) fn is_cancellable(workflow: &Workflow) -> bool {
    waits(workflow) && workflow.spec.cancel.is_none()
}

/// Whether an agent has taken the workflow.
fn has_started(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.started_at.is_some())
}

/// How a member stands.
pub fn state(member: &Member<'_>, wanted: &PoolSpec) -> PoolMemberState {
    let claim = member.claim;
    if claim.released.is_some() {
        return PoolMemberState::Releasing;
    }
    let runs = || match member.is_outdated(wanted) {
        true => PoolMemberState::Outdated,
        false => PoolMemberState::Ready,
    };
    match member.install() {
        Some(install) if is_open(install) => PoolMemberState::Installing,
        Some(install) if succeeded(install) => runs(),
        Some(_) => PoolMemberState::Failed,
        None if claim.installed.as_ref() == Some(&claim.wanted) => runs(),
        None => PoolMemberState::Installing,
    }
}

/// Whether anything may be installed on the machine, as far as is known.
pub fn carries_system(status: &MachineStatus) -> bool {
    is_installed(status) || was_installed(status)
}

/// Whether a pool may claim the machine: it is approved and well, nothing is known to be installed or begun, no workflow is open, and the
/// last one did not fail.
pub fn is_free(machine: &Machine, workflow: Option<&Workflow>) -> bool {
    let Some(status) = &machine.status else { return false };
    let unhealthy = derive::find(&status.conditions, &Type::Healthy)
        .is_some_and(|condition| condition.status == ConditionStatus::False);
    // The workflow of an enrolment rule is about to be requested.
    let of_a_rule = status.enrolment.rule.as_ref().is_some_and(|rule| rule.template.is_some() && rule.run.is_none());
    let ended_well = workflow.is_none_or(|workflow| succeeded(workflow) || was_cancelled(workflow));
    status.pool.is_none()
        && may_begin(machine).is_ok()
        && is_held(machine).is_none()
        && !EnrolmentStatus::is_unapproved(&status.enrolment)
        && !unhealthy
        && !of_a_rule
        && !carries_system(status)
        && ended_well
}
