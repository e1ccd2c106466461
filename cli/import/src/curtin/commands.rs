//! Commands of curtin's stages: those in the installed system become `exec`.

use landfall_api::{YamlNode, YamlValue};
use serde_json::{Value, json};

use super::list::List;
use crate::content::literal;
use crate::fields::{Fields, text_of};
use crate::report::Report;
use crate::{device, names, todo};

/// A stage's command: its words, or one text for a shell.
enum Command {
    Words(Vec<String>),
    Shell(String),
}

/// Reads the commands of a stage, in the order of their names as curtin runs them.
fn read(config: &mut Fields<'_>, stage: &str) -> Vec<(String, u64, Command)> {
    let mut found: Vec<(String, u64, &YamlNode)> = match config.get(stage).map(|node| &node.value) {
        Some(YamlValue::Map(fields)) => {
            fields.iter().map(|field| (field.name.clone(), field.line, &field.node)).collect()
        }
        Some(YamlValue::List(items)) => {
            items.iter().enumerate().map(|(n, item)| (format!("{:02}", n + 1), item.line, item)).collect()
        }
        _ => Vec::new(),
    };
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let command = |node: &YamlNode| match &node.value {
        YamlValue::List(items) => Some(Command::Words(items.iter().filter_map(text_of).collect())),
        _ => text_of(node).map(Command::Shell),
    };
    found.into_iter().filter_map(|(name, line, node)| Some((name, line, command(node)?))).collect()
}

/// Adds the commands of a stage.
pub(super) fn stage(stage: &str, config: &mut Fields<'_>, list: &mut List, report: &mut Report) {
    for (name, line, command) in read(config, stage) {
        let name = names::label(&format!("{}-{name}", stage.trim_end_matches("_commands")), "command");
        if is_usual(&command) {
            report.note(line, format!("{} is left out: the list does the same", shown(&command)));
            report.count(stage, true);
            continue;
        }
        if ends_netboot(&command) {
            let message =
                format!("{} is left out: Landfall knows by itself when the machine is installed", shown(&command));
            report.note(line, message);
            report.count(stage, true);
            continue;
        }
        match in_target(&command) {
            Some(spec) => {
                let spec = list.on_target(spec);
                list.push(&name, "exec", spec);
                report.count(stage, true);
            }
            None => {
                let message = format!(
                    "{} runs beside the installed system, which has no counterpart; do the same with exec inside of it, or \
                     remove the item",
                    shown(&command)
                );
                report.todo(line, message);
                let name = list.names.give(name);
                list.items.push(todo::action(&name, format!("{stage} outside of the installed system")));
                report.count(stage, false);
            }
        }
    }
}

/// The disk of `curtin block-meta simple`, if one is named; other commands are reported.
pub(super) fn partitioning(config: &mut Fields<'_>, list: &mut List, report: &mut Report) -> Option<Value> {
    let mut disk = None;
    for (name, line, command) in read(config, "partitioning_commands") {
        let words = words(&command);
        if is_usual(&command) {
            let named = words.iter().enumerate().find_map(|(n, word)| match word.strip_prefix("--device") {
                Some("") => words.get(n + 1).cloned(),
                Some(rest) => rest.strip_prefix('=').map(str::to_owned),
                None => None,
            });
            if let Some(path) = named {
                let (selector, known) = device::selector(&path);
                if let Some(known) = known {
                    report.note(line, format!("{path}: {known}"));
                }
                disk = Some(selector);
            }
            report.count("partitioning_commands", true);
            continue;
        }
        let message = format!("{} divides disks by a program of its own; write a storage action", shown(&command));
        report.todo(line, message);
        report.count("partitioning_commands", false);
        let name = list.names.give(names::label(&format!("partitioning-{name}"), "command"));
        list.items.push(todo::action(&name, "a storage action in place of partitioning_commands"));
    }
    disk
}

fn words(command: &Command) -> Vec<String> {
    match command {
        Command::Words(words) => words.clone(),
        Command::Shell(text) => text.split_whitespace().map(str::to_owned).collect(),
    }
}

/// What a finding shows of a command.
fn shown(command: &Command) -> String {
    /// Characters.
    const MOST: usize = 60;
    let text = words(command).join(" ");
    if text.chars().count() > MOST {
        format!("\"{}…\"", text.chars().take(MOST).collect::<String>())
    } else {
        format!("\"{text}\"")
    }
}

/// curtin's own commands of a stage.
fn is_usual(command: &Command) -> bool {
    let words = words(command);
    let mut words = words.iter().map(String::as_str).filter(|word| !word.starts_with('-'));
    words.next() == Some("curtin")
        && matches!(words.next(), Some("block-meta" | "net-meta" | "extract" | "curthooks" | "hook" | "apply-net"))
}

/// MAAS is asked to boot the disk from now on.
fn ends_netboot(command: &Command) -> bool {
    words(command).iter().any(|word| word.contains("op=netboot_off"))
}

/// The `exec` of a command of `curtin in-target`.
fn in_target(command: &Command) -> Option<Value> {
    match command {
        Command::Words(words) => {
            let inner = inner(words.iter().map(String::as_str))?;
            let words: Vec<String> = words.iter().skip(inner).map(|word| literal(word, false)).collect();
            (!words.is_empty()).then(|| json!({ "command": words }))
        }
        Command::Shell(text) => {
            let inner = inner(text.split_whitespace())?;
            let mut rest = text.trim_start();
            for _ in 0..inner {
                rest = rest.find(char::is_whitespace).and_then(|end| rest.get(end..)).unwrap_or_default().trim_start();
            }
            // A shell runs the whole line; what stands behind the command's end would be beside the system.
            let one = !rest.contains(['\n', ';', '|', '&', '>', '<', '`', '$']);
            (one && !rest.is_empty())
                .then(|| json!({"script": format!("#!/bin/sh\n{}\n", literal(rest.trim_end(), false))}))
        }
    }
}

/// How many words stand before the command of `curtin in-target … --`.
fn inner<'w>(words: impl Iterator<Item = &'w str>) -> Option<usize> {
    let mut words = words.enumerate().peekable();
    (words.next()?.1 == "curtin").then_some(())?;
    (words.next()?.1 == "in-target").then_some(())?;
    let mut at = 2;
    while let Some((n, word)) = words.next() {
        at = n;
        match word {
            "--" => return Some(n + 1),
            "-t" | "--target" => {
                words.next();
            }
            word if word.starts_with('-') => {}
            _ => return Some(at),
        }
    }
    Some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_in_the_target_become_exec() {
        let words = |words: &[&str]| in_target(&Command::Words(words.iter().map(ToString::to_string).collect()));
        let shell = |text: &str| in_target(&Command::Shell(text.to_owned()));
        let sync = json!({"command": ["sh", "-c", "a; b"]});
        assert_eq!(words(&["curtin", "in-target", "--", "sh", "-c", "a; b"]), Some(sync.clone()));
        assert_eq!(words(&["curtin", "in-target", "--target", "/t", "sh", "-c", "a; b"]), Some(sync));
        assert_eq!(shell("curtin in-target -- apt-get update"), Some(json!({"script": "#!/bin/sh\napt-get update\n"})));
        for text in [
            "curtin in-target -- a > /tmp/x", "sh -c 'echo > $TARGET_MOUNT_POINT/x'", "curtin in-target --", "",
            "curtin",
        ] {
            assert_eq!(shell(text), None, "{text}");
        }
        assert_eq!(words(&["curtin", "in-target", "--"]), None);
    }

    #[test]
    fn curtins_own_commands_are_recognised() {
        for text in
            ["curtin block-meta custom", "curtin block-meta --device=/dev/vdc simple", "curtin -v net-meta auto"]
        {
            assert!(is_usual(&Command::Shell(text.to_owned())), "{text}");
        }
        assert!(!is_usual(&Command::Shell("curtin in-target -- x".into())));
    }
}
