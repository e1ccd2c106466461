//! An action with every field that its schema has: each text says where it stands. So what the action fetches can be asked of
//! the action itself, and named by its fields.

use landfall_api::Action;
use serde_json::{Map, Value, json};

use crate::fields::Schema;

/// The fields whose URLs the action fetches.
pub(crate) fn downloads(key: &str, schema: &Schema) -> Vec<String> {
    let spec = schema.spec(key);
    let action = json!({ "name": "sample", key: sample(schema, spec, "") });
    let action: Action = serde_json::from_value(action).unwrap_or_else(|error| {
        panic!("a {key} with every field of its schema cannot be read ({error}): give the type a value in {}", file!())
    });
    action.spec.downloads().into_iter().flat_map(|download| download.urls).collect()
}

fn sample(schema: &Schema, node: &Value, path: &str) -> Value {
    let (name, node) = schema.resolved(node);
    match name {
        // Texts of a form that their types check.
        Some("Digest") => return format!("sha256:{}", "00".repeat(32)).into(),
        Some("DurationSpec") => return "1s".into(),
        Some("SizeSpec") => return "1GiB".into(),
        Some("SpeedSpec") => return "100MB/s".into(),
        Some("IpWithPrefix") => return "192.0.2.17/24".into(),
        Some("MacAddr") => return "52:54:00:12:34:56".into(),
        Some("DiskSelector") => return json!({}),
        _ => {}
    }
    if let Some((first, _)) = schema.choices(node).first() {
        return first.as_str().into();
    }
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let fields = properties.iter().map(|(name, field)| (name.clone(), sample(schema, field, &below(name))));
        return fields.collect::<Map<_, _>>().into();
    }
    match schema.kind(node) {
        Some("array") => node.get("items").map(|item| sample(schema, item, path)).into_iter().collect(),
        Some("object") => json!({}),
        Some("string") if node.get("format").is_some_and(|format| format == "ip") => "192.0.2.1".into(),
        Some("string") => path.into(),
        Some("integer") => 1.into(),
        Some("boolean") => true.into(),
        _ => Value::Null,
    }
}
