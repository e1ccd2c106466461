//! Checks a tree against a schema, and reports every fault: where, what, and what to do.
//!
//! The schema comes from the types, so this and typed deserialisation cannot drift apart. Typed deserialisation
//! decides: it runs first, and this only explains its refusal. Trees of templates, which have expressions in place of
//! typed values, are checked only here.

mod hint;

use serde_json::{Map, Value};

use crate::issue::{Issue, describe, has_expression, join, one_problem, suggest};
use crate::nearest::nearest;
use crate::schema::Schema;
use crate::{API_VERSION, Digest, Document, DurationSpec, Kind, MacAddr, Problem, SizeSpec, schema};

impl Document {
    /// Reads a document from a parsed tree, by its `kind`; unknown fields are refused by path. Does not check fields
    /// against each other: [`Document::validate`] does.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidDocument` naming the field; further faults are its causes.
    pub fn from_value(value: Value) -> Result<Self, Problem> {
        document(value).map_err(one_problem)
    }
}

/// Reads a document from a tree.
pub(crate) fn document(value: Value) -> Result<Document, Vec<Issue>> {
    let kind = head(&value).map_err(|issue| vec![issue])?;
    let typed = match kind {
        Kind::Machine => serde_path_to_error::deserialize(&value).map(Document::Machine),
        Kind::Template => serde_path_to_error::deserialize(&value).map(Document::Template),
        Kind::Workflow => serde_path_to_error::deserialize(&value).map(Document::Workflow),
        Kind::Secret => serde_path_to_error::deserialize(&value).map(Document::Secret),
        Kind::EnrolmentRule => serde_path_to_error::deserialize(&value).map(Document::EnrolmentRule),
        Kind::Pool => serde_path_to_error::deserialize(&value).map(Document::Pool),
    };
    typed.map_err(|error| {
        let mut issues = Vec::new();
        Checker { schema: schema::of(kind), expressions: false, issues: &mut issues }.object(&value);
        if issues.is_empty() {
            let path = error.path().to_string();
            let hint = format!("landfall explain {} lists the fields", kind.plural());
            issues.push(Issue::new(
                if path == "." { String::new() } else { path },
                error.into_inner().to_string(),
                hint,
            ));
        }
        if kind == Kind::Secret {
            issues.iter_mut().for_each(without_value);
        }
        issues
    })
}

/// A fault in a secret's value is reported without the value.
fn without_value(issue: &mut Issue) {
    if issue.path.starts_with("spec.data") {
        issue.path = "spec.data".to_owned();
        issue.message = "a secret's data is a mapping of keys to text".to_owned();
        issue.hint = "put each value in quotes".to_owned();
    }
}

/// `apiVersion` and `kind`, which decide how the rest is read.
fn head(value: &Value) -> Result<Kind, Issue> {
    let Some(map) = value.as_object() else {
        let hint = "a document needs apiVersion, kind, metadata and spec";
        return Err(Issue::new("", format!("a document is a mapping, not {}", describe(value)), hint));
    };
    let text = |field: &str| map.get(field).and_then(Value::as_str);
    let version_hint = format!("write apiVersion: {API_VERSION}");
    match text("apiVersion") {
        Some(API_VERSION) => {}
        Some(other) => {
            return Err(Issue::new("apiVersion", format!("apiVersion \"{other}\" is not supported"), version_hint));
        }
        None => return Err(Issue::new("apiVersion", "apiVersion is missing", version_hint)),
    }
    let names = Kind::ALL.map(Kind::as_str);
    let Some(kind) = text("kind") else {
        return Err(Issue::new("kind", "kind is missing", format!("write one of {}", names.join(", "))));
    };
    Kind::ALL.into_iter().find(|k| k.as_str() == kind).ok_or_else(|| {
        Issue::new("kind", format!("kind \"{kind}\" is not supported"), suggest(kind, &names, "The kinds are"))
    })
}

/// Checks one item of a template's list, in which expressions may stand for any value.
pub(crate) fn action(tree: &Value, path: &str, expressions: bool, issues: &mut Vec<Issue>) {
    let schema = if expressions { schema::list_item() } else { schema::action() };
    let node = schema.root.clone();
    Checker { schema, expressions, issues }.node(tree, &node, path);
}

struct Checker<'a> {
    schema: &'a Schema,
    expressions: bool,
    issues: &'a mut Vec<Issue>,
}

impl Checker<'_> {
    fn object(&mut self, value: &Value) {
        let root = self.schema.root.clone();
        self.node(value, &root, "");
    }

    fn say(&mut self, path: &str, message: String, hint: impl Into<String>) {
        self.issues.push(Issue::new(path, message, hint));
    }

    fn node(&mut self, value: &Value, schema: &Value, path: &str) {
        if self.expressions && value.as_str().is_some_and(has_expression) {
            return;
        }
        let Some(keys) = schema.as_object() else { return };
        if let Some(reference) = keys.get("$ref").and_then(Value::as_str) {
            let name = reference.rsplit('/').next().unwrap_or_default();
            let text = match value {
                Value::String(text) => Some(text.clone()),
                // In quotes it would be refused for the same reason: it has no unit.
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            };
            match text.and_then(|text| scalar(name, &text)) {
                Some(Err(message)) => return self.say(path, message, ""),
                Some(Ok(())) if value.is_string() => return,
                _ => {}
            }
            if name.ends_with("DiskSelector") && !value.is_object() {
                let hint = "write a field and a value, such as { serial: S4EVNF0M1 } or { size: \">= 400GB\" }";
                return self.wrong_type(value, "a disk selector", hint.to_owned(), path);
            }
            let target = self.schema.definition(name).cloned().unwrap_or(Value::Bool(true));
            return self.node(value, &target, path);
        }
        if let Some(all) = keys.get("allOf").and_then(Value::as_array) {
            all.iter().for_each(|part| self.node(value, part, path));
        }
        if let Some(any) = keys.get("anyOf").and_then(Value::as_array) {
            // `Option<T>`: T or null.
            if value.is_null() {
                return;
            }
            if let Some(part) = any.iter().find(|part| part.get("type").and_then(Value::as_str) != Some("null")) {
                return self.node(value, part, path);
            }
        }
        let words = words(keys);
        if !words.is_empty() {
            match value.as_str() {
                Some(text) if words.contains(&text) => {}
                Some(text) => {
                    let hint = suggest(text, &words, "Write one of");
                    self.say(path, format!("\"{text}\" is not an allowed value"), hint);
                }
                None => self.wrong_type(value, "a word", format!("write one of {}", words.join(", ")), path),
            }
            return;
        }
        self.typed(value, keys, path);
    }

    fn typed(&mut self, value: &Value, keys: &Map<String, Value>, path: &str) {
        let types: Vec<&str> = match keys.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => return,
        };
        let fits = types.iter().any(|t| match *t {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            _ => value.is_null(),
        });
        if !fits {
            let expected = types.iter().find(|t| **t != "null").copied().unwrap_or("null");
            let (what, hint) = match expected {
                "object" if types.contains(&"string") => (
                    "a mapping or text",
                    "write names with values below it, indented, or text, whose lines begin after |",
                ),
                "object" => return self.wrong_type(value, "a mapping", hint::mapping(keys, value.is_null()), path),
                "array" => ("a list", "write [item, item], or each item on a line of its own that begins with \"- \""),
                "string" if value.is_number() || value.is_boolean() => ("text", "put it in quotes"),
                "string" => ("text", "write one value; several lines of text begin with |"),
                "integer" => ("a whole number", "write digits, without quotes"),
                "boolean" => ("true or false", "write true or false, without quotes"),
                other => (other, ""),
            };
            return self.wrong_type(value, what, hint.to_owned(), path);
        }
        match value {
            Value::Object(map) => self.fields(map, keys, path),
            Value::Array(items) => {
                if let Some(schema) = keys.get("items") {
                    for (i, item) in items.iter().enumerate() {
                        self.node(item, schema, &format!("{path}[{i}]"));
                    }
                }
            }
            Value::String(text) => self.text(text, keys, path),
            Value::Number(number) => {
                let minimum = keys.get("minimum").and_then(Value::as_f64).unwrap_or(f64::MIN);
                let maximum = keys.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX);
                if number.as_f64().is_some_and(|n| n < minimum || n > maximum) {
                    self.say(path, format!("{number} is out of range"), format!("write {minimum} to {maximum}"));
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, keys: &Map<String, Value>, path: &str) {
        match keys.get("format").and_then(Value::as_str) {
            Some("uuid") if text.parse::<uuid::Uuid>().is_err() => {
                let hint = "write 32 hexadecimal digits such as 2c5f3d0e-0f4b-4f0e-9d0a-5f1a2b3c4d5e";
                self.say(path, format!("\"{text}\" is not a UUID"), hint);
            }
            Some("date-time") if text.parse::<jiff::Timestamp>().is_err() => {
                self.say(path, format!("\"{text}\" is not a time"), "write it as 2026-01-31T12:00:00Z");
            }
            _ => {}
        }
    }

    fn fields(&mut self, map: &Map<String, Value>, keys: &Map<String, Value>, path: &str) {
        let known = keys.get("properties").and_then(Value::as_object);
        let names: Vec<&str> = known.map(|k| k.keys().map(String::as_str).collect()).unwrap_or_default();
        let other = keys.get("additionalProperties");
        for (name, value) in map {
            let below = join(path, name);
            match (known.and_then(|k| k.get(name)), other) {
                (Some(schema), _) => self.node(value, schema, &below),
                (None, Some(Value::Bool(false))) => {
                    let deeper = known.and_then(|known| hint::belongs_to(name, known, self.schema));
                    let hint = match deeper.filter(|_| nearest(name, &names).is_none()) {
                        Some(field) => format!("{field} has a field of this name: write it below {field}, indented"),
                        None => suggest(name, &names, "The fields are"),
                    };
                    self.say(&below, format!("there is no field \"{name}\" here"), hint);
                }
                (None, Some(schema)) => self.node(value, schema, &below),
                (None, None) => {}
            }
        }
        for name in required(keys) {
            if !map.contains_key(name) {
                let below = join(path, name);
                self.say(&below, format!("the field \"{name}\" is missing"), self.schema.explanation(keys, name));
            }
        }
        // "Exactly one of these keys", as an action's type is written.
        let alternatives: Vec<&str> = keys
            .get("oneOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .flat_map(required)
            .collect();
        if !alternatives.is_empty() {
            let found: Vec<&str> = alternatives.iter().copied().filter(|name| map.contains_key(*name)).collect();
            match found.as_slice() {
                [_] => {}
                [] => {
                    let hint = "add one, such as writeImage; `landfall explain template.spec.actions` prints all";
                    self.say(path, "this action has no operation".to_owned(), hint);
                }
                [_, second, ..] => {
                    let below = join(path, second);
                    let message =
                        format!("an action must do exactly one thing, but this one has {}", found.join(" and "));
                    self.say(&below, message, "make them separate items of the list, each with its own name");
                }
            }
        }
    }

    fn wrong_type(&mut self, value: &Value, expected: &str, hint: String, path: &str) {
        let message = match value {
            Value::Null => format!("this must be {expected}, and nothing is there"),
            value => format!("this must be {expected}, not {}", describe(value)),
        };
        self.say(path, message, hint);
    }
}

fn required(keys: &Map<String, Value>) -> impl Iterator<Item = &str> {
    keys.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The words of an enumeration, in each of the three forms that schemas use.
pub(crate) fn words(keys: &Map<String, Value>) -> Vec<&str> {
    if let Some(word) = keys.get("const").and_then(Value::as_str) {
        return vec![word];
    }
    if let Some(words) = keys.get("enum").and_then(Value::as_array) {
        return words.iter().filter_map(Value::as_str).collect();
    }
    let parts = keys.get("oneOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(Value::as_object).filter(|p| !p.contains_key("properties")).flat_map(words).collect()
}

/// Checks a scalar by the type that will parse it; `None` if `name` is not such a type.
fn scalar(name: &str, text: &str) -> Option<Result<(), String>> {
    fn judge<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Option<Result<(), String>> {
        Some(text.parse::<T>().map(drop).map_err(|e| e.to_string()))
    }
    match name.strip_prefix(schema::TEMPLATE_PREFIX).unwrap_or(name) {
        "Digest" => judge::<Digest>(text),
        "MacAddr" => judge::<MacAddr>(text),
        "DurationSpec" => judge::<DurationSpec>(text),
        "SizeSpec" => judge::<SizeSpec>(text),
        _ => None,
    }
}
