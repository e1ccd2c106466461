//! The boot device in Redfish's words: what is to be written, and whether what is read says the same. Pure.

use serde_json::{Map, Value, json};

use super::field::{at, text};
use crate::{BootDevice, BootMode, BootOverride};

/// The values of `BootSourceOverrideTarget`, the usual one first.
const fn targets(device: BootDevice) -> &'static [&'static str] {
    match device {
        BootDevice::Pxe => &["Pxe"],
        BootDevice::UefiHttp => &["UefiHttp"],
        BootDevice::Cd => &["Cd", "UsbCd"],
        BootDevice::Usb => &["Usb"],
        BootDevice::None => &["None"],
    }
}

/// Whether a system lists a target; one without a list may have any.
fn lists(system: &Value, target: &str) -> bool {
    let listed = at(system, &["Boot", "BootSourceOverrideTarget@Redfish.AllowableValues"]).and_then(Value::as_array);
    listed.is_none_or(|all| {
        all.is_empty() || all.iter().filter_map(Value::as_str).any(|one| one.eq_ignore_ascii_case(target))
    })
}

/// The value to set: the first that the system lists.
fn target(system: &Value, device: BootDevice) -> &'static str {
    let all = targets(device);
    // Supermicro's list both, and their virtual CD is the second, which no list leaves out by chance.
    let is_supermicro =
        text(system, &["Manufacturer"]).is_some_and(|who| who.to_ascii_lowercase().contains("supermicro"));
    let has_list = at(system, &["Boot", "BootSourceOverrideTarget@Redfish.AllowableValues"]).is_some();
    let found = if is_supermicro && has_list {
        all.iter().rev().find(|one| lists(system, one))
    } else {
        all.iter().find(|one| lists(system, one))
    };
    found.unwrap_or(&all[0])
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
    let target = target(system, boot.device);
    (boot.device != BootDevice::None && !lists(system, target)).then(|| format!("the boot device {target}"))
}

/// What to write. The mode only where the system has one: others refuse the whole request because of it.
pub(super) fn body(system: &Value, boot: BootOverride) -> Value {
    let mut written = Map::new();
    written.insert("BootSourceOverrideTarget".into(), json!(target(system, boot.device)));
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
        device => !is_off && targets(device).iter().any(|target| read.eq_ignore_ascii_case(target)),
    };
    (!same).then(|| format!("{read}, {state}"))
}

/// What was asked for, for a message.
pub(super) fn describe(boot: BootOverride) -> String {
    format!("the boot device {}, {}", targets(boot.device)[0], enabled(boot))
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
        let cd = BootOverride { device: BootDevice::Cd, ..ONCE };
        for (maker, list, set) in [
            ("Acme", json!(["Cd", "UsbCd"]), "Cd"),
            ("Acme", json!(["UsbCd"]), "UsbCd"),
            ("Supermicro", json!(["Cd", "UsbCd"]), "UsbCd"),
            ("Supermicro", json!(["Cd"]), "Cd"),
            ("Supermicro", json!(null), "Cd"),
        ] {
            let mut system = system(list);
            system["Manufacturer"] = json!(maker);
            assert_eq!(body(&system, cd)["Boot"]["BootSourceOverrideTarget"], set, "{system}");
            assert_eq!(lacks(&system, cd), None);
        }
        assert!(lacks(&system(json!([])), http).is_none() && lacks(&system(json!("Pxe")), http).is_none());
    }
}
