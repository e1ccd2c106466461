//! What a pool does next, and how it stands.

use jiff::Timestamp;
use landfall_api::{
    ConditionStatus, ConditionType as Type, Machine, POOL_MEMBERS_SHOWN, Pool, PoolMember, PoolMemberState as State,
    PoolSpec, PoolStatus, Reason, Workflow,
};

use super::member::{Member, is_cancellable, state};
use crate::derive;
use crate::life::{is_open, succeeded};

/// Something that a pool does with a machine; each is repeated without harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// So many free machines become the pool's.
    Claim(usize),
    /// The machine's workflow is requested; `authorised`: in the name of the person behind the pool, since a system may be on it.
    Install {
        /// The machine.
        machine: String,
        /// Whether it needs the person.
        authorised: bool,
    },
    /// The machine's workflow has begun, or has installed what was wanted.
    Note(String),
    /// What is wanted of the machine becomes what the pool's document says.
    Renew(String),
    /// The machine leaves the pool; `authorised`: in the name of the person behind the pool, since a system may be on it.
    Release {
        /// The machine.
        machine: String,
        /// Whether it needs the person.
        authorised: bool,
    },
    /// A machine that was to leave stays.
    Withdraw(String),
    /// The open workflow of a machine that was released is cancelled.
    Cancel(String),
    /// The disks of a machine that was released are wiped.
    Clear(String),
    /// The machine is the pool's no more.
    Free(String),
}

/// What is to be done now, and the status until then.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The steps, in their order.
    pub steps: Vec<Step>,
    /// How the pool stands.
    pub status: PoolStatus,
}

/// What a plan goes by besides the pool and its members.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// How many machines the pool could claim.
    pub free: usize,
    /// Whether there is such a template.
    pub template: bool,
    /// The time.
    pub now: Timestamp,
}

/// Plans for a pool with these members.
pub fn plan(pool: &Pool, members: &[Member<'_>], seen: Seen) -> Plan {
    let spec = &pool.spec;
    let (lost, members): (Vec<_>, Vec<_>) = members.iter().partition(|member| is_lost(member));
    let standing: Vec<Standing<'_>> = members.into_iter().map(|member| (state(member, spec), member)).collect();
    let count = |wanted: State| standing.iter().filter(|(state, _)| *state == wanted).count();
    let (failed, releasing, wanted) = (count(State::Failed), count(State::Releasing), spec.replicas as usize);
    let serving = standing.len() - failed - releasing;
    let authorised = pool.status.as_ref().is_some_and(|status| status.requested.is_some());
    // What failed with another template says nothing of this one.
    let failed_now =
        standing.iter().filter(|(state, member)| *state == State::Failed && !member.is_outdated(spec)).count();
    let noted = standing.iter().filter(|(_, member)| member.is_to_note());
    let noted = noted.map(|(_, member)| Step::Note(member.name().to_owned()));
    let mut todo = Todo {
        steps: lost
            .into_iter()
            .map(|member| Step::Free(member.name().to_owned()))
            .chain(noted)
            .chain(standing.iter().filter_map(|(_, member)| leave(member, seen.now)))
            .collect(),
        authorised,
        ..Todo::default()
    };
    let stopped = failed_now > spec.max_failures as usize;
    if !spec.paused && seen.template {
        if serving > wanted {
            todo.surplus(&standing, serving - wanted);
        }
        if !stopped {
            todo.claim(&standing, spec, wanted.saturating_sub(serving), seen.free);
            todo.renew(&standing, spec.max_unavailable as usize);
            todo.begin(&standing, spec, seen.now);
        }
    }
    let ready = count(State::Ready);
    let (truth, reason, message) = if ready == wanted && standing.len() - failed == wanted {
        let message = format!("{ready} of {wanted} machines run template {}", spec.template);
        (ConditionStatus::True, Reason::Complete, message)
    } else {
        let (reason, why) = match seen.template {
            true => todo.why(spec, stopped.then_some(failed_now)),
            false => (Reason::NoTemplate, format!("there is no template {}", spec.template)),
        };
        (ConditionStatus::False, reason, format!("{ready} of {wanted} machines are ready: {why}"))
    };
    let as_u32 = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut status = PoolStatus {
        ready: as_u32(ready),
        installing: as_u32(count(State::Installing)),
        outdated: as_u32(count(State::Outdated)),
        failed: as_u32(failed),
        releasing: as_u32(releasing),
        members: shown(&standing),
        ..pool.status.clone().unwrap_or_default()
    };
    derive::put(&mut status.conditions, Type::Ready, truth, reason, message, (seen.now, pool.metadata.generation));
    Plan { steps: todo.steps, status }
}

type Standing<'a> = (State, &'a Member<'a>);

/// What is found to be done.
#[derive(Default)]
struct Todo {
    steps: Vec<Step>,
    /// Whether a person requested what the pool's document says.
    authorised: bool,
    /// Machines that are wanted, and not there.
    lacking: usize,
    /// Machines that only a person may have wiped.
    needs_person: usize,
}

impl Todo {
    /// Why the pool is not ready.
    fn why(&self, spec: &PoolSpec, too_many: Option<usize>) -> (Reason, String) {
        if spec.paused {
            return (Reason::Paused, "spec.paused is set, and nothing begins".into());
        }
        if let Some(failed) = too_many {
            let why = format!(
                "{failed} machines failed, and spec.maxFailures is {}; nothing begins before a person retries or releases them",
                spec.max_failures
            );
            return (Reason::TooManyFailures, why);
        }
        if self.needs_person > 0 {
            let why = format!(
                "{} machines may carry a system, and a file wants them wiped, no person; apply the pool by hand, or release them",
                self.needs_person
            );
            return (Reason::NeedsPerson, why);
        }
        match self.lacking {
            0 => (Reason::Rolling, "machines are being installed, or leave".into()),
            1 => (Reason::TooFewMachines, "1 more is wanted, and no other machine is free and suitable".into()),
            n => (Reason::TooFewMachines, format!("{n} more are wanted than machines are free and suitable")),
        }
    }

    /// Whether something may be installed on the machine, or its disks be wiped; one that may not is counted.
    fn may_wipe(&mut self, member: &Member<'_>) -> bool {
        let may = self.authorised || !member.carries_system();
        self.needs_person += usize::from(!may);
        may
    }

    /// So many machines become the pool's: first those that were to leave and are not cleared yet, then those that failed with another
    /// template, then free ones. Before the first runs what is wanted, only as many are begun as may fail, and one.
    fn claim(&mut self, standing: &[Standing<'_>], spec: &PoolSpec, missing: usize, free: usize) {
        let stays = |member: &Member<'_>| {
            member.claim.released.as_ref().is_some_and(|released| released.surplus) && member.clearing().is_none()
        };
        let stay: Vec<_> = standing.iter().filter(|(_, member)| stays(member)).take(missing).collect();
        let missing = missing - stay.len();
        for (_, member) in stay {
            self.steps.retain(|step| !step.is_of(member.name()));
            self.steps.push(Step::Withdraw(member.name().to_owned()));
        }
        let failed = standing.iter().filter(|(state, member)| *state == State::Failed && member.is_outdated(spec));
        let again: Vec<_> = failed.map(|(_, member)| *member).filter(|member| is_at_hand(member)).collect();
        let again: Vec<_> = again.into_iter().filter(|member| self.may_wipe(member)).take(missing).collect();
        let missing = missing - again.len();
        let begun = again.len() + standing.iter().filter(|(state, _)| *state == State::Installing).count();
        self.steps.extend(again.iter().map(|member| Step::Renew(member.name().to_owned())));
        let claims = missing.min(free);
        self.lacking = missing - claims;
        let tried = standing.iter().any(|(state, _)| *state == State::Ready);
        let most = if tried { usize::MAX } else { (spec.max_failures as usize + 1).saturating_sub(begun) };
        if claims.min(most) > 0 {
            self.steps.push(Step::Claim(claims.min(most)));
        }
    }

    /// Which members are released where so many are too many: those on which nothing was done first, then those with an older
    /// template, then the newest. One that is being installed is not.
    fn surplus(&mut self, standing: &[Standing<'_>], many: usize) {
        let rank = |(state, member): &Standing<'_>| match state {
            State::Installing if member.has_not_begun() => Some(0),
            State::Outdated => Some(1),
            State::Ready => Some(2),
            State::Installing | State::Failed | State::Releasing => None,
        };
        let mut order: Vec<_> = standing.iter().filter_map(|standing| Some((rank(standing)?, standing.1))).collect();
        order.sort_by(|(a, one), (b, other)| {
            let newest_first = other.claim.since.cmp(&one.claim.since);
            a.cmp(b).then(newest_first).then_with(|| one.name().cmp(other.name()))
        });
        for (_, member) in order.into_iter().take(many) {
            if self.may_wipe(member) {
                let authorised = member.carries_system();
                self.steps.push(Step::Release { machine: member.name().to_owned(), authorised });
            }
        }
    }

    /// Has members with an older template installed anew, as many at once as may be out of service.
    fn renew(&mut self, standing: &[Standing<'_>], most: usize) {
        let away = standing.iter().filter(|(state, _)| *state == State::Installing).count();
        let mut left = most.saturating_sub(away);
        for (_, member) in standing.iter().filter(|(state, member)| *state == State::Outdated && is_at_hand(member)) {
            if left == 0 || !self.may_wipe(member) {
                continue;
            }
            left -= 1;
            self.steps.push(Step::Renew(member.name().to_owned()));
        }
    }

    /// Requests the workflows that are wanted, and ends those that wait and are not wanted any more.
    fn begin(&mut self, standing: &[Standing<'_>], spec: &PoolSpec, now: Timestamp) {
        for (state, member) in standing.iter().filter(|(_, member)| is_at_hand(member)) {
            let machine = member.name().to_owned();
            if self.steps.iter().any(|step| step.is_of(&machine)) {
                continue;
            }
            if *state == State::Installing && member.has_not_begun() && member.is_outdated(spec) {
                // First what waits must not begin any more.
                match member.workflow.filter(|workflow| is_open(workflow)) {
                    None => self.steps.push(Step::Renew(machine)),
                    Some(workflow) if is_cancellable(workflow) => self.steps.push(Step::Cancel(machine)),
                    Some(_) => {}
                }
            } else if member.is_to_install()
                && !member.is_of_others()
                && !member.workflow.is_some_and(is_open)
                && member.claim.retry_at.is_none_or(|at| at <= now)
                && self.may_wipe(member)
            {
                self.steps.push(Step::Install { machine, authorised: member.carries_system() });
            }
        }
    }
}

impl Step {
    /// Whether it is about that machine.
    fn is_of(&self, name: &str) -> bool {
        match self {
            Self::Claim(_) => false,
            Self::Install { machine, .. } | Self::Release { machine, .. } => machine == name,
            Self::Note(machine)
            | Self::Renew(machine)
            | Self::Withdraw(machine)
            | Self::Cancel(machine)
            | Self::Clear(machine)
            | Self::Free(machine) => machine == name,
        }
    }
}

/// Whether no person works on the machine.
fn is_at_hand(member: &Member<'_>) -> bool {
    !member.machine.spec.maintenance
}

/// Whether a person installed something else on the machine, or adopted it: it is the pool's no more.
fn is_lost(member: &Member<'_>) -> bool {
    member.is_of_others() && !member.workflow.is_some_and(is_open)
}

/// What a member that was released does next. A clearing that failed, or after which a receipt is still there, is for a person to judge.
fn leave(member: &Member<'_>, now: Timestamp) -> Option<Step> {
    let name = member.name().to_owned();
    let released = member.claim.released.as_ref()?;
    match (member.clearing(), member.workflow) {
        (Some(clearing), _) if !succeeded(clearing) => None,
        (_, Some(workflow)) if is_open(workflow) => workflow.spec.cancel.is_none().then_some(Step::Cancel(name)),
        _ if !member.carries_system() => Some(Step::Free(name)),
        // Its agent was faster than the release, behind which no person stands.
        _ if released.by.is_none() => Some(Step::Withdraw(name)),
        (Some(_), _) => None,
        _ => {
            let due = member.claim.retry_at.is_none_or(|at| at <= now);
            (is_at_hand(member) && due).then_some(Step::Clear(name))
        }
    }
}

/// What the machine of a pool that is no more does next: it stays as it is, unless a person released it before.
pub fn orphaned(machine: &Machine, workflow: Option<&Workflow>, now: Timestamp) -> Option<Step> {
    let claim = machine.status.as_ref()?.pool.as_ref()?;
    let member = Member::of(machine, workflow, claim.uid)?;
    let name = member.name().to_owned();
    match &claim.released {
        _ if is_lost(&member) => Some(Step::Free(name)),
        Some(released) if released.by.is_some() => leave(&member, now),
        // It would be installed anew when it next netboots.
        _ if workflow.is_some_and(is_cancellable) => Some(Step::Cancel(name)),
        _ => Some(Step::Free(name)),
    }
}

/// Why the machine has not come for its workflow.
fn not_seen(member: &Member<'_>) -> Option<String> {
    let conditions = &member.workflow?.status.as_ref()?.conditions;
    derive::find(conditions, &Type::NotSeen)
        .filter(|_| derive::holds(conditions, &Type::NotSeen))
        .map(|c| c.message.clone())
}

/// Those first that are not ready.
fn shown(standing: &[Standing<'_>]) -> Vec<PoolMember> {
    let mut members: Vec<_> = standing
        .iter()
        .map(|(state, member)| {
            let of_run = || {
                member.workflow.and_then(|workflow| Some(workflow.status.as_ref()?.problem.as_ref()?.message.clone()))
            };
            let problem = match state {
                State::Releasing if member.clearing().is_some_and(succeeded) => {
                    Some("it was cleared, and a disk still carries a receipt: release it again, or adopt it".into())
                }
                State::Failed | State::Releasing => member.claim.problem.clone().or_else(of_run),
                State::Installing if member.is_unknown() => {
                    Some("the document of its workflow is missing, and what it did is unknown: release it".into())
                }
                State::Installing => member.claim.problem.clone().or_else(|| not_seen(member)),
                State::Outdated | State::Ready => None,
            };
            PoolMember { name: member.name().to_owned(), state: *state, problem }
        })
        .collect();
    members.sort_by(|a, b| a.state.cmp(&b.state).then_with(|| a.name.cmp(&b.name)));
    members.truncate(POOL_MEMBERS_SHOWN);
    members
}
