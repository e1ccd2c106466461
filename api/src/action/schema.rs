//! The JSON Schema of an action: its common fields, and exactly one of the keys of the list.

use std::{borrow::Cow, fmt::Display};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::{Action, ActionSpec, RetrySpec, kind::ActionInfo};
use crate::DurationSpec;

impl JsonSchema for Action {
    fn schema_name() -> Cow<'static, str> {
        "Action".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let timeout = defaults(|info| info.timeout);
        let attempts = defaults(|info| info.attempts).replacen(" for", " attempts for", 1);
        let mut schema = json_schema!({
            "type": "object",
            "description": "One step: a name, a timeout, a retry policy, and exactly one key for its operation.",
            "properties": {
                "name": { "type": "string", "description": "Unique within its list; a DNS label." },
                "timeout": described(generator.subschema_for::<DurationSpec>(),
                    &format!("How long one attempt may take. Default: {timeout}.")),
                "retry": described(generator.subschema_for::<RetrySpec>(), &format!("Retry policy. Default: {attempts}.")),
                "branch": { "type": ["string", "null"], "description": "Consecutive actions that name a branch form one stage: its branches run at once, the actions of one branch in order." },
                "when": { "type": ["string", "null"], "description": "What is left of its condition: over results of actions before it. It is done only if it holds when its turn comes." },
            },
            "required": ["name"],
            "oneOf": ActionSpec::KEYS.map(|key| serde_json::json!({ "required": [key] })),
            "additionalProperties": false,
        });
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for ((key, of_spec), (_, info)) in ActionSpec::schemas(generator).into_iter().zip(ActionSpec::ALL) {
                properties.insert(key.to_owned(), described(of_spec, info.about).to_value());
            }
        }
        schema
    }
}

fn described(mut schema: Schema, text: &str) -> Schema {
    schema.insert("description".into(), text.into());
    schema
}

/// A default of every action in words, such as `3 for writeImage, 1 for the others`.
fn defaults<T: Display + PartialEq>(of: impl Fn(&ActionInfo) -> T) -> String {
    let values: Vec<(&str, T)> = ActionSpec::ALL.iter().map(|(key, info)| (*key, of(info))).collect();
    let count = |value: &T| values.iter().filter(|(_, other)| other == value).count();
    let Some((_, usual)) = values.iter().max_by_key(|(_, value)| count(value)) else { return String::new() };
    let others = values.iter().filter(|(_, value)| value != usual).map(|(key, value)| format!("{value} for {key}, "));
    others.chain([format!("{usual} for the others")]).collect()
}
