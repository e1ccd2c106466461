//! `network`, `apt` and `swap`: what cloud-init does in the same words when the system first starts.

use landfall_api::YamlValue;
use serde_json::{Map, Value};

use super::list::List;
use crate::{content::literal_tree, fields::Fields, report::Report};

/// Adds one `cloudInit`.
pub(super) fn add(config: &mut Fields<'_>, list: &mut List, report: &mut Report) {
    let mut spec = Map::new();
    if let Some(network) = network(config, report) {
        spec.insert("network".to_owned(), network);
    }
    let mut user_data = Map::new();
    for name in ["apt", "swap"] {
        let Some(node) = config.get(name) else { continue };
        let message = format!("{name} becomes part of cloud-init's user-data, and acts when the system first starts");
        report.note(config.line_of(name), message);
        report.count(format!("key {name}"), true);
        user_data.insert(name.to_owned(), literal_tree(node.to_value()));
    }
    let what = "write it as apt in the userData of a cloudInit action";
    config.no_counterpart(&["apt_mirrors", "apt_proxy"], what, report);
    if !user_data.is_empty() {
        spec.insert("userData".to_owned(), Value::Object(user_data));
    }
    if !spec.is_empty() {
        let spec = list.on_target(Value::Object(spec));
        list.push("cloud-init", "cloudInit", spec);
    }
}

/// The section as cloud-init takes it: both versions are cloud-init's own.
fn network(config: &mut Fields<'_>, report: &mut Report) -> Option<Value> {
    let line = config.line_of("network");
    let node = config.get("network")?;
    let mut section = Fields::of(node)?;
    let is_list = matches!(section.get("config").map(|node| &node.value), Some(YamlValue::List(_)));
    let version = section.text("version").map(|text| text.text).unwrap_or_default();
    let known = match version.trim() {
        "1" => is_list,
        "2" => !section.has("config"),
        _ => false,
    };
    report.count("network", known);
    if known {
        return Some(literal_tree(node.to_value()));
    }
    let disabled = section.text("config").is_some_and(|text| text.text == "disabled");
    let message = if disabled {
        "network: disabled has no counterpart: without a network configuration every port asks DHCP; write network in a \
         cloudInit action"
    } else {
        "this is no network configuration of version 1 or 2; write network in a cloudInit action"
    };
    report.todo(line, message);
    None
}
