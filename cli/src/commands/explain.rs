//! `landfall explain`: the fields of a document, from the same schema that validates documents.

use landfall_api::{Kind, nearest, schema};
use serde_json::{Map, Value};

use crate::args::{Explain, Format};
use crate::failure::Failure;
use crate::output;
use crate::output::Out;
use crate::text::Text;

/// Fields are shown so deep; the schema has no loops, but a bound costs nothing.
const MAX_DEPTH: usize = 12;

pub(crate) fn run(args: &Explain, out: &mut Out) -> Result<(), Failure> {
    let mut parts = args.path.split('.');
    let word = parts.next().unwrap_or_default();
    let kind = Kind::from_word(word).ok_or_else(|| {
        Failure::Usage(format!("\"{word}\" is not a kind; write machine, template or workflow, then .field"))
    })?;
    let whole = schema(kind);
    let tree = Tree { definitions: whole.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default() };
    let mut at = whole.clone();
    let mut path = kind.as_str().to_owned();
    let mut about = description(&whole);
    for part in parts.map(|p| p.trim_end_matches("[]")) {
        let node = tree.resolved(&at);
        let fields = node.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let Some(next) = fields.get(part).cloned() else {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            let meant = nearest(part, &names).map(|n| format!("did you mean {n}? ")).unwrap_or_default();
            let list = if names.is_empty() {
                "it has no fields".into()
            } else {
                format!("the fields are {}", names.join(", "))
            };
            return Err(Failure::Usage(format!("{path} has no field \"{part}\"; {meant}{list}")));
        };
        path = format!("{path}.{part}");
        about = tree.about(&next);
        at = next;
    }
    match args.output {
        Format::Json => out.json(&if path == kind.as_str() { whole } else { tree.resolved(&at) })?,
        Format::Yaml => out.yaml(&if path == kind.as_str() { whole } else { tree.resolved(&at) })?,
        Format::Table | Format::Wide => {
            out.text(&out.paint(&path, output::BOLD).then(format!("  {}", tree.kind_of(&at))))?;
            if !about.is_empty() {
                out.line(&format!("\n{}", wrapped(&about, "  ")))?;
            }
            let node = tree.resolved(&at);
            if node.get("properties").is_some() {
                out.line("\nFields:")?;
                tree.fields(&node, "  ", args.recursive, 0, out)?;
            }
        }
    }
    Ok(())
}

fn description(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && indent.len() + lines[last].len() + word.len() > 98 {
            lines.push(word.to_owned());
        } else {
            let space = if lines[last].is_empty() { "" } else { " " };
            lines[last].push_str(&format!("{space}{word}"));
        }
    }
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

struct Tree {
    definitions: Map<String, Value>,
}

impl Tree {
    /// Resolves references, options, "or an expression", and lists to the type whose fields are wanted.
    fn resolved(&self, schema: &Value) -> Value {
        let mut at = schema.clone();
        for _ in 0..MAX_DEPTH {
            let next = if let Some(name) = at.get("$ref").and_then(Value::as_str) {
                self.definitions.get(name.rsplit('/').next().unwrap_or_default()).cloned()
            } else if let Some(any) = at.get("anyOf").and_then(Value::as_array) {
                any.first().cloned()
            } else if at.get("items").is_some_and(Value::is_object) {
                at.get("items").cloned()
            } else {
                None
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        at
    }

    fn about(&self, schema: &Value) -> String {
        let own = description(schema);
        if own.is_empty() { description(&self.resolved(schema)) } else { own }
    }

    /// `<list of mappings>`, `<text>`, `<one of raw, zstd>`.
    fn kind_of(&self, schema: &Value) -> String {
        format!("<{}>", self.word(schema, 0))
    }

    fn word(&self, schema: &Value, depth: usize) -> String {
        if depth > MAX_DEPTH {
            return "any".into();
        }
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let name = name.rsplit('/').next().unwrap_or_default();
            return match (name.trim_start_matches("Template"), self.definitions.get(name)) {
                ("Digest", _) => "sha256:… digest".into(),
                ("MacAddr", _) => "MAC address".into(),
                ("IpWithPrefix", _) => "address/prefix".into(),
                ("DurationSpec", _) => "duration".into(),
                (_, Some(target)) => self.word(target, depth + 1),
                (_, None) => "any".into(),
            };
        }
        if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
            return any.first().map_or("any".into(), |first| self.word(first, depth + 1));
        }
        let words = words(schema);
        if !words.is_empty() {
            return if words.len() == 1 { words[0].to_owned() } else { format!("one of {}", words.join(", ")) };
        }
        let kind = match schema.get("type") {
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).find(|t| *t != "null"),
            Some(other) => other.as_str(),
            None => None,
        };
        match kind {
            Some("object") => match schema.get("additionalProperties") {
                Some(values @ Value::Object(_)) => format!("mapping of name to {}", self.word(values, depth + 1)),
                _ => "mapping".into(),
            },
            Some("array") => match schema.get("items") {
                Some(items) => format!("list of {}", self.word(items, depth + 1)),
                None => "list".into(),
            },
            Some("string") => match schema.get("format").and_then(Value::as_str) {
                Some("uuid") => "UUID".into(),
                Some("date-time") => "time".into(),
                _ => "text".into(),
            },
            Some("integer") => "whole number".into(),
            Some("boolean") => "true or false".into(),
            Some(other) => other.to_owned(),
            None => "any".into(),
        }
    }

    fn fields(&self, node: &Value, indent: &str, recursive: bool, depth: usize, out: &mut Out) -> Result<(), Failure> {
        let Some(properties) = node.get("properties").and_then(Value::as_object) else { return Ok(()) };
        let required: Vec<&str> =
            node.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, schema) in properties {
            let must = if required.contains(&name.as_str()) { " (required)" } else { "" };
            let kind = format!("  {}{must}", self.kind_of(schema));
            out.text(&Text::from(indent).then(out.paint(name, output::BOLD)).then(kind))?;
            let about = self.about(schema);
            let below = format!("{indent}    ");
            if !recursive && !about.is_empty() {
                out.line(&wrapped(&about, &below))?;
            }
            if recursive && depth < MAX_DEPTH {
                self.fields(&self.resolved(schema), &below, recursive, depth + 1, out)?;
            }
        }
        Ok(())
    }
}

fn words(schema: &Value) -> Vec<&str> {
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return vec![word];
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words.iter().filter_map(Value::as_str).collect();
    }
    schema
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|p| p.get("properties").is_none())
        .flat_map(words)
        .collect()
}
