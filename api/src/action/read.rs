//! Reading an action: `name`, `timeout`, `retry` and exactly one key that says what it does.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::{Action, ActionSpec, RetrySpec, renamed::current};
use crate::DurationSpec;

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Action", &ActionSpec::FIELDS, ActionVisitor)
    }
}

struct ActionVisitor;

impl<'de> Visitor<'de> for ActionVisitor {
    type Value = Action;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an action: name, and one of {}", ActionSpec::KEYS.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Action, A::Error> {
        let (mut name, mut timeout, mut retry, mut branch, mut when) = (None, None, None, None, None);
        let mut spec: Option<ActionSpec> = None;
        while let Some(key) = map.next_key::<String>()? {
            let key = current(&key);
            if ActionSpec::KEYS.contains(&key)
                && let Some(first) = &spec
            {
                return Err(A::Error::custom(format_args!(
                    "an action must do exactly one thing, but this one has {} and {key}; make them separate items of \
                        the list",
                    first.key()
                )));
            }
            match key {
                "name" => once(&mut name, "name", map.next_value::<String>()?)?,
                "timeout" => once(&mut timeout, "timeout", map.next_value::<Option<DurationSpec>>()?)?,
                "retry" => once(&mut retry, "retry", map.next_value::<Option<RetrySpec>>()?)?,
                "branch" => once(&mut branch, "branch", map.next_value::<Option<String>>()?)?,
                "when" => once(&mut when, "when", map.next_value::<Option<String>>()?)?,
                other => {
                    if let Some(read) = ActionSpec::read(other, &mut map) {
                        spec = Some(read?);
                        continue;
                    }
                    let error = A::Error::unknown_field(other, &ActionSpec::FIELDS);
                    // The value is skipped so that the path of the error ends at the field.
                    map.next_value::<IgnoredAny>()?;
                    return Err(error);
                }
            }
        }
        let nothing = || A::Error::custom("this action has no operation");
        Ok(Action {
            name: name.ok_or_else(|| A::Error::missing_field("name"))?,
            timeout: timeout.flatten(),
            retry: retry.flatten(),
            branch: branch.flatten(),
            when: when.flatten(),
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
        assert!(message.contains("no operation"), "{message}");
    }

    #[test]
    fn a_fault_deep_in_an_action_keeps_its_path() {
        let (path, message) = refusal(json!({"name": "a", "writeImage": {"image": {"url": "x", "digest": "sha1:0"}}}));
        assert_eq!(path, "writeImage.image.digest");
        assert!(message.contains("is not a digest"), "{message}");
    }
}
