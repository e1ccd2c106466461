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

    /// The newest workflow, if it installs what the pool wants of the machine.
    pub(super) fn install(&self) -> Option<&'a Workflow> {
        self.workflow.filter(|workflow| {
            let (spec, claim) = (&workflow.spec, self.claim);
            spec.purpose == Purpose::Provision
                && claim.before.as_ref() != Some(&workflow.metadata.name)
                && spec.template == claim.template
                && spec.parameters == claim.parameters
        })
    }

    /// The newest workflow, if it clears the machine.
    pub(super) fn clearing(&self) -> Option<&'a Workflow> {
        self.workflow.filter(|workflow| workflow.spec.purpose == Purpose::Deprovision)
    }

    /// Whether the pool has yet to request the workflow that it wants.
    pub(super) fn is_to_install(&self) -> bool {
        self.claim.released.is_none() && self.claim.problem.is_none() && self.install().is_none()
    }

    /// Whether the pool's document wants something else of the machine by now.
    pub(super) fn is_outdated(&self, wanted: &PoolSpec) -> bool {
        self.claim.template != wanted.template || self.claim.parameters != wanted.parameters
    }

    /// Whether the machine waits with a workflow that is not what is wanted any more, and that no agent has taken.
    pub(super) fn waits_in_vain(&self) -> bool {
        self.claim.released.is_none() && self.install().is_none() && self.workflow.is_some_and(waits)
    }

    /// Whether anything may be installed on the machine, as far as is known.
    pub(super) fn carries_system(&self) -> bool {
        self.machine.status.as_ref().is_some_and(carries_system)
    }

    /// Whether no agent has taken the machine's workflow yet, or there is none: nothing was done for the pool.
    pub(super) fn has_not_begun(&self) -> bool {
        self.claim.released.is_none() && self.install().map_or(self.claim.problem.is_none(), waits)
    }
}

/// How a member stands.
pub fn state(member: &Member<'_>, wanted: &PoolSpec) -> PoolMemberState {
    let claim = member.claim;
    if claim.released.is_some() {
        return PoolMemberState::Releasing;
    }
    if claim.problem.is_some() {
        return PoolMemberState::Failed;
    }
    match member.install() {
        None => PoolMemberState::Installing,
        Some(install) if is_open(install) => PoolMemberState::Installing,
        Some(install) if !succeeded(install) => PoolMemberState::Failed,
        Some(_) if member.is_outdated(wanted) => PoolMemberState::Outdated,
        Some(_) => PoolMemberState::Ready,
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
    let ended_well = workflow.is_none_or(|workflow| succeeded(workflow) || was_cancelled(workflow));
    status.pool.is_none()
        && may_begin(machine).is_ok()
        && is_held(machine).is_none()
        && !EnrolmentStatus::is_unapproved(&status.enrolment)
        && !unhealthy
        && !carries_system(status)
        && ended_well
}
