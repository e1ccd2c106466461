//! The schema of facts, by which paths through them are checked.

use std::sync::OnceLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use super::{DiskFacts, MachineFacts};
use crate::DiskId;

/// The names of an object's fields.
pub(crate) fn properties(schema: &Value) -> impl Iterator<Item = &String> {
    schema.get("properties").and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys)
}

/// The definition that a reference means; of "this or null", this.
pub(crate) fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let mut at = schema;
    for _ in 0..4 {
        let alternatives = at.get("anyOf").and_then(Value::as_array);
        let next = match at.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next()) {
            Some(name) => root.get("$defs").and_then(|all| all.get(name)),
            None => alternatives.and_then(|all| all.first()),
        };
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// Made once for each type.
pub(crate) fn schema_of<T: JsonSchema>() -> &'static Value {
    static MADE: OnceLock<[(&'static str, Value); 3]> = OnceLock::new();
    fn made<T: JsonSchema>() -> (&'static str, Value) {
        let generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
        (std::any::type_name::<T>(), generator.into_root_schema_for::<T>().to_value())
    }
    let all = MADE.get_or_init(|| [made::<MachineFacts>(), made::<DiskFacts>(), made::<DiskId>()]);
    let wanted = std::any::type_name::<T>();
    all.iter().find(|(name, _)| *name == wanted).map_or(&Value::Null, |(_, schema)| schema)
}
