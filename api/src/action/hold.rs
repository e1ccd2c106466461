//! `hold`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{ActionInfo, Declaration};
use super::rules::Rules;
use crate::{DurationSpec, issue::join};

/// Stops the workflow here until a person runs `landfall resume`. It fails after its timeout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldSpec {
    /// What the person must do or decide, in one sentence.
    pub message: String,
}

impl Declaration for HoldSpec {
    const INFO: ActionInfo = ActionInfo {
        after_failure: true,
        ..ActionInfo::new("Waits here until a person runs landfall resume.", DurationSpec::from_secs(24 * 3600), 2)
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        if spec.get("message").and_then(Value::as_str).is_some_and(|m| m.trim().is_empty()) {
            let hint = "state what the person must do before the workflow continues";
            rules.say(join(path, "message"), "a hold needs a message", hint);
        }
    }
}
