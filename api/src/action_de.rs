//! Reading an action: `name`, `timeout`, `retry` and exactly one key that says what it does.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::{
    Action, ActionSpec, ClearDisksSpec, CloudInitSpec, DurationSpec, HoldSpec, KexecSpec, PowerOffSpec, RebootSpec,
    RetrySpec, WriteImageSpec,
};

const FIELDS: [&str; 11] = [
    "name",
    "timeout",
    "retry",
    "branch",
    "writeImage",
    "cloudInit",
    "hold",
    "reboot",
    "powerOff",
    "clearDisks",
    "kexec",
];

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Action", &FIELDS, ActionVisitor)
    }
}

struct ActionVisitor;

impl<'de> Visitor<'de> for ActionVisitor {
    type Value = Action;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an action: name, and one of {}", ActionSpec::KEYS.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Action, A::Error> {
        let (mut name, mut timeout, mut retry, mut branch) = (None, None, None, None);
        let mut spec: Option<ActionSpec> = None;
        while let Some(key) = map.next_key::<String>()? {
            if ActionSpec::KEYS.contains(&key.as_str())
                && let Some(first) = &spec
            {
                return Err(A::Error::custom(format_args!(
                    "one action does one thing, and this one has {} and {key}; make them separate items of the list",
                    first.key()
                )));
            }
            match key.as_str() {
                "name" => once(&mut name, "name", map.next_value::<String>()?)?,
                "timeout" => once(&mut timeout, "timeout", map.next_value::<Option<DurationSpec>>()?)?,
                "retry" => once(&mut retry, "retry", map.next_value::<Option<RetrySpec>>()?)?,
                "branch" => once(&mut branch, "branch", map.next_value::<Option<String>>()?)?,
                "writeImage" => spec = Some(ActionSpec::WriteImage(map.next_value::<WriteImageSpec>()?)),
                "cloudInit" => spec = Some(ActionSpec::CloudInit(map.next_value::<CloudInitSpec>()?)),
                "hold" => spec = Some(ActionSpec::Hold(map.next_value::<HoldSpec>()?)),
                "reboot" => spec = Some(ActionSpec::Reboot(map.next_value::<RebootSpec>()?)),
                "powerOff" => spec = Some(ActionSpec::PowerOff(map.next_value::<PowerOffSpec>()?)),
                "clearDisks" => spec = Some(ActionSpec::ClearDisks(map.next_value::<ClearDisksSpec>()?)),
                "kexec" => spec = Some(ActionSpec::Kexec(map.next_value::<KexecSpec>()?)),
                other => {
                    let error = A::Error::unknown_field(other, &FIELDS);
                    // The value is passed over so that the path of the error ends at the field.
                    map.next_value::<IgnoredAny>()?;
                    return Err(error);
                }
            }
        }
        let nothing = || {
            let keys = ActionSpec::KEYS.join(", ");
            A::Error::custom(format_args!("this action says nothing to do: add one of {keys}"))
        };
        Ok(Action {
            name: name.ok_or_else(|| A::Error::missing_field("name"))?,
            timeout: timeout.flatten(),
            retry: retry.flatten(),
            branch: branch.flatten(),
            spec: spec.ok_or_else(nothing)?,
        })
    }
}

fn once<T, E: Error>(slot: &mut Option<T>, field: &'static str, value: T) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(field)),
    }
}

impl JsonSchema for Action {
    fn schema_name() -> Cow<'static, str> {
        "Action".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let described = |schema: Schema, text: &str| {
            let mut schema = schema;
            schema.insert("description".into(), text.into());
            schema
        };
        json_schema!({
            "type": "object",
            "description": "One step: a name, how long it may take, how often it is tried, and exactly one key that says what it does.",
            "properties": {
                "name": { "type": "string", "description": "Unique within its list; a DNS label." },
                "timeout": described(generator.subschema_for::<DurationSpec>(),
                    "How long one attempt may take. Default: 1h for writeImage, 24h for hold, 5m for the others."),
                "retry": described(generator.subschema_for::<RetrySpec>(),
                    "Retry policy. Default: 3 attempts for writeImage, 1 for the others."),
                "branch": { "type": ["string", "null"], "description": "Consecutive actions that name a branch form one stage: its branches run at once, the actions of one branch in order." },
                "writeImage": described(generator.subschema_for::<WriteImageSpec>(), "Writes a disk image."),
                "cloudInit": described(generator.subschema_for::<CloudInitSpec>(), "Puts a NoCloud seed on the installed disk."),
                "hold": described(generator.subschema_for::<HoldSpec>(), "Stops here until a person says landfall resume."),
                "reboot": described(generator.subschema_for::<RebootSpec>(), "Restarts into the installed system. The last action."),
                "powerOff": described(generator.subschema_for::<PowerOffSpec>(), "Turns the machine off. The last action."),
                "clearDisks": described(generator.subschema_for::<ClearDisksSpec>(),
                    "Clears boot sectors, partition tables, signatures and receipts of disks."),
                "kexec": described(generator.subschema_for::<KexecSpec>(),
                    "Starts the installed system's own kernel without a restart of the machine. The last action."),
            },
            "required": ["name"],
            "oneOf": ActionSpec::KEYS.map(|key| serde_json::json!({ "required": [key] })),
            "additionalProperties": false,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(value: Value) -> (String, String) {
        let error = serde_path_to_error::deserialize::<_, Action>(value).expect_err("refused");
        (error.path().to_string(), error.into_inner().to_string())
    }

    #[test]
    fn an_action_reads_back_as_written() {
        let value = json!({"name": "root", "timeout": "1h", "retry": {"maxAttempts": 2},
            "writeImage": {"disk": {"name": "vda"}, "image": {"url": "http://x/y", "digestWaived": true}}});
        let action: Action = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&action).unwrap(), value);
    }

    #[test]
    fn an_unknown_field_of_an_action_is_refused_by_name() {
        let (_, message) = refusal(json!({"name": "a", "reboot": {}, "timeuot": "1h"}));
        assert!(message.starts_with("unknown field `timeuot`"), "{message}");
    }

    #[test]
    fn two_things_in_one_action_are_refused_naming_both() {
        let (_, message) = refusal(json!({"name": "a", "cloudInit": {}, "reboot": {}}));
        assert!(message.contains("cloudInit and reboot"), "{message}");
    }

    #[test]
    fn an_action_with_nothing_to_do_is_refused() {
        let (_, message) = refusal(json!({"name": "a"}));
        assert!(message.contains("nothing to do"), "{message}");
    }

    #[test]
    fn a_fault_deep_in_an_action_keeps_its_path() {
        let (path, message) = refusal(json!({"name": "a", "writeImage": {"image": {"url": "x", "digest": "sha1:0"}}}));
        assert_eq!(path, "writeImage.image.digest");
        assert!(message.contains("is not a digest"), "{message}");
    }
}
