//! User-data and vendor-data: a cloud-config as a mapping, or a text of any kind that cloud-init knows; and what can be seen to
//! be wrong with such a text before a machine reads it.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::kinds::{Headers, UserDataKind};
use crate::action::rules::Fault;
use crate::issue::{has_expression, json_fault, without_expressions};
use crate::nearest::nearest;
use crate::yaml::{YamlNode, YamlValue, one_tree};

/// What cloud-init is given.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum UserDataSpec {
    /// A cloud-config.
    Config(BTreeMap<String, Value>),
    /// A text of any kind that cloud-init knows by its first line.
    Text(String),
}

impl<'de> Deserialize<'de> for UserDataSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = UserDataSpec;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cloud-config as a mapping, or the text of user-data")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<UserDataSpec, E> {
                Ok(UserDataSpec::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UserDataSpec, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(UserDataSpec::Config)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for UserDataSpec {
    fn schema_name() -> Cow<'static, str> {
        "UserDataSpec".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["object", "string"],
            "description": "A cloud-config as a mapping, or a text of any kind that cloud-init knows by its first line: \
                #cloud-config, #!, #cloud-boothook, #include, ## template: jinja, a MIME message.",
        })
    }
}

/// What is wrong with a text; expressions in it may become anything.
pub(super) fn fault(text: &str) -> Option<Fault> {
    let first = text.trim_start().lines().next().unwrap_or_default().trim_end();
    if first.is_empty() {
        return Some(Fault::new("the text is empty", "write user-data, or remove the field"));
    }
    if has_expression(first) {
        return None;
    }
    let Some(kind) = UserDataKind::of(text) else { return Some(unknown(text, first)) };
    match kind {
        UserDataKind::CloudConfig => cloud_config(text),
        UserDataKind::Archive => archive(text),
        UserDataKind::JsonPatch => json_patch(text),
        UserDataKind::Script => script(text, first),
        UserDataKind::Include | UserDataKind::IncludeOnce => include(text),
        UserDataKind::Jinja => jinja(text),
        UserDataKind::Mime => mime(text),
        UserDataKind::Boothook | UserDataKind::PartHandler => None,
    }
}

/// A text that cloud-init would leave unread.
fn unknown(text: &str, first: &str) -> Fault {
    let known = UserDataKind::beginnings();
    // The first bytes of a gzip file in base64.
    if first.starts_with("H4sI") || first.starts_with('\u{1f}') {
        let hint = "write the text that was compressed: the seed has no limit of size";
        return Fault::new("the text is compressed with gzip, which cloud-init does not undo in base64", hint);
    }
    if Headers::of(text).is_some_and(|headers| headers.content_type().is_some_and(|(kind, _)| kind.contains('/'))) {
        let hint = "add the line MIME-Version: 1.0 to the headers at the beginning";
        return Fault::new("the MIME message has no header MIME-Version, by which cloud-init knows one", hint);
    }
    let header = |line: &str| known.iter().find(|header| **header != "#!" && line.starts_with(**header));
    let above = |line: &str| line.is_empty() || line.starts_with('#') || line == "---";
    let mut lines =
        text.lines().map(str::trim_end).zip(1..).skip_while(|(line, _)| above(line) && header(line).is_none());
    if let Some((line, number)) = lines.next()
        && let Some(header) = header(line)
    {
        let message = format!("{header} is on line {number} of the text, and cloud-init looks for it on the first");
        return Fault::new(message, format!("make {header} the first line"));
    }
    let shown: String = first.chars().take(60).collect();
    let message = format!("cloud-init knows no user-data that begins with \"{shown}\"");
    let hint = match nearest(first, &known) {
        Some(header) => format!("did you mean \"{header}\"?"),
        None if one_tree(text).is_ok_and(|tree| matches!(tree.value, YamlValue::Map(_))) => {
            "make #cloud-config the first line, or remove the \"|\" so that it is a mapping".to_owned()
        }
        None => format!("begin with {}, or with the headers of a MIME message", known.join(", ")),
    };
    Fault::new(message, hint)
}

fn tree(text: &str, what: &str) -> Result<YamlNode, Fault> {
    one_tree(&without_expressions(text, 'x')).map_err(|(line, why)| {
        let message = format!("line {line} of the text: the {what} is not YAML: {why}");
        Fault::new(message, "check the indentation of that line, and quote values that contain \": \", \"#\" or \"{\"")
    })
}

fn cloud_config(text: &str) -> Option<Fault> {
    let hint = "write fields such as packages: [vim] below #cloud-config";
    match tree(text, "cloud-config") {
        Err(fault) => Some(fault),
        Ok(YamlNode { value: YamlValue::Map(_), .. }) => None,
        Ok(YamlNode { value: YamlValue::Scalar { value: Value::Null, .. }, .. }) => {
            Some(Fault::new("the cloud-config has no field", hint))
        }
        Ok(other) => {
            Some(Fault::new(format!("line {} of the text: a cloud-config is a mapping", other.line.max(2)), hint))
        }
    }
}

fn archive(text: &str) -> Option<Fault> {
    match tree(text, "archive") {
        Err(fault) => Some(fault),
        Ok(YamlNode { value: YamlValue::List(_), .. }) => None,
        Ok(_) => {
            let hint = "write one item a part, such as - { type: text/cloud-config, content: \"…\" }";
            Some(Fault::new("what follows #cloud-config-archive is a list of parts", hint))
        }
    }
}

fn json_patch(text: &str) -> Option<Fault> {
    let plain = without_expressions(text.trim_start(), '0');
    let patch = plain.split_once('\n').map_or("", |(_, patch)| patch);
    let hint = "write a list such as [{\"op\": \"add\", \"path\": \"/runcmd\", \"value\": []}]";
    match serde_json::from_str::<Vec<Value>>(patch) {
        Ok(_) => None,
        Err(e) => {
            let line = e.line().saturating_add(1);
            Some(Fault::new(format!("line {line} of the text: this is not a JSON patch: {}", json_fault(&e)), hint))
        }
    }
}

fn script(text: &str, first: &str) -> Option<Fault> {
    if !text.starts_with("#!") {
        return Some(Fault::new("there is something before #!, so the kernel would not run the script", "remove it"));
    }
    if text.lines().next() == Some(first) && text.split('\n').next().is_some_and(|line| line.ends_with('\r')) {
        let hint = "save the script with the line ends of Unix";
        return Some(Fault::new(
            "line 1 of the text ends in a carriage return, which would be part of the interpreter's name",
            hint,
        ));
    }
    let interpreter = first.get(2..).unwrap_or_default().trim_start();
    (!interpreter.starts_with('/'))
        .then(|| Fault::new("line 1 of the text names no interpreter", "write its absolute path, such as #!/bin/sh"))
}

fn include(text: &str) -> Option<Fault> {
    let hint = "write one URL a line, such as https://host/user-data";
    let mut urls = 0;
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        // As cloud-init does: the header's line may go on with a URL.
        let rest = line.strip_prefix("#include-once").or_else(|| line.strip_prefix("#include")).unwrap_or(line).trim();
        if rest.is_empty() || rest.starts_with('#') {
            continue;
        }
        urls += 1;
        if !has_expression(rest) && !["http://", "https://", "file://", "ftp://"].iter().any(|s| rest.starts_with(s)) {
            return Some(Fault::new(format!("line {number} of the text is not a URL"), hint));
        }
    }
    (urls == 0).then(|| Fault::new("there is no URL below #include", hint))
}

fn jinja(text: &str) -> Option<Fault> {
    let below = text.trim_start().split_once('\n').map_or("", |(_, below)| below);
    if below.trim_start().lines().next().is_some_and(has_expression) {
        return None;
    }
    let fits = matches!(
        UserDataKind::of(below),
        Some(UserDataKind::CloudConfig | UserDataKind::Script | UserDataKind::Boothook)
    );
    (!fits).then(|| {
        let hint = "write #cloud-config, #!/bin/sh or #cloud-boothook on line 2";
        Fault::new("below ## template: jinja there is no cloud-config, script or boothook", hint)
    })
}

fn mime(text: &str) -> Option<Fault> {
    let headers = Headers::of(text)?;
    let Some((kind, boundary)) = headers.content_type() else {
        let hint = "add the line Content-Type: multipart/mixed; boundary=\"…\"";
        return Some(Fault::new("the MIME message has no header Content-Type", hint));
    };
    if !kind.starts_with("multipart/") {
        return None;
    }
    let Some(boundary) = boundary else {
        let hint = "write Content-Type: multipart/mixed; boundary=\"…\"";
        return Some(Fault::new("the header Content-Type of the MIME message has no boundary", hint));
    };
    let has = |line: &str| headers.body.lines().any(|found| found.trim_end() == line);
    let (begin, end) = (format!("--{boundary}"), format!("--{boundary}--"));
    if !has(&begin) {
        return Some(Fault::new("the MIME message has no part", format!("begin each part with the line {begin}")));
    }
    (!has(&end)).then(|| Fault::new("the MIME message has no end", format!("end the last part with the line {end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: &str = "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n--b\n\n#!/bin/sh\n--b--\n";

    #[test]
    fn sound_user_data_of_each_kind_is_taken() {
        for text in [
            "#cloud-config\npackages: [vim]\n",
            "#cloud-config\npassword: {{ secrets.a.b }}\nlist:\n- \"{{ params.x }}\"\n",
            "#cloud-config\na: 1\na: 2\n",
            "#cloud-config-archive\n- type: text/cloud-config\n  content: x\n",
            "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/n\", \"value\": {{ params.n }}}]\n",
            "#!/bin/sh\necho a: b: c\n",
            "#! /usr/bin/env python3\n",
            "#cloud-boothook\n#!/bin/sh\n",
            "#include\nhttps://h/x\n# comment\n{{ params.url }}\n",
            "#include https://h/x\n",
            "#part-handler\ndef list_types(): pass\n",
            "## template: jinja\n#cloud-config\n{% if x %}\n",
            PARTS,
            "MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n",
            "{{ params.user_data }}",
        ] {
            assert_eq!(fault(text), None, "{text}");
        }
    }

    #[test]
    fn each_fault_of_a_text_says_what_to_do() {
        for (text, message, hint) in [
            ("", "is empty", "remove the field"),
            (" \n", "is empty", "remove the field"),
            ("H4sIAAAAAAAAA", "gzip", "that was compressed"),
            ("# a note\n\n#cloud-config\na: 1\n", "on line 3", "the first line"),
            ("# cloud-config\na: 1\n", "begins with \"# cloud-config\"", "did you mean \"#cloud-config\"?"),
            ("packages: [vim]\n", "begins with", "make #cloud-config the first line"),
            ("echo hello\n", "begins with", "begin with #cloud-config"),
            ("#cloud-config\na: [\n", "line 2 of the text: the cloud-config is not YAML", "indentation"),
            ("#cloud-config\n- a\n", "line 2 of the text: a cloud-config is a mapping", "packages"),
            ("#cloud-config\n# nothing\n", "no field", "packages"),
            ("#cloud-config\na: 1\n---\nb: 1\n", "not YAML", "indentation"),
            ("#cloud-config-archive\na: 1\n", "list of parts", "text/cloud-config"),
            ("#cloud-config-jsonp\n{\"op\": 1}\n", "line 2 of the text", "\"op\""),
            ("\n#!/bin/sh\n", "before #!", "remove"),
            ("#!/bin/sh\r\ntrue\r\n", "carriage return", "Unix"),
            ("#!\ntrue\n", "no interpreter", "#!/bin/sh"),
            ("#include\nhost/x\n", "line 2 of the text is not a URL", "one URL"),
            ("#include\n# http://h/x\n", "no URL", "one URL"),
            ("## template: jinja\npackages: [vim]\n", "no cloud-config", "line 2"),
            ("MIME-Version: 1.0\n\n#!/bin/sh\n", "no header Content-Type", "multipart/mixed"),
            ("MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n--b\n--b--\n", "no boundary", "boundary"),
            (&PARTS.replace("MIME-Version: 1.0\n", ""), "no header MIME-Version", "MIME-Version: 1.0"),
            (&PARTS.replace("--b\n", ""), "no part", "--b"),
            (&PARTS.replace("--b--", ""), "no end", "--b--"),
        ] {
            let found = fault(text).unwrap_or_else(|| panic!("{text:?} is taken"));
            assert!(found.message.contains(message), "{text:?}: {}", found.message);
            assert!(found.hint.contains(hint), "{text:?}: {}", found.hint);
        }
    }
}
