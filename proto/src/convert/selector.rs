//! Disk selectors. Every expression travels as text: the wire's map holds strings, and a selector reads `4096` and `"4096"`
//! alike.

use std::collections::HashMap;

use landfall_api::DiskSelector;
use serde_json::Value;

pub(super) fn selector(wire: HashMap<String, String>) -> DiskSelector {
    DiskSelector(wire.into_iter().map(|(field, text)| (field, Value::String(text))).collect())
}

/// Empty: none.
pub(super) fn selector_if_any(wire: HashMap<String, String>) -> Option<DiskSelector> {
    Some(wire).filter(|wire| !wire.is_empty()).map(selector)
}

pub(super) fn selector_to_wire(selector: DiskSelector) -> HashMap<String, String> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    selector.0.into_iter().map(|(field, value)| (field, text(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_expression_travels_as_text() {
        let given = DiskSelector([("rotational".into(), json!(false)), ("size".into(), json!(">= 1GiB"))].into());
        let wire = selector_to_wire(given);
        assert_eq!((wire["rotational"].as_str(), wire["size"].as_str()), ("false", ">= 1GiB"));
        assert_eq!(selector(wire).0["rotational"], json!("false"));
        assert_eq!(selector_if_any(HashMap::new()), None);
    }
}
