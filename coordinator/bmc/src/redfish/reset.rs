//! A change of power in Redfish's words. Pure.

use landfall_api::PowerState;
use serde_json::Value;

use super::field::{at, link};
use crate::PowerChange;

/// Where a reset of the system is asked for.
pub(super) fn target(system: &Value, path: &str) -> String {
    link(system, &["Actions", "#ComputerSystem.Reset", "target"])
        .unwrap_or_else(|| format!("{}/Actions/ComputerSystem.Reset", path.trim_end_matches('/')))
}

/// The values of `ResetType` for a change, the best first.
const fn types(change: PowerChange) -> &'static [&'static str] {
    match change {
        // The button changes the power from whatever it is: only for what shuts down by it.
        PowerChange::On => &["On", "ForceOn"],
        PowerChange::Off => &["ForceOff"],
        PowerChange::Shutdown => &["GracefulShutdown", "PushPowerButton"],
    }
}

/// The first value that the system lists; absent: it lists others. One that lists none gets the first.
pub(super) fn choose(system: &Value, change: PowerChange) -> Option<&'static str> {
    let wanted = types(change);
    let listed = at(system, &["Actions", "#ComputerSystem.Reset", "ResetType@Redfish.AllowableValues"]);
    match listed.and_then(Value::as_array).filter(|listed| !listed.is_empty()) {
        Some(listed) => wanted.iter().copied().find(|one| listed.iter().any(|value| value.as_str() == Some(one))),
        None => wanted.first().copied(),
    }
}

/// Whether a computer with that power needs no such change.
pub(super) fn is_done(power: Option<PowerState>, change: PowerChange) -> bool {
    match change {
        PowerChange::On => matches!(power, Some(PowerState::On | PowerState::PoweringOn)),
        // A system that hangs in its shutdown reads so for ever.
        PowerChange::Off => matches!(power, Some(PowerState::Off)),
        PowerChange::Shutdown => matches!(power, Some(PowerState::Off | PowerState::PoweringOff)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reset_is_one_that_the_system_lists() {
        let system = |listed: Value| json!({"Actions": {"#ComputerSystem.Reset": {"ResetType@Redfish.AllowableValues": listed}}});
        let all = system(json!(["On", "ForceOff", "GracefulShutdown", "ForceRestart"]));
        let old = system(json!(["ForceOn", "ForceOff", "PushPowerButton"]));
        let none = system(json!(["ForceRestart"]));
        for (change, expected) in [
            (PowerChange::On, [Some("On"), Some("ForceOn"), None]),
            (PowerChange::Off, [Some("ForceOff"), Some("ForceOff"), None]),
            (PowerChange::Shutdown, [Some("GracefulShutdown"), Some("PushPowerButton"), None]),
        ] {
            assert_eq!([&all, &old, &none].map(|system| choose(system, change)), expected, "{change:?}");
        }
        assert_eq!(choose(&json!({}), PowerChange::On), Some("On"), "no list");
    }

    #[test]
    fn the_target_is_linked_or_the_standard_one() {
        let linked = json!({"Actions": {"#ComputerSystem.Reset": {"target": "/a/b"}}});
        assert_eq!(target(&linked, "/s"), "/a/b");
        assert_eq!(target(&json!({}), "/s/"), "/s/Actions/ComputerSystem.Reset");
    }
}
