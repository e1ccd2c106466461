//! The differences between two versions of a document, one line per field.

use serde_json::Value;

/// Differences that are listed; the rest are counted.
const MOST: usize = 20;

/// `spec.identity.serial: "a" -> "b"`, field by field.
pub(crate) fn between(old: &Value, new: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare(old, new, String::new(), &mut out);
    // It always differs, and no person wrote it.
    out.retain(|line| !line.starts_with("metadata.resourceVersion:"));
    if out.len() > MOST {
        let more = out.len() - MOST;
        out.truncate(MOST);
        out.push(format!("and {more} more"));
    }
    out
}

fn compare(old: &Value, new: &Value, path: String, out: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            for (name, value) in before {
                compare(value, after.get(name).unwrap_or(&Value::Null), below(name), out);
            }
            for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                compare(&Value::Null, value, below(name), out);
            }
        }
        (old, new) if old == new => {}
        (Value::Null, new) => out.push(format!("{path}: added {new}")),
        (old, Value::Null) => out.push(format!("{path}: removed, was {old}")),
        (old, new) => out.push(format!("{path}: {old} -> {new}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_changed_field_is_named_once() {
        let old = json!({"metadata": {"resourceVersion": 1, "labels": {"a": "1", "b": "2"}}, "spec": {"list": [1], "same": 1}});
        let new = json!({"metadata": {"resourceVersion": 2, "labels": {"a": "3"}}, "spec": {"list": [1, 2], "same": 1, "x": {}}});
        let lines = between(&old, &new);
        assert_eq!(
            lines,
            [
                "metadata.labels.a: \"1\" -> \"3\"", "metadata.labels.b: removed, was \"2\"",
                "spec.list: [1] -> [1,2]", "spec.x: added {}"
            ]
        );
        assert!(between(&old, &old).is_empty());
    }
}
