//! `exec`: its fields, what is sent to the agent, and what comes of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::kind::{ActionInfo, Declaration};
use super::program::{ExecVariable, MAX_WORDS, variables, with_secrets, word_fault};
use super::rules::{Rules, is_directory, plain_text};
use crate::{DiskSelector, DurationSpec, issue::join};

/// Runs a program or a script in the installed system, as root, and waits for its end. Exit code 0 is success.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecSpec {
    /// The program and its arguments, one item each; no shell reads them. Either this or `script`.
    pub command: Option<Vec<String>>,
    /// The whole text of a script, at most 64 KiB. A first line such as `#!/usr/bin/python3` names its interpreter; without
    /// one `/bin/sh -e` runs it, which ends at the first command that fails. Either this or `command`.
    pub script: Option<String>,
    /// Variables of its environment, beside PATH, HOME, LANG and TERM. A value may hold secrets: the program's output is
    /// cleared of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory in which it starts, an absolute path of the installed system. Default: `/`.
    pub directory: Option<String>,
    /// Which disk. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// `exec` as an agent is sent it: every default stated, every secret in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Exec {
    /// What runs.
    pub program: ExecProgram,
    /// Variables of its environment, beside those that the agent sets.
    pub variables: Vec<ExecVariable>,
    /// Where it starts; absolute, in the installed root.
    pub directory: String,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecProgram {
    /// A program, then its arguments; never empty.
    Command(Vec<String>),
    /// The text of a script.
    Script(String),
}

/// What came of an `exec`: the program ended with exit code 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecResult {
    /// The installed root file system's device.
    pub root_device: String,
}

/// The action has no program, or two: `validate_actions` refuses that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it needs either a command or a script")]
pub struct UnusableProgram;

/// The longest script, bytes: sixteen times the longest that `curtin`'s and Tinkerbell's published examples have, and far
/// below what a status document may hold.
const MAX_SCRIPT: usize = 64 << 10;

impl ExecSpec {
    /// What an agent is sent. `pinned`: the same action before any secret was put in; a variable that differs holds one.
    ///
    /// # Errors
    /// [`UnusableProgram`]
    pub fn resolved(self, pinned: &Self) -> Result<Exec, UnusableProgram> {
        let Self { command, script, env, directory, disk } = self;
        let program = match (command, script) {
            (Some(words), None) if !words.is_empty() => ExecProgram::Command(words),
            (None, Some(text)) => ExecProgram::Script(text),
            _ => return Err(UnusableProgram),
        };
        let variables = with_secrets(env, &pinned.env);
        Ok(Exec { program, variables, directory: directory.unwrap_or_else(|| "/".into()), disk })
    }
}

impl Declaration for ExecSpec {
    const INFO: ActionInfo = ActionInfo {
        // What a program did before it failed is unknown.
        attempts: 1,
        means_written_disk: true,
        secrets: &["env"],
        ..ActionInfo::new("Runs a program or a script in the installed system.", DurationSpec::from_secs(15 * 60), 6)
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        program(spec, path, rules);
        variables(spec, path, "write a file with writeFile, and read it in the script", rules);
        if let Some(directory) = plain_text(spec, "directory").filter(|directory| !is_directory(directory)) {
            let message = format!("{directory:?} is not an absolute path without \"..\"");
            rules.say(join(path, "directory"), message, "write a path such as /opt/app");
        }
    }
}

/// Exactly one of `command` and `script`.
fn program(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let has = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    let (command, script) = (join(path, "command"), join(path, "script"));
    match (has("command"), has("script")) {
        (true, true) => return rules.say(script, "exec has a command or a script, not both", "remove one of the two"),
        (false, false) => {
            let hint = "write command: [program, argument] or script: with the text";
            return rules.say(command, "exec has no command and no script", hint);
        }
        _ => {}
    }
    if let Some(words) = spec.get("command").and_then(Value::as_array) {
        if words.first().is_none_or(|first| first.as_str().is_some_and(|text| text.trim().is_empty())) {
            rules.say(&command, "the command names no program", "write the program's name as the first item");
        }
        if words.len() > MAX_WORDS {
            let message = format!("the command has {} items; the limit is {MAX_WORDS}", words.len());
            rules.say(&command, message, "write a script instead");
        }
        for (index, word) in words.iter().enumerate() {
            if let Some(fault) = word.as_str().and_then(word_fault) {
                rules.say(format!("{command}[{index}]"), fault, "shorten the item, or write a script instead");
            }
        }
    }
    if let Some(text) = plain_text(spec, "script") {
        if text.trim().is_empty() {
            rules.say(&script, "the script is empty", "write its commands, or remove the action");
        } else if text.len() > MAX_SCRIPT {
            let message = format!("the script has {} bytes; the limit is {MAX_SCRIPT}", text.len());
            rules.say(&script, message, "put it on a server and fetch it with writeFile, then run it with command");
        } else if text.contains('\0') {
            rules.say(&script, "the script contains a NUL character", "remove it");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::program::{MAX_VARIABLES, MAX_WORD};
    use super::*;
    use crate::validate::tests::faults;

    const AT: &str = "spec.actions[0].exec";

    fn of(more: Value) -> Vec<String> {
        let mut spec = json!({"command": ["/usr/sbin/update-grub"], "disk": {"name": "vda"}});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        faults(json!([{"name": "grub", "exec": spec}])).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn a_program_has_bounds() {
        let long = "x".repeat(MAX_WORD + 1);
        for (more, field) in [
            (json!({"command": vec!["x"; MAX_WORDS + 1]}), "command"),
            (json!({"command": ["a", long]}), "command[1]"),
            (json!({"command": null, "script": "x".repeat(MAX_SCRIPT + 1)}), "script"),
        ] {
            assert_eq!(of(more), [format!("{AT}.{field}")]);
        }
        let many: Map<_, _> = (0..=MAX_VARIABLES).map(|n| (format!("V{n}"), json!("x"))).collect();
        assert_eq!(of(json!({"env": many})), [format!("{AT}.env")]);
    }

    #[test]
    fn only_variables_with_a_secret_are_marked() {
        let spec = |token: &str| ExecSpec {
            command: Some(vec!["id".into()]),
            env: [("MODE".into(), "fast".into()), ("TOKEN".into(), token.into())].into(),
            ..ExecSpec::default()
        };
        let sent = spec("geheim").resolved(&spec("{{ secrets.a.b }}")).unwrap();
        assert_eq!(sent.variables.iter().map(|v| v.secret).collect::<Vec<_>>(), [false, true]);
        assert_eq!(sent.directory, "/");
        assert_eq!(ExecSpec::default().resolved(&ExecSpec::default()), Err(UnusableProgram));
    }
}
