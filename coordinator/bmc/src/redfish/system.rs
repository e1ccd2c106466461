//! What a system's resource says of the computer. Pure.

use landfall_api::{BmcSystem, MacAddr, PowerState};
use serde_json::Value;

use super::field::text;

/// The power. Never assumed: a BMC that does not say it does not know it.
pub(super) fn power(system: &Value) -> Option<PowerState> {
    match text(system, &["PowerState"])?.to_ascii_lowercase().as_str() {
        // Paused: powered, and its processors stand still.
        "on" | "paused" => Some(PowerState::On),
        "off" => Some(PowerState::Off),
        "poweringon" => Some(PowerState::PoweringOn),
        "poweringoff" => Some(PowerState::PoweringOff),
        _ => None,
    }
}

/// What the resource itself says; firmware of the BMC and ports are elsewhere.
pub(super) fn describe(system: &Value) -> BmcSystem {
    let of = |key: &str| text(system, &[key]).unwrap_or_default();
    BmcSystem {
        manufacturer: of("Manufacturer"),
        model: of("Model"),
        serial: of("SerialNumber"),
        uuid: text(system, &["UUID"]).and_then(|uuid| uuid.parse().ok()),
        firmware: of("BiosVersion"),
        ..BmcSystem::default()
    }
}

/// The address of a port: the one it was made with, before one that was set.
pub(super) fn mac(interface: &Value) -> Option<MacAddr> {
    let read = |key: &str| text(interface, &[key])?.parse::<MacAddr>().ok().filter(|mac| mac.0 != [0; 6]);
    read("PermanentMACAddress").or_else(|| read("MACAddress"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn power_is_read_and_never_assumed() {
        for (written, read) in [
            (json!("On"), Some(PowerState::On)),
            (json!("off"), Some(PowerState::Off)),
            (json!("PoweringOff"), Some(PowerState::PoweringOff)),
            (json!(null), None),
            (json!("Unknown"), None),
            (json!(true), None),
        ] {
            assert_eq!(power(&json!({"PowerState": written})), read, "{written}");
        }
        assert_eq!(power(&json!({})), None);
    }

    #[test]
    fn an_odd_inventory_keeps_what_is_right() {
        let system = describe(&json!({"Manufacturer": "Acme", "Model": null, "SerialNumber": 7, "UUID": "none"}));
        assert_eq!((system.manufacturer.as_str(), system.serial.as_str(), system.uuid), ("Acme", "7", None));
        let port = json!({"PermanentMACAddress": "00:00:00:00:00:00", "MACAddress": "52-54-00-00-00-01"});
        assert_eq!(mac(&port), "52:54:00:00:00:01".parse().ok());
        assert_eq!(mac(&json!({"MACAddress": ""})), None);
    }
}
