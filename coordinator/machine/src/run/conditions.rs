//! The conditions of a workflow. Slow, silent and stuck are different: an agent that is heard and does too little, an
//! agent that is not heard, and a state whose deadline is near or past. Each has its own reasons and its own remedy.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{
    ActionState, ActionStatus, Condition, ConditionStatus, ConditionType as Type, Reason, Workflow, WorkflowPhase,
    WorkflowStatus,
};

use super::{frontier::frontier, policy, restarts};

/// A deadline is near when less than this part of the time is left.
const NEAR: u32 = 10;

/// What is known of the agent that works on the run.
#[derive(Debug, Clone, Copy)]
pub struct Heard {
    /// When it was last heard; absent: there is no session.
    pub last: Option<Timestamp>,
    /// An agent not heard for so long is silent.
    pub limit: Duration,
    /// An agent that has not come so long after its workflow was requested is missing.
    pub netboot: Duration,
    /// Nothing that was tried through the BMC has led to it, and nothing else is tried.
    pub gave_up: bool,
}

/// Brings a run's conditions in line with its state and with its agent; without `heard`, what was known of the agent
/// stays. Says whether any changed in status or reason: a message alone is not worth a write.
pub fn derive(workflow: &mut Workflow, heard: Option<Heard>, now: Timestamp) -> bool {
    let generation = workflow.metadata.generation;
    let (machine, requested) = (workflow.spec.machine.clone(), workflow.metadata.creation_timestamp);
    let Some(status) = &mut workflow.status else { return false };
    let mut changed = false;
    for new in find(status, &machine, requested, heard, now) {
        changed |= new.is_news(status);
        let truth = new.truth();
        match status.conditions.iter_mut().find(|c| c.kind == new.kind) {
            Some(old) => {
                if old.status != truth {
                    old.since = now;
                }
                old.status = truth;
                old.reason = new.reason;
                old.message = new.message;
                old.observed_generation = generation;
            }
            None => status.conditions.push(Condition {
                kind: new.kind,
                status: truth,
                reason: new.reason,
                message: new.message,
                since: now,
                observed_generation: generation,
            }),
        }
    }
    changed
}

/// Whether [`derive()`] would change any in status or reason. Most runs have nothing new to say, and are many.
pub fn has_news(workflow: &Workflow, heard: Option<Heard>, now: Timestamp) -> bool {
    let Some(status) = &workflow.status else { return false };
    let requested = workflow.metadata.creation_timestamp;
    find(status, &workflow.spec.machine, requested, heard, now).iter().any(|found| found.is_news(status))
}

fn find(
    status: &WorkflowStatus, machine: &str, requested: Option<Timestamp>, heard: Option<Heard>, now: Timestamp,
) -> Vec<Found> {
    let at: Vec<&ActionStatus> = at(status).collect();
    let mut found = vec![progressing(status, &at, machine), paused(status), stuck(status, &at, now)];
    found.extend(not_seen(status, machine, requested, heard, now));
    // Nothing is said of a machine that never did.
    found.extend(restarts::newest(status).map(|message| yes(Type::Restarted, Reason::MachineRestarted, message)));
    match heard {
        Some(heard) => found.extend([silent(status, heard, now), slow(status, &at, heard, now)]),
        // Nothing is silent or slow once it is over.
        None if status.phase != WorkflowPhase::Running => {
            found.extend([no(Type::Silent, Reason::NoAgent, ""), no(Type::Slow, Reason::NoAgent, "")]);
        }
        None => {}
    }
    found
}

struct Found {
    kind: Type,
    holds: bool,
    reason: Reason,
    message: String,
}

impl Found {
    fn truth(&self) -> ConditionStatus {
        if self.holds { ConditionStatus::True } else { ConditionStatus::False }
    }

    fn is_news(&self, status: &WorkflowStatus) -> bool {
        let old = status.conditions.iter().find(|c| c.kind == self.kind);
        old.is_none_or(|old| old.status != self.truth() || old.reason != self.reason)
    }
}

fn yes(kind: Type, reason: Reason, message: impl Into<String>) -> Found {
    Found { kind, holds: true, reason, message: message.into() }
}

fn no(kind: Type, reason: Reason, message: impl Into<String>) -> Found {
    Found { holds: false, ..yes(kind, reason, message) }
}

fn at(status: &WorkflowStatus) -> impl Iterator<Item = &ActionStatus> {
    frontier(status).into_iter().filter_map(|index| status.action(index))
}

fn progressing(status: &WorkflowStatus, at: &[&ActionStatus], machine: &str) -> Found {
    const KIND: Type = Type::Progressing;
    match status.phase {
        WorkflowPhase::Pending => match status.conditions.iter().find(|c| c.kind == Type::Admitted) {
            Some(queued) if queued.reason == Reason::Queued => no(KIND, Reason::Queued, queued.message.clone()),
            _ => {
                let by_hand = status.prompt.as_ref().map(|prompt| format!(": {prompt}")).unwrap_or_default();
                no(KIND, Reason::WaitingForAgent, format!("waits for {machine} to netboot{by_hand}"))
            }
        },
        WorkflowPhase::Running => {
            let name = |a: &&ActionStatus| format!("action \"{}\", attempt {}", a.action.name, a.attempt.max(1));
            let what = at.iter().map(name).collect::<Vec<_>>().join("; ");
            let hold = at.iter().filter(|a| a.holds()).find_map(|a| match &a.action.spec {
                landfall_api::ActionSpec::Hold(hold) => Some((a.action.name.as_str(), hold.message.as_str())),
                _ => None,
            });
            match (status.ending, hold) {
                (_, Some((action, message))) => no(
                    KIND,
                    Reason::Holding,
                    format!("\"{action}\" waits for a person: {message}; then run landfall resume"),
                ),
                (Some(_), None) => yes(KIND, Reason::AfterFailure, what),
                (None, None) if status.phoned_home_at.is_some_and(|when| nothing_begun_since(at, when)) => no(
                    KIND,
                    Reason::WaitingForAgent,
                    format!(
                        "the installed system of {machine} runs, but actions are not done ({what}); restart the machine so \
                        that it netboots"
                    ),
                ),
                (None, None) => yes(KIND, Reason::Running, what),
            }
        }
        WorkflowPhase::Rebooting => {
            yes(KIND, Reason::WaitingForPhoneHome, "waits for the installed system to phone home")
        }
        WorkflowPhase::Succeeded => no(KIND, Reason::Succeeded, "done"),
        WorkflowPhase::Failed | WorkflowPhase::Cancelled => {
            no(KIND, Reason::Ended, status.problem.as_ref().map_or_else(String::new, ToString::to_string))
        }
    }
}

fn nothing_begun_since(at: &[&ActionStatus], when: Timestamp) -> bool {
    at.iter().all(|action| action.started_at.is_none_or(|begun| begun <= when))
}

fn paused(status: &WorkflowStatus) -> Found {
    match &status.paused {
        Some(pause) => yes(
            Type::Paused,
            Reason::ByPerson,
            format!(
                "{} paused it; its deadline is suspended, and it fails if it is not resumed by {}",
                pause.by, pause.until
            ),
        ),
        None => no(Type::Paused, Reason::NotPaused, ""),
    }
}

fn stuck(status: &WorkflowStatus, at: &[&ActionStatus], now: Timestamp) -> Found {
    const KIND: Type = Type::Stuck;
    let Some(deadline) = status.deadline else {
        return match status.phase {
            WorkflowPhase::Pending => {
                no(KIND, Reason::NoDeadline, "it has no deadline: a person decides when to power on the machine")
            }
            _ => no(KIND, Reason::Ended, ""),
        };
    };
    if deadline <= now {
        return yes(KIND, Reason::DeadlinePassed, format!("its current state should have changed by {deadline}"));
    }
    let begun = at.iter().filter_map(|a| a.started_at).chain(status.rebooted_at).max().or(status.started_at);
    let left = between(now, deadline);
    match begun.map(|begun| between(begun, deadline)) {
        Some(all) if left < all / NEAR && status.paused.is_none() => yes(
            KIND,
            Reason::DeadlineNear,
            format!("its current state must change by {deadline}, in {} s", left.as_secs()),
        ),
        _ => no(KIND, Reason::InTime, format!("must have changed by {deadline}")),
    }
}

/// A machine that is to netboot and does not. Nothing is said of one that comes in time.
fn not_seen(
    status: &WorkflowStatus, machine: &str, requested: Option<Timestamp>, heard: Option<Heard>, now: Timestamp,
) -> Option<Found> {
    const KIND: Type = Type::NotSeen;
    let queued = || status.conditions.iter().any(|c| c.kind == Type::Admitted && c.reason == Reason::Queued);
    let late = requested.zip(heard).filter(|(requested, heard)| {
        let waits = status.phase == WorkflowPhase::Pending && status.paused.is_none() && heard.last.is_none();
        waits && !queued() && (heard.gave_up || between(*requested, now) >= heard.netboot)
    });
    if let Some((requested, _)) = late {
        let message = format!(
            "{machine} has not netbooted since the workflow was requested {requested}: check its power, its boot order and \
                the coordinator's log of DHCP"
        );
        return Some(yes(KIND, Reason::NeverNetbooted, message));
    }
    let known = status.conditions.iter().any(|c| c.kind == KIND);
    // Without a look at the agent, what was known of a machine that waits stays.
    (known && (heard.is_some() || status.phase != WorkflowPhase::Pending)).then(|| no(KIND, Reason::Seen, ""))
}

/// Says of a machine that is missing what was tried through its BMC.
pub fn add_tried(workflow: &mut Workflow, tried: String) {
    let conditions = workflow.status.iter_mut().flat_map(|status| &mut status.conditions);
    for missing in conditions.filter(|c| c.kind == Type::NotSeen && c.status == ConditionStatus::True) {
        if !tried.is_empty() {
            missing.message.push_str(&format!(". Through its BMC was tried: {tried}"));
        }
    }
}

fn silent(status: &WorkflowStatus, heard: Heard, now: Timestamp) -> Found {
    const KIND: Type = Type::Silent;
    if status.phase != WorkflowPhase::Running {
        return no(KIND, Reason::NoAgent, "");
    }
    match heard.last {
        Some(last) if between(last, now) < heard.limit => no(KIND, Reason::Heard, "heartbeats come"),
        Some(last) => yes(
            KIND,
            Reason::NoHeartbeat,
            format!("the agent has not been heard since {last}; it goes on alone for as long as its lease allows"),
        ),
        None => {
            yes(KIND, Reason::NoSession, "the agent is not connected; it may be starting, or have no network or power")
        }
    }
}

/// Only of an agent that is heard: of a silent one nothing is known.
fn slow(status: &WorkflowStatus, at: &[&ActionStatus], heard: Heard, now: Timestamp) -> Found {
    const KIND: Type = Type::Slow;
    let is_heard = heard.last.is_some_and(|last| between(last, now) < heard.limit);
    // As where nothing is known of an agent: what looks by turns would otherwise write it by turns.
    if status.phase != WorkflowPhase::Running {
        return no(KIND, Reason::NoAgent, "");
    }
    if !is_heard {
        return no(KIND, Reason::NotHeard, "");
    }
    // What waits makes no progress by itself.
    let waits = |a: &ActionStatus| a.holds() || matches!(a.action.spec, landfall_api::ActionSpec::Wait(_));
    for action in at.iter().filter(|a| a.is_under_way() && !waits(a)) {
        let (name, Some(progress)) = (&action.action.name, &action.progress) else { continue };
        let waits = if progress.slowest.is_empty() { "" } else { progress.slowest.as_str() };
        let because = if waits.is_empty() { String::new() } else { format!("; the others wait for {waits}") };
        if let Some(moved) = action.moved_at.filter(|moved| between(*moved, now) >= policy::NO_PROGRESS) {
            return yes(
                KIND,
                Reason::NoProgress,
                format!("\"{name}\" has made no progress since {moved}, although its agent is connected{because}"),
            );
        }
        let ends = action.started_at.map(|started| super::state::after(started, policy::timeout(&action.action)));
        if let (Some(ends), Some(seconds)) = (ends, progress.remaining_seconds())
            && between(now, ends) < Duration::from_secs(seconds)
        {
            let message =
                format!("\"{name}\" needs {seconds} s more at its current rate, but its timeout is at {ends}{because}");
            return yes(KIND, Reason::BehindDeadline, message);
        }
    }
    no(KIND, Reason::InTime, "")
}

/// From the first to the second; zero if the clock went back.
fn between(first: Timestamp, second: Timestamp) -> Duration {
    Duration::try_from(second.duration_since(first)).unwrap_or_default()
}

/// Whether an attempt is being retried or waits to be: the agent holds the list although nothing runs.
pub fn between_attempts(status: &WorkflowStatus) -> bool {
    at(status).any(|a| a.attempt > 0 && a.ended_at.is_some() && a.state != ActionState::Succeeded)
}
