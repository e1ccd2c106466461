//! `power_state` and `kexec`: how the list ends.

use serde_json::json;

use super::list::List;
use crate::{fields::Fields, report::Report};

/// Adds the last action; false if none is stated.
pub(super) fn add(config: &mut Fields<'_>, list: &mut List, report: &mut Report) -> bool {
    if let Some(mut kexec) = config.map("kexec")
        && kexec.truth("mode") == Some(true)
    {
        config.get("power_state");
        let spec = list.on_target(json!({}));
        list.push("kexec", "kexec", spec);
        report.count("kexec", true);
        return true;
    }
    let Some(mut power) = config.map("power_state") else { return false };
    power.not_needed(&["delay", "message", "condition", "timeout"], "the agent reports, and then ends", report);
    let mode = power.text("mode");
    let (name, key) = match mode.as_ref().map(|mode| mode.text.as_str()) {
        Some("reboot") => ("reboot", "reboot"),
        Some("poweroff" | "halt") => ("power-off", "powerOff"),
        _ => return false,
    };
    list.push(name, key, json!({}));
    report.count("power_state", true);
    power.finish("power_state", report);
    true
}
