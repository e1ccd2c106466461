//! Tables of an action's fields, made from the schema.

use landfall_api::{Kind, schema};
use serde_json::{Map, Value};

/// The schema of actions and facts.
pub(crate) struct Schema {
    definitions: Map<String, Value>,
    /// Whether a person writes the fields: those have defaults.
    written: bool,
}

/// The fields of one type, and everywhere where it stands in the action.
struct Type<'s> {
    name: &'s str,
    node: &'s Value,
    places: Vec<String>,
}

impl Schema {
    /// That of rendered actions: a template's has an expression beside each value.
    pub(crate) fn new() -> Self {
        Self::of(Kind::Workflow, true)
    }

    fn of(kind: Kind, written: bool) -> Self {
        let definitions = schema(kind)["$defs"].as_object().cloned().expect("the schema has definitions");
        Self { definitions, written }
    }

    /// What a machine's facts are.
    pub(crate) fn of_facts() -> String {
        let machine = Self::of(Kind::Machine, false);
        machine.with_types_below(&machine.definitions["MachineFacts"])
    }

    /// The field of an action.
    pub(crate) fn spec(&self, key: &str) -> &Value {
        &self.definitions["Action"]["properties"][key]
    }

    /// What its type says of the action.
    pub(crate) fn about(&self, key: &str) -> String {
        description(self.resolved(self.spec(key)).1)
    }

    /// The type behind a reference or an option, and its name if it has one.
    pub(crate) fn resolved<'s>(&'s self, node: &'s Value) -> (Option<&'s str>, &'s Value) {
        let any = node.get("anyOf").and_then(Value::as_array);
        if let Some(first) = any.and_then(|any| any.first()) {
            return self.resolved(first);
        }
        let name = node.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        match name {
            Some(name) => (Some(name), self.definitions.get(name).unwrap_or(&Value::Null)),
            None => (None, node),
        }
    }

    /// `string`, `object` and so on; `None` for any value.
    pub(crate) fn kind<'s>(&self, node: &'s Value) -> Option<&'s str> {
        match node.get("type") {
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
            other => other.and_then(Value::as_str),
        }
    }

    /// The texts that are allowed, each with what it means; none if any text is.
    pub(crate) fn choices(&self, node: &Value) -> Vec<(String, String)> {
        let plain = node.get("enum").and_then(Value::as_array).into_iter().flatten();
        let plain = plain.filter_map(|text| Some((text.as_str()?.to_owned(), String::new())));
        let explained = node.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        let explained = explained.flat_map(|one| match one.get("const").and_then(Value::as_str) {
            Some(text) => vec![(text.to_owned(), description(one))],
            None => self.choices(one),
        });
        let single = node.get("const").and_then(Value::as_str).map(|text| (text.to_owned(), String::new()));
        plain.chain(explained).chain(single).collect()
    }

    /// The fields that every action has.
    pub(crate) fn shared_fields(&self) -> String {
        let common = &self.definitions["Action"];
        let fields = common["properties"].as_object().expect("an action has fields");
        let fields = fields.iter().filter(|(name, _)| !landfall_api::ActionSpec::KEYS.contains(&name.as_str()));
        let mut out = self.rows(fields, common);
        let retry = &self.definitions["RetrySpec"];
        out += &format!("\n**`retry`**\n\n{}", self.table(retry));
        out += &format!("\n**A disk selector**: {}\n", description(&self.definitions["DiskSelector"]));
        out
    }

    /// The fields of an action, and a table for each type below it.
    pub(crate) fn fields_of(&self, key: &str) -> String {
        let (_, spec) = self.resolved(self.spec(key));
        if spec.get("properties").is_none() {
            return "It has no fields.\n".into();
        }
        self.with_types_below(spec)
    }

    fn with_types_below(&self, spec: &Value) -> String {
        let mut out = self.table(spec);
        let mut types = Vec::new();
        self.types_below(spec, "", &mut types);
        for Type { node, places, .. } in types {
            let places: Vec<String> = places.iter().map(|place| format!("`{place}`")).collect();
            out += &format!("\n**{}**: {}\n\n{}", places.join(", "), description(node), self.table(node));
        }
        out
    }

    /// Every type with fields below a node, each before those below it.
    fn types_below<'s>(&'s self, node: &'s Value, path: &str, found: &mut Vec<Type<'s>>) {
        for (field, below) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let mut place = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            let (mut name, mut below) = self.resolved(below);
            while let Some(item) = below.get("items") {
                place += "[]";
                (name, below) = self.resolved(item);
            }
            let Some(name) = name.filter(|_| below.get("properties").is_some()) else { continue };
            match found.iter_mut().find(|known| known.name == name) {
                Some(known) => known.places.push(place.clone()),
                None => found.push(Type { name, node: below, places: vec![place.clone()] }),
            }
            self.types_below(below, &place, found);
        }
    }

    fn table(&self, node: &Value) -> String {
        self.rows(node.get("properties").and_then(Value::as_object).into_iter().flatten(), node)
    }

    fn rows<'f>(&self, fields: impl Iterator<Item = (&'f String, &'f Value)>, of: &Value) -> String {
        let required = of.get("required").and_then(Value::as_array);
        let mut out = String::from(match self.written {
            true => "| field | type | default | what it means |\n|---|---|---|---|\n",
            false => "| field | type | what it means |\n|---|---|---|\n",
        });
        for (name, field) in fields {
            let must = required.is_some_and(|names| names.iter().any(|one| one == name));
            let (meaning, stated) = split_default(&description(field));
            let default = match stated {
                _ if must => "required".into(),
                Some(stated) => stated,
                None if self.kind(self.resolved(field).1) == Some("boolean") => "`false`".into(),
                None => "none".into(),
            };
            let choices = self.choices(self.resolved(field).1);
            let explained = choices.iter().filter(|(text, about)| !says_nothing_new(text, about));
            let explained: String = explained.map(|(text, about)| format!(" `{text}`: {about}")).collect();
            let meaning = format!("{meaning}{explained}");
            let mut cells = vec![format!("`{name}`"), self.word(field), meaning.trim().to_owned()];
            if self.written {
                cells.insert(2, default);
            }
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            out += &format!("| {} |\n", cells.join(" | "));
        }
        out
    }

    /// A type in words.
    fn word(&self, node: &Value) -> String {
        let (name, node) = self.resolved(node);
        match name {
            Some("Digest") => return "digest".into(),
            Some("DurationSpec") => return "duration".into(),
            Some("SizeSpec") => return "size".into(),
            Some("DiskSelector") => return "disk selector".into(),
            _ => {}
        }
        let choices: Vec<String> = self.choices(node).into_iter().map(|(text, _)| format!("`{text}`")).collect();
        if !choices.is_empty() {
            return choices.join(", ");
        }
        match self.kind(node) {
            Some("array") => format!("list: {}", node.get("items").map_or("any value".into(), |item| self.word(item))),
            Some("object") => match node.get("additionalProperties").filter(|values| values.is_object()) {
                Some(values) => format!("names, each with {}", self.word(values)),
                None if node.get("properties").is_some() => "mapping".into(),
                None => "mapping of any values".into(),
            },
            Some("string") => "text".into(),
            Some("integer") => "whole number".into(),
            Some("boolean") => "`true`, `false`".into(),
            _ => "any value".into(),
        }
    }
}

fn description(node: &Value) -> String {
    let text = node.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a description says, and what it says of the default, which stands at its end.
fn split_default(text: &str) -> (String, Option<String>) {
    match text.split_once("Default: ") {
        Some((before, default)) => (before.trim().to_owned(), Some(default.trim_end_matches('.').to_owned())),
        None => (text.to_owned(), None),
    }
}

/// Whether the explanation of a word is the word.
fn says_nothing_new(text: &str, about: &str) -> bool {
    about.trim_end_matches('.').eq_ignore_ascii_case(text)
}
