//! A template's `storage`, read before its expressions have values.

use serde_json::{Map, Value};

use super::StorageSpec;
use crate::issue::has_expression;

/// Lists for which an expression may stand as a whole: what is in them is known once they are rendered.
const LISTS: [&str; 7] = ["select", "disks", "partitions", "raids", "volumeGroups", "volumes", "from"];

/// The action with every expression replaced by something that contradicts nothing; `None` if it does not fit the types or if
/// an expression stands for a whole list. What is replaced is checked when it is rendered.
pub(super) fn without_expressions(spec: &Map<String, Value>) -> Option<StorageSpec> {
    let mut tree = Value::Object(spec.clone());
    let mut count = 0;
    replace(&mut tree, "", &mut count).then(|| serde_json::from_value(tree).ok()).flatten()
}

/// False: an expression stands for a whole list.
fn replace(value: &mut Value, field: &str, count: &mut u32) -> bool {
    match value {
        Value::Object(_) if matches!(field, "keys" | "select") => true,
        Value::Object(map) => {
            if LISTS.iter().any(|list| map.get(*list).and_then(Value::as_str).is_some_and(has_expression)) {
                return false;
            }
            // A field that may be missing is left out, but for a mount point: the default of the role is not meant.
            map.retain(|name, value| {
                let stays = matches!(name.as_str(), "mount" | "name" | "key" | "level");
                stays || !value.as_str().is_some_and(has_expression)
            });
            map.iter_mut().all(|(name, value)| replace(value, name, count))
        }
        Value::Array(items) => items.iter_mut().all(|item| replace(item, field, count)),
        Value::String(text) if has_expression(text) => {
            *count += 1;
            match field {
                "mount" => *value = format!("/pending-{count}").into(),
                // It suits any number of members from two on.
                "level" => *value = 1.into(),
                // Names, which are refused as they stand.
                _ => {}
            }
            true
        }
        _ => true,
    }
}
