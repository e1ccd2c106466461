//! The next step towards what is wanted.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{BmcStatus, BootAttempt, BootWay, PowerState};
use uuid::Uuid;

use super::attempts::{has_medium, open};
use super::step::{Outcome, Step};
use super::time::over;
use super::wanted::Wanted;

/// A system has so long to shut down before its power is cut: systemd gives a service 90 s.
const SHUTDOWN: Duration = Duration::from_secs(90);
/// From a request of power on or off to the reading that says so: some BMCs lag by 30 s.
const SWITCH: Duration = Duration::from_secs(60);

/// An agent that is not heard any more keeps its machine for so long: a switch that restarts takes two to three minutes.
const LOST: Duration = Duration::from_secs(300);

/// What a step goes by.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// What is wanted.
    pub wanted: Wanted,
    /// The agent is there.
    pub connected: bool,
    /// An agent may act on a lease, heard or not.
    pub leased: bool,
    /// When an agent was last heard.
    pub last_heard: Option<Timestamp>,
    /// The power can be read. Otherwise it can be switched on, and nothing else.
    pub reads_power: bool,
    /// The power, as just read.
    pub power: Option<PowerState>,
    /// The ways that may be tried, in this order.
    pub ways: &'a [BootWay],
    /// From power-on to the agent.
    pub netboot: Duration,
    /// The time.
    pub now: Timestamp,
}

/// The next step.
pub fn next(status: &BmcStatus, look: &Look<'_>) -> Step {
    let attempt = open(status);
    match (look.wanted, attempt) {
        // It may have come and gone between two looks: an install can be that short.
        (_, Some(attempt)) if look.connected || came(attempt, look.last_heard) => Step::End(Outcome::Heard),
        // The power is on its way: the agent, or the next workflow, says more.
        (Wanted::Nothing, Some(attempt)) if attempt.on_at.is_some() && !over(attempt.on_at, look.netboot, look.now) => {
            Step::Wait
        }
        (Wanted::Nothing, Some(_)) => Step::End(Outcome::Dropped),
        (Wanted::Netboot(workflow), Some(attempt)) if attempt.workflow_uid != workflow => Step::End(Outcome::Dropped),
        (Wanted::Netboot(_), Some(attempt)) => step_of(status, attempt, look),
        // Before anything else: the next start must not be from it.
        (_, None) if has_medium(status) => Step::ClearBoot,
        (Wanted::Nothing, None) if status.every_start => Step::ClearBoot,
        (Wanted::Nothing, None) => Step::Rest,
        (Wanted::Netboot(workflow), None) if lingers(status, workflow, look) => Step::Wait,
        (Wanted::Netboot(workflow), None) => match way_left(status, look.ways, workflow) {
            Some(way) => Step::Begin(workflow, way),
            None if status.every_start => Step::ClearBoot,
            None => Step::GiveUp,
        },
    }
}

/// Whether an agent was heard since the attempt began.
fn came(attempt: &BootAttempt, last_heard: Option<Timestamp>) -> bool {
    last_heard.is_some_and(|heard| heard > attempt.begun)
}

/// Whether an agent may be at work though it is not heard: it holds a lease, of whatever workflow, or came for this one and was lost a
/// moment ago. It may only have no network.
fn lingers(status: &BmcStatus, workflow: Uuid, look: &Look<'_>) -> bool {
    let has_come = status.attempts.iter().any(|a| a.workflow_uid == workflow && a.failure.is_none());
    if look.leased && look.power != Some(PowerState::Off) {
        return true;
    }
    let lately = look.last_heard.is_some() && !over(look.last_heard, LOST, look.now);
    has_come && lately && look.power != Some(PowerState::Off)
}

/// What was tried to have the machine netboot for this workflow, for people; and whether that was everything.
pub fn tried(status: &BmcStatus, ways: &[BootWay], workflow: Uuid) -> (String, bool) {
    let failed = status.attempts.iter().filter(|attempt| attempt.workflow_uid == workflow);
    let failed = failed.filter_map(|attempt| Some(format!("{}: {}", attempt.way, attempt.failure.as_ref()?)));
    let gave_up = open(status).is_none() && way_left(status, ways, workflow).is_none();
    (failed.collect::<Vec<_>>().join("; "), gave_up)
}

/// The first of the ways that has not failed for the workflow; what worked before comes first.
fn way_left(status: &BmcStatus, ways: &[BootWay], workflow: Uuid) -> Option<BootWay> {
    let failed = |a: &BootAttempt| a.workflow_uid == workflow && a.failure.is_some();
    let tried = |way: &BootWay| status.attempts.iter().any(|attempt| failed(attempt) && attempt.way == *way);
    let worked = status.worked.filter(|way| ways.contains(way));
    worked.into_iter().chain(ways.iter().copied()).find(|way| !tried(way))
}

fn step_of(status: &BmcStatus, attempt: &BootAttempt, look: &Look<'_>) -> Step {
    let Look { power, now, .. } = *look;
    if attempt.on_at.is_some() {
        return if over(attempt.on_at, look.netboot, now) {
            let minutes = look.netboot.as_secs() / 60;
            let hint = if look.reads_power { "" } else { "; one that had power already must be restarted by hand" };
            failed(format!("no agent was heard within {minutes} min of power-on{hint}"))
        } else if power == Some(PowerState::Off) && over(attempt.on_at, SWITCH, now) {
            failed(format!("the power still reads off {} s after it was switched on", SWITCH.as_secs()))
        } else {
            Step::Wait
        };
    }
    if !look.reads_power {
        return if look.leased { Step::Wait } else { Step::On };
    }
    if attempt.boot_set_at.is_some() {
        return Step::On;
    }
    match power {
        Some(PowerState::Off) if attempt.way == BootWay::OwnOrder && status.every_start => Step::ClearBoot,
        Some(PowerState::Off) if attempt.way == BootWay::OwnOrder => Step::On,
        Some(PowerState::Off) => Step::SetBoot(attempt.way),
        Some(_) if look.leased => Step::Wait,
        Some(PowerState::On) if attempt.shutdown_at.is_none() => Step::Shutdown,
        Some(_) if attempt.off_at.is_none() && over(attempt.shutdown_at, SHUTDOWN, now) => Step::Off,
        _ if over(attempt.off_at, SWITCH, now) => {
            failed(format!("the power does not read off {} s after it was switched off", SWITCH.as_secs()))
        }
        // The limits above hold, also where a machine is given less to netboot.
        _ if attempt.off_at.is_some() || power.is_some() && attempt.shutdown_at.is_some() => Step::Wait,
        // It says nothing of its power, or is on its way.
        _ if over(Some(attempt.begun), look.netboot, now) => {
            failed("the BMC did not say whether the machine has power")
        }
        _ => Step::Wait,
    }
}

fn failed(why: impl Into<String>) -> Step {
    Step::End(Outcome::Failed(why.into()))
}

/// Whether an attempt may wait for its BMC still: one that answers with errors is given as long as the machine to netboot.
pub fn has_time(attempt: &BootAttempt, netboot: Duration, now: Timestamp) -> bool {
    !over(Some(attempt.begun), netboot, now)
}

#[cfg(test)]
mod tests;
