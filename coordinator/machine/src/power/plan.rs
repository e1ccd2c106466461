//! The next step towards what is wanted.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{BmcStatus, BootAttempt, BootWay, PowerState};
use uuid::Uuid;

use super::attempts::open;
use super::step::{Outcome, Step};
use super::wanted::Wanted;

/// A system has so long to shut down before its power is cut: systemd gives a service 90 s.
const SHUTDOWN: Duration = Duration::from_secs(90);
/// From a request of power on or off to the reading that says so: some BMCs lag by 30 s.
const SWITCH: Duration = Duration::from_secs(60);

/// An agent that is not heard any more keeps its machine for so long: a switch that restarts takes two to three minutes.
const LOST: Duration = Duration::from_secs(300);

/// What a step goes by.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// What is wanted.
    pub wanted: Wanted,
    /// The agent is there.
    pub connected: bool,
    /// When an agent was last heard.
    pub last_heard: Option<Timestamp>,
    /// The power, as just read.
    pub power: Option<PowerState>,
    /// From power-on to the agent.
    pub netboot: Duration,
    /// The time.
    pub now: Timestamp,
}

/// The next step.
pub fn next(status: &BmcStatus, look: &Look) -> Step {
    let attempt = open(status);
    match (look.wanted, attempt) {
        // It may have come and gone between two looks: an install can be that short.
        (_, Some(attempt)) if look.connected || came(attempt, look.last_heard) => Step::End(Outcome::Heard),
        (Wanted::Nothing, Some(attempt)) if attempt.on_at.is_none() => Step::End(Outcome::Dropped),
        // The power is on its way: the agent, or the next workflow, says more.
        (Wanted::Nothing, Some(attempt)) => match over(attempt.on_at, look.netboot, look.now) {
            true => Step::End(Outcome::Dropped),
            false => Step::Wait,
        },
        (Wanted::Nothing, None) => clears(status).map_or(Step::Rest, |()| Step::ClearBoot),
        (Wanted::Netboot(workflow), Some(attempt)) if attempt.workflow_uid != workflow => Step::End(Outcome::Dropped),
        (Wanted::Netboot(_), Some(attempt)) => step_of(attempt, look),
        (Wanted::Netboot(workflow), None) if lingers(status, workflow, look) => Step::Wait,
        (Wanted::Netboot(workflow), None) => match way_left(status, workflow) {
            Some(way) => Step::Begin(workflow, way),
            None => Step::GiveUp,
        },
    }
}

/// Whether an agent was heard since the power was switched on.
fn came(attempt: &BootAttempt, last_heard: Option<Timestamp>) -> bool {
    attempt.on_at.zip(last_heard).is_some_and(|(on, heard)| heard >= on)
}

/// Whether the agent came for this workflow and was lost a moment ago: it may only have no network.
fn lingers(status: &BmcStatus, workflow: Uuid, look: &Look) -> bool {
    let has_come = status.attempts.iter().any(|a| a.workflow_uid == workflow && a.failure.is_none());
    let lately = look.last_heard.is_some() && !over(look.last_heard, LOST, look.now);
    has_come && lately && look.power != Some(PowerState::Off)
}

/// The boot device stays set for every start: the last attempt set it so, and the agent came.
fn clears(status: &BmcStatus) -> Option<()> {
    let last = status.attempts.last()?;
    (last.way == BootWay::PxeContinuous && last.failure.is_none() && last.boot_set_at.is_some()).then_some(())
}

/// The first way that has not failed for the workflow; what worked before comes first.
fn way_left(status: &BmcStatus, workflow: Uuid) -> Option<BootWay> {
    let failed = |a: &BootAttempt| a.workflow_uid == workflow && a.failure.is_some();
    let tried = |way: &BootWay| status.attempts.iter().any(|attempt| failed(attempt) && attempt.way == *way);
    status.worked.into_iter().chain(BootWay::ALL).find(|way| !tried(way))
}

fn step_of(attempt: &BootAttempt, look: &Look) -> Step {
    let Look { power, now, .. } = *look;
    if attempt.on_at.is_some() {
        return if over(attempt.on_at, look.netboot, now) {
            let minutes = look.netboot.as_secs() / 60;
            failed(format!("no agent was heard within {minutes} min of power-on"))
        } else if power == Some(PowerState::Off) && over(attempt.on_at, SWITCH, now) {
            failed(format!("the power still reads off {} s after it was switched on", SWITCH.as_secs()))
        } else {
            Step::Wait
        };
    }
    if attempt.boot_set_at.is_some() {
        return Step::On;
    }
    match power {
        Some(PowerState::Off) if attempt.way == BootWay::OwnOrder => Step::On,
        Some(PowerState::Off) => Step::SetBoot(attempt.way),
        Some(PowerState::On) if attempt.shutdown_at.is_none() => Step::Shutdown,
        Some(_) if attempt.off_at.is_none() && over(attempt.shutdown_at, SHUTDOWN, now) => Step::Off,
        _ if over(attempt.off_at, SWITCH, now) => {
            failed(format!("the power does not read off {} s after it was switched off", SWITCH.as_secs()))
        }
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

/// Whether so much time has passed since; never if it was not.
fn over(since: Option<Timestamp>, limit: Duration, now: Timestamp) -> bool {
    since.is_some_and(|since| Duration::try_from(now.duration_since(since)).is_ok_and(|passed| passed >= limit))
}

#[cfg(test)]
mod tests;
