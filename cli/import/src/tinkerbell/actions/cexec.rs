//! cexec: a command, mostly in the installed system.

use serde_json::{Map, Value, json};

use super::{Context, List, Source, empty, with};
use crate::fields::Text;

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    source.not_needed(&["FS_TYPE", "UPDATE_RESOLV_CONF"], "exec does both by itself", context);
    let device = source.device("BLOCK_DEVICE", context);
    let disk = list.disk(device.as_ref(), source.line, context);
    if source.env("CHROOT").is_none() {
        let message = "without CHROOT the command runs beside the installed system, and exec runs it inside; check its \
            paths";
        context.report.todo(source.line, message);
    }
    let interpreter = source.env("DEFAULT_INTERPRETER");
    let program = match source.env("CMD_LINE") {
        Some(line) => {
            let text = context.script(&line, device.as_ref());
            command(&text, interpreter.as_ref())
        }
        None => with(empty(), "script", Some(source.required("CMD_LINE", context))),
    };
    let mut env = Map::new();
    for (name, text) in source.rest() {
        let value = context.text(&text);
        env.insert(name, value.into());
    }
    let program = with(program, "env", (!env.is_empty()).then_some(Value::Object(env)));
    list.items.push(source.done("exec", with(program, "disk", disk), context));
    true
}

/// How cexec starts its command line: by the interpreter, else word for word, several separated by semicolons.
fn command(line: &str, interpreter: Option<&Text>) -> Value {
    let interpreter: Vec<&str> = interpreter.map(|text| text.text.split_whitespace().collect()).unwrap_or_default();
    match interpreter.as_slice() {
        [shell, "-c"] if shell.starts_with('/') => json!({"script": format!("#!{shell}\n{line}\n")}),
        // `-e` and the like belong to the shell.
        [shell, flags @ .., "-c"] if shell.starts_with('/') && flags.len() == 1 => {
            json!({"script": format!("#!{shell} {}\n{line}\n", flags.join(" "))})
        }
        [] if line.contains([';', '$', '\n']) => {
            let each: String = line.split(';').map(|command| format!("{}\n", command.trim())).collect();
            json!({ "script": each })
        }
        [] => json!({"command": words(line)}),
        words => {
            let words: Vec<&str> = words.iter().copied().chain([line]).collect();
            json!({ "command": words })
        }
    }
}

/// Words between spaces; an expression is never divided.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut rest) = (Vec::new(), String::new(), line);
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("{{") {
            let end = rest.find("}}").map_or(rest.len(), |end| end + 2);
            let (expression, after) = rest.split_at(end);
            word.push_str(expression);
            rest = after;
            continue;
        }
        if !c.is_whitespace() {
            word.push(c);
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_started_as_cexec_does() {
        let by = |interpreter: &str| {
            let text = Text { text: interpreter.into(), line: 1 };
            command("a b; c", Some(&text))
        };
        assert_eq!(by("/bin/sh -c"), json!({"script": "#!/bin/sh\na b; c\n"}));
        assert_eq!(by("/bin/bash -e -c"), json!({"script": "#!/bin/bash -e\na b; c\n"}));
        assert_eq!(by("/usr/bin/env bash -x -c"), json!({"command": ["/usr/bin/env", "bash", "-x", "-c", "a b; c"]}));
        assert_eq!(command("a b; c", None), json!({"script": "a b\nc\n"}));
        assert_eq!(command("a  b/{{ params.x }}c d", None), json!({"command": ["a", "b/{{ params.x }}c", "d"]}));
    }
}
