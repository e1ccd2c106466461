//! What to write where a value has the wrong type, or a field stands in the wrong place.

use serde_json::{Map, Value};

use crate::issue::listed;
use crate::schema::Schema;

/// What to write in place of something that is no mapping. `keys` is the mapping's schema.
pub(super) fn mapping(keys: &Map<String, Value>, missing: bool) -> String {
    let names: Vec<&str> =
        keys.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(n, _)| n.as_str()).collect();
    let free = keys.get("additionalProperties") != Some(&Value::Bool(false));
    let below = match names.as_slice() {
        [] if !free => return "write {}: it has no fields".into(),
        [] => "write names with values below it, indented".into(),
        some => format!("write its fields below it, indented: {}", listed(some)),
    };
    let required = keys.get("required").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
    if missing && !required { format!("{below}; or {{}} for none of them") } else { below }
}

/// The field beside which an unknown one stands, and which has a field of that name.
pub(super) fn belongs_to(name: &str, known: &Map<String, Value>, schema: &Schema) -> Option<String> {
    let has = |field: &Value| {
        let fields = mapping_of(field, schema)?.get("properties")?.as_object()?;
        fields.contains_key(name).then_some(())
    };
    known.iter().find(|(_, field)| has(field).is_some()).map(|(field, _)| field.clone())
}

/// The mapping that a field's schema stands for, behind references and options.
fn mapping_of<'s>(field: &'s Value, schema: &'s Schema) -> Option<&'s Value> {
    if let Some(any) = field.get("anyOf").and_then(Value::as_array) {
        return any.iter().find_map(|part| mapping_of(part, schema));
    }
    match field.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema.definition(reference.rsplit('/').next()?),
        None => Some(field),
    }
}
