//! The defaults of an action's time and tries, in one place.

use std::time::Duration;

use landfall_api::{Action, ActionSpec, ActionStatus};

/// How long one attempt may take.
pub fn timeout(action: &Action) -> Duration {
    action.timeout.map_or_else(
        || match action.spec {
            ActionSpec::WriteImage(_) => Duration::from_secs(3600),
            ActionSpec::CloudInit(_) | ActionSpec::Reboot(_) => Duration::from_secs(300),
        },
        |t| t.get(),
    )
}

/// How many attempts may fail before the action has failed; at least 1.
pub fn max_attempts(action: &Action) -> u32 {
    action.retry.map_or_else(
        || match action.spec {
            ActionSpec::WriteImage(_) => 3,
            ActionSpec::CloudInit(_) | ActionSpec::Reboot(_) => 1,
        },
        |retry| retry.max_attempts.max(1),
    )
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

/// How long the installed system has to phone home; `None` if the run asks for none, and so ends at its reboot.
pub fn phone_home(actions: &[ActionStatus], default: Duration) -> Option<Duration> {
    actions.iter().rev().find_map(|a| match &a.action.spec {
        ActionSpec::CloudInit(spec) => match &spec.phone_home {
            None => Some(default),
            Some(unit) => unit.enabled.then(|| unit.deadline.map_or(default, |d| d.get())),
        },
        _ => None,
    })
}
