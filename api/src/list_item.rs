//! What an item of a template's list may have besides an action's fields: another template's list in place of an
//! operation, a loop over disks, and a condition. All are gone once the list is rendered.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::DiskSelector;
use crate::action::Rules;
use crate::dns_label::{LABEL_HINT, is_dns_label};
use crate::issue::{has_expression, join};

/// The actions of another template stand here. Their names and branches get this item's name and a dash in front; if this
/// item names a branch, all of them are in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IncludeSpec {
    /// Name of the template; fixed text. It must have no `onFailure`, `timeout`, `successOn` or `precheck`.
    pub template: String,
    /// Values for its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
}

/// The item once for each of several disks, which expressions see as `disk`. Each copy's name gets the number of its disk,
/// from 1, and so does its branch, if it names one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForEachSpec {
    /// Which disks; every one that matches. They are known from the machine's facts when a workflow is requested.
    pub disks: DiskSelector,
    /// Whether no disk may match; the item then stands for nothing. Default: that is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_none: bool,
}

/// An item's fields that no action has, with what explains them.
pub(crate) const FIELDS: [(&str, &str); 3] = [
    ("include", "The actions of another template stand here, in place of an operation."),
    ("forEach", "The item once for each of several disks, which expressions see as disk."),
    (
        "when",
        "A condition over machine, params, results of actions before it and in a loop disk, such as \
         machine.labels.rack == \"r7\". The item is part of the list only if it holds when a workflow is requested; as far as it \
         names results, it is done only if it holds when its turn comes.",
    ),
];

/// Whether an item stands for a number of actions that only rendering tells.
pub(crate) fn is_open(item: &Value) -> bool {
    FIELDS.iter().any(|(field, _)| item.get(field).is_some())
}

/// What the fields mean together.
pub(crate) fn check(item: &Map<String, Value>, path: &str, own: &str, rules: &mut Rules<'_>) {
    if let Some(include) = item.get("include") {
        let at = join(path, "include.template");
        match include.get("template").and_then(Value::as_str) {
            Some(name) if has_expression(name) => {
                rules.say(at, "the name of an included template must be fixed text", "write a template's name");
            }
            Some(name) if !is_dns_label(name) => {
                rules.say(at, format!("\"{name}\" cannot be a template's name"), LABEL_HINT);
            }
            Some(name) if name == own => {
                let message = format!("templates include each other in a circle: {own} → {own}");
                rules.say(at, message, "remove the include");
            }
            _ => {}
        }
        for field in ["timeout", "retry"] {
            if item.get(field).is_some() {
                let message = format!("{field} belongs to one action, and this item stands for a list");
                rules.say(join(path, field), message, format!("state {field} in the actions of the included template"));
            }
        }
    }
    if let Some(loops) = item.get("forEach") {
        let at = join(path, "forEach.disks");
        if loops.get("disks").and_then(Value::as_object).is_some_and(Map::is_empty) {
            // Such a selector fits the only disk of a machine. Here it would fit each, that of the system among them.
            rules.say(
                &at,
                "the selector is empty and would match every disk",
                "name what the disks have in common, such as transport: nvme",
            );
        }
        rules.selector(loops.get("disks"), &at);
    }
}
