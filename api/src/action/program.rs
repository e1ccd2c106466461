//! What the actions that run a program have in common: its words and its environment.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::rules::Rules;
use crate::SecretText;
use crate::issue::{has_expression, join};

/// Words of a command.
pub(super) const MAX_WORDS: usize = 256;
/// Variables of one action.
pub(super) const MAX_VARIABLES: usize = 128;
/// The longest single argument or `NAME=value`, bytes: the kernel's MAX_ARG_STRLEN is 128 KiB.
pub(super) const MAX_WORD: usize = 64 << 10;

/// A variable of a program's environment.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecVariable {
    /// Its name.
    pub name: String,
    /// Its value; may hold secrets.
    pub value: SecretText,
    /// Whether the value holds a secret, so that output must not show it.
    pub secret: bool,
}

/// What an agent is sent of `env`. `pinned`: the same before any secret was put in; a value that differs holds one.
pub(super) fn with_secrets(env: BTreeMap<String, String>, pinned: &BTreeMap<String, String>) -> Vec<ExecVariable> {
    let variable = |(name, value): (String, String)| {
        let secret = pinned.get(&name) != Some(&value);
        ExecVariable { name, value: SecretText::new(value), secret }
    };
    env.into_iter().map(variable).collect()
}

/// The rules of the field `env`; `too_many` is the advice against more than [`MAX_VARIABLES`].
pub(super) fn variables(spec: &Map<String, Value>, path: &str, too_many: &str, rules: &mut Rules<'_>) {
    let Some(env) = spec.get("env").and_then(Value::as_object) else { return };
    let at = join(path, "env");
    if env.len() > MAX_VARIABLES {
        let message = format!("there are {} variables; the limit is {MAX_VARIABLES}", env.len());
        rules.say(&at, message, too_many);
    }
    for (name, value) in env {
        if !is_variable(name) {
            let hint = "write letters, digits and underscores, and no digit first";
            rules.say(join(&at, name), format!("\"{name}\" cannot be a variable's name"), hint);
        } else if let Some(fault) = value.as_str().filter(|text| !has_expression(text)).and_then(word_fault) {
            rules.say(join(&at, name), fault, "shorten the value");
        }
    }
}

/// What keeps the kernel from handing a text to a program; `None`: nothing.
pub(super) fn word_fault(text: &str) -> Option<String> {
    match text {
        text if text.contains('\0') => Some("it contains a NUL character".into()),
        text if text.len() > MAX_WORD => Some(format!("it has {} bytes; the limit is {MAX_WORD}", text.len())),
        _ => None,
    }
}

/// A name as POSIX has it for the environment.
fn is_variable(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}
