//! `ignition`: its fields, what is sent to the agent, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{ActionInfo, Declaration};
use super::rules::{Fault, Rules};
use crate::issue::{describe, has_expression, join, json_fault, suggest, without_expressions};
use crate::{DiskSelector, DurationSpec, SecretText};

/// Puts an Ignition config where the installed system's Ignition reads it at the first start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IgnitionSpec {
    /// The config of specification 2 or 3: a mapping, or the text of its JSON. It may hold secrets.
    pub config: Value,
    /// Which disk. Default: the disk that this workflow wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSelector>,
}

/// `ignition` as an agent is sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ignition {
    /// The whole file, JSON.
    pub config: SecretText,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What came of an `ignition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnitionResult {
    /// The partition that has the config.
    pub device: String,
    /// Where on it, such as `/ignition/config.ign`.
    pub path: String,
}

/// With its secrets in place, the config is not valid JSON. The error does not quote it: it may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the config is not valid JSON with its secrets in place")]
pub struct UnusableIgnition;

/// What a config of each specification may have at its top (Ignition's `config/v2_4` and `config/v3_6`).
const FIELDS: [(u64, &[&str]); 2] = [
    (2, &["ignition", "networkd", "passwd", "storage", "systemd"]),
    (3, &["ignition", "kernelArguments", "passwd", "storage", "systemd"]),
];

impl IgnitionSpec {
    /// What an agent is sent.
    ///
    /// # Errors
    /// [`UnusableIgnition`] where the text is no JSON: a secret put into it may have had a quotation mark.
    pub fn resolved(self) -> Result<Ignition, UnusableIgnition> {
        let Self { config, disk } = self;
        let text = match config {
            Value::String(text) => text,
            mapping => serde_json::to_string_pretty(&mapping).map_err(|_| UnusableIgnition)?,
        };
        serde_json::from_str::<Map<String, Value>>(&text).map_err(|_| UnusableIgnition)?;
        Ok(Ignition { config: SecretText::new(text), disk })
    }
}

impl Declaration for IgnitionSpec {
    const INFO: ActionInfo = ActionInfo {
        means_written_disk: true,
        secrets: &["config"],
        ..ActionInfo::new(
            "Puts an Ignition config where the installed system reads it.",
            DurationSpec::from_secs(5 * 60),
            8,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        let path = join(path, "config");
        match spec.get("config") {
            None => {}
            Some(Value::Object(config)) => self::config(config, &path, false, rules),
            // A text that is one expression may become a mapping.
            Some(Value::String(text)) if text.trim_start().starts_with("{{") => {}
            Some(Value::String(text)) => match serde_json::from_str(&without_expressions(text, '0')) {
                Ok(Value::Object(config)) => self::config(&config, &path, has_expression(text), rules),
                Ok(_) => {
                    rules.say(path, "an Ignition config is a mapping", "write {\"ignition\": {\"version\": \"3.4.0\"}}")
                }
                Err(error) => rules.fault(path, Some(no_json(text, &error))),
            },
            Some(other) => {
                let message =
                    format!("an Ignition config is a mapping or the text of its JSON, not {}", describe(other));
                rules.say(path, message, "write ignition: { version: 3.4.0 } and the rest below it");
            }
        }
    }
}

fn no_json(text: &str, error: &serde_json::Error) -> Fault {
    let message = format!("line {} of the text is not JSON: {}", error.line().max(1), json_fault(error));
    let start = text.trim_start();
    let hint = if start.starts_with('#') {
        "a cloud-config or a script belongs into a cloudInit action"
    } else if start.starts_with("variant:") || text.contains("\nvariant:") {
        "this is a Butane config: translate it with butane, and write what it prints"
    } else {
        "correct that line, or remove the \"|\" so that the config is a mapping"
    };
    Fault::new(message, hint)
}

/// `replaced`: whether the text that it was had expressions, of which each is a 0 now.
fn config(config: &Map<String, Value>, path: &str, replaced: bool, rules: &mut Rules<'_>) {
    if config.contains_key("variant") {
        let hint = "translate it with butane, and write what it prints";
        return rules.say(path, "this is a Butane config, which Ignition does not read", hint);
    }
    let at = join(path, "ignition.version");
    let version = config.get("ignition").and_then(|ignition| ignition.get("version"));
    let version = match version {
        Some(Value::String(version)) if has_expression(version) => return,
        Some(Value::String(version)) if replaced && version == "0" => return,
        Some(Value::Number(version)) if replaced && version.as_u64() == Some(0) => return,
        Some(Value::String(version)) => version,
        Some(other) => {
            let message = format!("the version is a text such as \"3.4.0\", not {}", describe(other));
            return rules.say(at, message, "put it in quotes");
        }
        None => {
            let hint = "add ignition: { version: 3.4.0 }, or the version of the specification that it follows";
            return rules.say(at, "the Ignition config has no version", hint);
        }
    };
    let known = major(version).and_then(|major| FIELDS.iter().find(|(number, _)| *number == major));
    let Some((major, fields)) = known else {
        let message = format!("\"{version}\" is no version of Ignition's specification 2 or 3");
        return rules.say(at, message, "write three numbers, such as 3.4.0 (Fedora CoreOS, Flatcar) or 2.3.0");
    };
    for field in config.keys().filter(|field| !fields.contains(&field.as_str())) {
        let message = format!("Ignition's specification {major} has no field \"{field}\"");
        rules.say(join(path, field), message, suggest(field, fields, "The fields are"));
    }
}

/// The first number of a version with three, such as `3.6.0-experimental`.
fn major(version: &str) -> Option<u64> {
    let plain = version.strip_suffix("-experimental").unwrap_or(version);
    let numbers: Option<Vec<u64>> = plain.split('.').map(|part| part.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == 3)?.first().copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_that_breaks_the_json_is_refused_unseen() {
        let spec = |config: Value| IgnitionSpec { config, disk: None };
        let broken = spec(json!("{\"a\": \"ge\"heim\"}")).resolved().unwrap_err();
        assert!(!broken.to_string().contains("heim"));
        assert_eq!(spec(json!("[1]")).resolved(), Err(UnusableIgnition));
        let quoted = spec(json!({"a": "ge\"heim"})).resolved().unwrap();
        assert_eq!(serde_json::from_str::<Value>(quoted.config.expose()).unwrap(), json!({"a": "ge\"heim"}));
        let text = "{\"a\": 1}\n";
        assert_eq!(spec(json!(text)).resolved().unwrap().config.expose(), text);
    }
}
