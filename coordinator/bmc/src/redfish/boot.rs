//! The boot device in Redfish's words: what is to be written, and whether what is read says the same. Pure.

use serde_json::{Map, Value, json};

use super::field::{at, text};
use crate::{BootDevice, BootMode, BootOverride};

/// The value of `BootSourceOverrideTarget`.
const fn target(device: BootDevice) -> &'static str {
    match device {
        BootDevice::Pxe => "Pxe",
        BootDevice::UefiHttp => "UefiHttp",
        BootDevice::None => "None",
    }
}

const fn enabled(boot: BootOverride) -> &'static str {
    match (boot.device, boot.once) {
        (BootDevice::None, _) => "Disabled",
        (_, true) => "Once",
        (_, false) => "Continuous",
    }
}

/// Why a system cannot have that boot device; absent: it can, or does not say.
pub(super) fn lacks(system: &Value, boot: BootOverride) -> Option<String> {
    let target = target(boot.device);
    let allowed = at(system, &["Boot", "BootSourceOverrideTarget@Redfish.AllowableValues"])?.as_array()?;
    let listed = allowed.iter().filter_map(Value::as_str).any(|one| one.eq_ignore_ascii_case(target));
    (boot.device != BootDevice::None && !allowed.is_empty() && !listed).then(|| format!("the boot device {target}"))
}

/// What to write. The mode only where the system has one: others refuse the whole request because of it.
pub(super) fn body(system: &Value, boot: BootOverride) -> Value {
    let mut written = Map::new();
    written.insert("BootSourceOverrideTarget".into(), json!(target(boot.device)));
    written.insert("BootSourceOverrideEnabled".into(), json!(enabled(boot)));
    if let Some(mode) = boot.mode.filter(|_| at(system, &["Boot", "BootSourceOverrideMode"]).is_some()) {
        written.insert("BootSourceOverrideMode".into(), json!(if mode == BootMode::Uefi { "UEFI" } else { "Legacy" }));
    }
    json!({ "Boot": written })
}

/// The same without the mode; absent: there is none in it.
pub(super) fn without_mode(body: &Value) -> Option<Value> {
    let mut body = body.clone();
    body.get_mut("Boot")?.as_object_mut()?.remove("BootSourceOverrideMode")?;
    Some(body)
}

/// What is read where it is not what was set; absent: it is. `Continuous` where `Once` was set counts: some show it so.
pub(super) fn differs(system: &Value, boot: BootOverride) -> Option<String> {
    let read = text(system, &["Boot", "BootSourceOverrideTarget"]).unwrap_or_else(|| "None".into());
    let state = text(system, &["Boot", "BootSourceOverrideEnabled"]).unwrap_or_else(|| "Disabled".into());
    let is_off = state.eq_ignore_ascii_case("Disabled") || read.eq_ignore_ascii_case("None");
    let same = match boot.device {
        BootDevice::None => is_off,
        device => !is_off && read.eq_ignore_ascii_case(target(device)),
    };
    (!same).then(|| format!("{read}, {state}"))
}

/// What was asked for, for a message.
pub(super) fn describe(boot: BootOverride) -> String {
    format!("the boot device {}, {}", target(boot.device), enabled(boot))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCE: BootOverride = BootOverride { device: BootDevice::Pxe, once: true, mode: Some(BootMode::Uefi) };

    #[test]
    fn the_mode_is_written_only_where_there_is_one() {
        let boot = |system: Value| body(&system, ONCE)["Boot"].as_object().unwrap().len();
        assert_eq!(boot(json!({"Boot": {"BootSourceOverrideMode": "Legacy"}})), 3);
        assert_eq!(boot(json!({"Boot": {"BootSourceOverrideMode": null}})), 2);
        assert_eq!(boot(json!({})), 2);
        let with = body(&json!({"Boot": {"BootSourceOverrideMode": "Legacy"}}), ONCE);
        assert_eq!(with["Boot"]["BootSourceOverrideMode"], "UEFI");
        assert_eq!(without_mode(&with).unwrap()["Boot"].as_object().unwrap().len(), 2);
        assert_eq!(without_mode(&without_mode(&with).unwrap()), None);
    }

    #[test]
    fn what_is_read_is_compared_with_what_was_set() {
        let none = BootOverride { device: BootDevice::None, once: false, mode: None };
        for (read, state, boot, same) in [
            ("Pxe", "Once", ONCE, true),
            ("pxe", "Continuous", ONCE, true),
            ("Pxe", "Disabled", ONCE, false),
            ("Hdd", "Once", ONCE, false),
            ("None", "Disabled", none, true),
            ("Pxe", "Disabled", none, true),
            ("Pxe", "Once", none, false),
        ] {
            let system = json!({"Boot": {"BootSourceOverrideTarget": read, "BootSourceOverrideEnabled": state}});
            assert_eq!(differs(&system, boot).is_none(), same, "{read} {state}");
        }
        assert_eq!(differs(&json!({}), ONCE).as_deref(), Some("None, Disabled"));
    }

    #[test]
    fn a_device_that_is_not_listed_is_lacking() {
        let system = |list: Value| json!({"Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": list}});
        let http = BootOverride { device: BootDevice::UefiHttp, ..ONCE };
        assert!(lacks(&system(json!(["None", "Pxe", "Hdd"])), ONCE).is_none());
        assert!(lacks(&system(json!(["None", "Pxe", "Hdd"])), http).is_some());
        assert!(lacks(&system(json!([])), http).is_none() && lacks(&system(json!("Pxe")), http).is_none());
    }
}
