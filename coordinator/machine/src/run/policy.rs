//! The defaults of an action's time and tries, in one place.

use std::time::Duration;

use landfall_api::{Action, ActionSpec, SuccessOn, WorkflowStatus};

/// How long a run may take in all where its template does not say and its actions need no more.
const WHOLE: Duration = Duration::from_secs(24 * 3600);
/// How long a person may leave a run paused before it fails.
pub const MAX_PAUSE: Duration = Duration::from_secs(7 * 24 * 3600);
/// An action whose progress stands still for so long, while its agent is heard, is slow. The agent reports twice a second
/// while anything moves.
pub const NO_PROGRESS: Duration = Duration::from_secs(120);

/// How many reports of wiped disks a machine keeps, and a run: more than the largest enclosures hold.
pub(crate) const MAX_WIPED: usize = 128;

/// How many reports of health tests a machine keeps, and a run: a part each.
pub(crate) const MAX_TESTED: usize = 128;

/// Unexpected restarts of a machine that an action stands where its template does not say. A power cut or two are an accident;
/// a machine that dies in each attempt will do so in the next.
const RESTARTS: u32 = 5;

/// How long one attempt may take.
pub fn timeout(action: &Action) -> Duration {
    action.timeout.unwrap_or(action.spec.info().timeout).get()
}

/// How many attempts may fail before the action has failed; at least 1.
pub fn max_attempts(action: &Action) -> u32 {
    action.retry.map_or(action.spec.info().attempts, |retry| retry.max_attempts).max(1)
}

/// How often the machine may restart unexpectedly while the action is under way.
pub fn max_restarts(action: &Action) -> u32 {
    // Its program may have ended and the report be lost, and no receipt says what it did to the disks: it may not do that twice.
    let lends = matches!(&action.spec, ActionSpec::RunContainer(spec) if !spec.devices.is_empty());
    action.retry.and_then(|retry| retry.max_restarts).unwrap_or(if lends { 0 } else { RESTARTS })
}

/// Whether what the action did is not to be done again by itself, however it was interrupted.
pub(super) fn runs_once(action: &Action) -> bool {
    matches!(&action.spec, ActionSpec::RunContainer(spec) if !spec.devices.is_empty()) && max_restarts(action) == 0
}

/// Wait before the second attempt.
pub fn initial_backoff(action: &Action) -> Duration {
    action.retry.and_then(|r| r.initial_backoff).map_or(Duration::from_secs(2), |d| d.get())
}

/// The longest wait between attempts.
pub fn max_backoff(action: &Action) -> Duration {
    action.retry.and_then(|r| r.max_backoff).map_or(Duration::from_secs(60), |d| d.get())
}

/// The longest an action may take from here with so many failures behind it: every attempt left, and the waits between.
pub(super) fn allowed(action: &Action, failures: u32) -> Duration {
    let left = max_attempts(action).saturating_sub(failures).max(1);
    timeout(action).saturating_mul(left).saturating_add(max_backoff(action).saturating_mul(left))
}

/// How long the installed system has to phone home; `None` if the run asks for none, and so ends with its last action.
pub fn phone_home(state: &WorkflowStatus, default: Duration) -> Option<Duration> {
    let starts = state.actions.last().is_some_and(|a| a.action.spec.info().starts_system());
    if !starts || state.success_on == Some(SuccessOn::Reboot) {
        return None;
    }
    // A seed that was left out has put no unit into the system.
    state.actions.iter().rev().filter(|a| !a.is_left_out()).find_map(|a| match &a.action.spec {
        ActionSpec::CloudInit(spec) => match &spec.phone_home {
            None => Some(default),
            Some(unit) => unit.enabled.then(|| unit.deadline.map_or(default, |d| d.get())),
        },
        _ => None,
    })
}

/// How long the run may take in all: as stated, else 24 h, or where that is longer what its own limits come to.
pub fn whole(state: &WorkflowStatus, lease: Duration, phone_home_default: Duration) -> Duration {
    if let Some(stated) = state.timeout {
        return stated.get();
    }
    let actions = state.actions.iter().map(|a| allowed(&a.action, 0).saturating_add(2 * lease));
    let after = phone_home(state, phone_home_default).unwrap_or_default();
    WHOLE.max(actions.fold(after, Duration::saturating_add))
}
