//! A template's parameter: its type, its rules, and which values keep them.

use std::fmt;

use regex_lite::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::dns_label::is_dns_label;
use crate::issue::{Issue, describe, join, suggest};

/// The longest value that is compared with a pattern, bytes: the comparison's time is the product of both lengths.
const MAX_MATCHED: usize = 4096;

/// The longest pattern, bytes.
const MAX_PATTERN: usize = 1024;

/// The largest compiled pattern, bytes: counted repetitions make much of little.
const MAX_COMPILED: usize = 256 << 10;

/// The most values of an enum: a person chooses among them.
const MAX_VALUES: usize = 256;

/// The most items of a list: each is checked.
const MAX_ITEMS: usize = 1024;

/// The most characters of a value that a refusal repeats.
const MAX_SHOWN: usize = 100;

/// One parameter. Without a type it takes any value.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parameter {
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The type of its values. Default: any value, and no rules.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ParameterType>,
    /// Used when a workflow does not state it; without a default a workflow must state it.
    pub default: Option<Value>,
    /// A regular expression that a text must match from beginning to end; at most 1024 bytes.
    pub pattern: Option<String>,
    /// The fewest characters of a text, or items of a list.
    pub min_length: Option<u64>,
    /// The most characters of a text, or items of a list.
    pub max_length: Option<u64>,
    /// The smallest integer.
    pub min: Option<i64>,
    /// The largest integer.
    pub max: Option<i64>,
    /// The words of an enum, 1 to 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// What the items of a list are. Default: anything.
    pub items: Option<ParameterItems>,
}

/// What the items of a list are.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParameterItems {
    /// The type of each item: `text`, `integer`, `boolean` or `enum`.
    #[serde(rename = "type")]
    pub kind: ParameterType,
    /// A regular expression that a text must match from beginning to end.
    pub pattern: Option<String>,
    /// The fewest characters of a text.
    pub min_length: Option<u64>,
    /// The most characters of a text.
    pub max_length: Option<u64>,
    /// The smallest integer.
    pub min: Option<i64>,
    /// The largest integer.
    pub max: Option<i64>,
    /// The words of an enum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The type of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ParameterType {
    /// Text.
    Text,
    /// A whole number of 64 bits.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list; see `items`.
    List,
    /// One of `values`.
    Enum,
    /// A reference to a Secret document's value, written `SECRET.KEY`. It may stand only where secrets may stand.
    Secret,
}

impl fmt::Display for ParameterType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::List => "list",
            Self::Enum => "enum",
            Self::Secret => "secret",
        })
    }
}

/// Why a value is refused. Nothing of a secret's value is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterFault {
    /// The parameter, the value and the rule.
    pub message: String,
    /// What to write.
    pub hint: String,
}

impl Parameter {
    /// Whether the parameter `name` may have this value.
    ///
    /// # Errors
    /// [`ParameterFault`] for the first rule that it breaks.
    pub fn check(&self, name: &str, value: &Value) -> Result<(), ParameterFault> {
        self.rules().check(&format!("parameter \"{name}\""), value, None)
    }

    /// The value that a text of a command line means. A text that the type cannot be made of stays text, and
    /// [`Parameter::check`] refuses it. Without a type: JSON where it is JSON, else text. The items of a list are JSON, or
    /// stand between commas.
    pub fn read(&self, text: &str) -> Value {
        self.rules().read(text)
    }

    /// Its rules in words, such as `1 to 8`; empty if there are none.
    pub fn rules_in_words(&self) -> String {
        self.rules().words().join("; ")
    }

    /// Its type in words, such as `list of text`.
    pub fn type_in_words(&self) -> String {
        match (self.kind, &self.items) {
            (None, _) => "any".to_owned(),
            (Some(kind), Some(items)) => format!("{kind} of {}", items.kind),
            (Some(kind), None) => kind.to_string(),
        }
    }

    /// What is wrong with the declaration, the default included.
    pub(crate) fn faults(&self, path: &str, issues: &mut Vec<Issue>) {
        let before = issues.len();
        self.rules().faults(path, issues);
        // A default is compared with rules only if they can be kept.
        if issues.len() == before
            && let Some(default) = &self.default
            && let Err(fault) = self.rules().check("the default", default, None)
        {
            issues.push(Issue::new(join(path, "default"), fault.message, fault.hint));
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            kind: self.kind,
            pattern: self.pattern.as_deref(),
            length: (self.min_length, self.max_length),
            range: (self.min, self.max),
            values: &self.values,
            items: self.items.as_ref(),
        }
    }
}

impl ParameterItems {
    fn rules(&self) -> Rules<'_> {
        Rules {
            kind: Some(self.kind),
            pattern: self.pattern.as_deref(),
            length: (self.min_length, self.max_length),
            range: (self.min, self.max),
            values: &self.values,
            items: None,
        }
    }
}

/// The rules of a parameter, or of the items of a list.
struct Rules<'a> {
    kind: Option<ParameterType>,
    pattern: Option<&'a str>,
    length: (Option<u64>, Option<u64>),
    range: (Option<i64>, Option<i64>),
    values: &'a [String],
    items: Option<&'a ParameterItems>,
}

impl Rules<'_> {
    fn faults(&self, path: &str, issues: &mut Vec<Issue>) {
        use ParameterType::{Boolean, Enum, Integer, List, Secret, Text};
        let mut say = |field: &str, message: String, hint: &str| {
            issues.push(Issue::new(join(path, field), message, hint));
        };
        let texts: &[ParameterType] = &[Text, List];
        for (field, stated, of) in [
            ("pattern", self.pattern.is_some(), &texts[..1]),
            ("minLength", self.length.0.is_some(), texts),
            ("maxLength", self.length.1.is_some(), texts),
            ("min", self.range.0.is_some(), &[Integer]),
            ("max", self.range.1.is_some(), &[Integer]),
            ("values", !self.values.is_empty(), &[Enum]),
            ("items", self.items.is_some(), &[List]),
        ] {
            if stated && !self.kind.is_some_and(|kind| of.contains(&kind)) {
                let of = of.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
                let message = match self.kind {
                    None => format!("{field} is a rule of type {of}, and the type is missing"),
                    Some(kind) => format!("{field} is a rule of type {of}, not of type {kind}"),
                };
                say(field, message, "correct the type, or remove the rule");
            }
        }
        if let Some(pattern) = self.pattern.filter(|_| self.kind == Some(Text))
            && let Err(why) = compiled(pattern)
        {
            say("pattern", why, "write a regular expression such as [a-z][a-z0-9-]*; it must match the whole value");
        }
        if let (Some(least), Some(most)) = self.length
            && least > most
        {
            say("minLength", format!("minLength {least} is more than maxLength {most}"), "swap the two");
        }
        if let (Some(least), Some(most)) = self.range
            && least > most
        {
            say("min", format!("min {least} is more than max {most}"), "swap the two");
        }
        if self.kind == Some(Enum) {
            let repeated =
                self.values.iter().enumerate().find(|(n, value)| self.values.iter().take(*n).any(|v| v == *value));
            match (self.values.len(), repeated) {
                (0, _) => say("values", "an enum needs values".into(), "list the words that it may be: values: [a, b]"),
                (n, _) if n > MAX_VALUES => {
                    let message = format!("there are {n} values; the limit is {MAX_VALUES}");
                    say("values", message, "use type: text with a pattern");
                }
                (_, Some((_, value))) => say("values", format!("\"{value}\" is listed twice"), "remove one of the two"),
                _ => {}
            }
        }
        if let Some(items) = self.items.filter(|_| self.kind == Some(List)) {
            if matches!(items.kind, List | Secret) {
                let message = format!("the items of a list cannot be of type {}", items.kind);
                let hint = format!("write {Text}, {Integer}, {Boolean} or {Enum}");
                say("items.type", message, &hint);
            } else {
                items.rules().faults(&join(path, "items"), issues);
            }
        }
    }

    /// `subject` begins the message, such as `parameter "release"`.
    /// `pattern` is its own, compiled, where that was done already.
    fn check(&self, subject: &str, value: &Value, pattern: Option<&Pattern>) -> Result<(), ParameterFault> {
        let Some(kind) = self.kind else { return Ok(()) };
        let fault =
            |message: String, hint: String| Err(ParameterFault { message: format!("{subject} {message}"), hint });
        let wrong_type = |example: &str| {
            fault(format!("is {}, and its type is {kind}", cut(&describe(value))), format!("write {example}"))
        };
        match (kind, value) {
            (ParameterType::Text, Value::String(text)) => {
                let length = text.chars().count() as u64;
                if let Some(why) = outside(self.length, length, "minLength", "maxLength") {
                    let is = format!("is \"{}\", which has {length} characters; {why}", cut(text));
                    return fault(is, format!("write text: {}", self.words().join("; ")));
                }
                self.matches(subject, text, pattern)
            }
            (ParameterType::Text, _) => wrong_type("text"),
            (ParameterType::Integer, Value::Number(number)) => match number.as_i64() {
                None => wrong_type("a whole number, such as 42"),
                Some(number) => match outside(self.range, number, "min", "max") {
                    None => Ok(()),
                    Some(why) => fault(
                        format!("is {number}; {why}"),
                        format!("write a whole number: {}", self.words().join("; ")),
                    ),
                },
            },
            (ParameterType::Integer, _) => wrong_type("a whole number, such as 42"),
            (ParameterType::Boolean, Value::Bool(_)) => Ok(()),
            (ParameterType::Boolean, _) => wrong_type("true or false"),
            (ParameterType::Enum, Value::String(text)) if self.values.contains(text) => Ok(()),
            (ParameterType::Enum, Value::String(text)) => {
                let values: Vec<&str> = self.values.iter().map(String::as_str).collect();
                fault(
                    format!("is \"{}\", which is not among its values", cut(text)),
                    suggest(text, &values, "Write one of"),
                )
            }
            (ParameterType::Enum, _) => wrong_type(&format!("one of {}", self.values.join(", "))),
            (ParameterType::List, Value::Array(items)) => {
                if items.len() > MAX_ITEMS {
                    return fault(
                        format!("has {} items; the limit is {MAX_ITEMS}", items.len()),
                        "write a shorter list".into(),
                    );
                }
                if let Some(why) = outside(self.length, items.len() as u64, "minLength", "maxLength") {
                    let has = format!("has {} items; {why}", items.len());
                    return fault(has, format!("write a list: {}", self.words().join("; ")));
                }
                let Some(rules) = self.items.map(ParameterItems::rules) else { return Ok(()) };
                // To compile a pattern takes far longer than to match it.
                let pattern = rules.pattern.filter(|_| rules.kind == Some(ParameterType::Text)).map(compiled);
                let each = |(n, item): (usize, &Value)| {
                    rules.check(&format!("item {} of {subject}", n + 1), item, pattern.as_ref())
                };
                items.iter().enumerate().try_for_each(each)
            }
            (ParameterType::List, _) => wrong_type("a list, such as [\"a\", \"b\"]"),
            // A person may have written the secret itself, so the value is repeated nowhere.
            (ParameterType::Secret, Value::String(text)) if is_secret_reference(text) => Ok(()),
            (ParameterType::Secret, _) => {
                let hint =
                    "write SECRET.KEY, the name of a Secret document and one of its keys; never the value itself";
                fault("does not refer to a secret".into(), hint.into())
            }
        }
    }

    fn matches(&self, subject: &str, text: &str, known: Option<&Pattern>) -> Result<(), ParameterFault> {
        let Some(pattern) = self.pattern else { return Ok(()) };
        let fault = |message: String, hint: &str| Err(ParameterFault { message, hint: hint.to_owned() });
        if text.len() > MAX_MATCHED {
            let message = format!("{subject} has {} bytes; with a pattern the limit is {MAX_MATCHED}", text.len());
            return fault(message, "write a shorter value");
        }
        let own;
        let regex = match known {
            Some(known) => known,
            None => {
                own = compiled(pattern);
                &own
            }
        };
        match regex {
            Ok(regex) if regex.is_match(text) => Ok(()),
            Ok(_) => {
                let message = format!("{subject} is \"{}\", which does not match its pattern {pattern}", cut(text));
                fault(message, "write a value that matches the pattern from beginning to end")
            }
            Err(why) => fault(format!("{subject} cannot be checked: {why}"), "correct the template"),
        }
    }

    fn read(&self, text: &str) -> Value {
        let as_text = || Value::String(text.to_owned());
        match self.kind {
            None => serde_json::from_str(text).unwrap_or_else(|_| as_text()),
            Some(ParameterType::Text | ParameterType::Enum | ParameterType::Secret) => as_text(),
            Some(ParameterType::Integer) => text.trim().parse::<i64>().map_or_else(|_| as_text(), Value::from),
            Some(ParameterType::Boolean) => text.trim().parse::<bool>().map_or_else(|_| as_text(), Value::from),
            Some(ParameterType::List) => match serde_json::from_str(text) {
                Ok(list @ Value::Array(_)) => list,
                _ if text.trim().is_empty() => Value::Array(Vec::new()),
                _ => {
                    let item = |item: &str| match self.items {
                        Some(items) => items.rules().read(item.trim()),
                        None => Value::String(item.trim().to_owned()),
                    };
                    text.split(',').map(item).collect()
                }
            },
        }
    }

    fn words(&self) -> Vec<String> {
        let counted = if self.kind == Some(ParameterType::List) { " items" } else { " characters" };
        let mut out = Vec::new();
        out.extend(span(self.length, counted));
        out.extend(span(self.range, ""));
        out.extend(self.pattern.map(|pattern| format!("matches {pattern}")));
        out.extend(Some(format!("one of {}", self.values.join(", "))).filter(|_| !self.values.is_empty()));
        out.extend(self.items.map(|items| items.rules().words().join("; ")).filter(|words| !words.is_empty()));
        out
    }
}

/// `1 to 8`, `at least 1`, `at most 8`.
fn span<T: fmt::Display>(bounds: (Option<T>, Option<T>), unit: &str) -> Option<String> {
    match bounds {
        (None, None) => None,
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
    }
}

/// The bound that a number breaks.
fn outside<T: PartialOrd + fmt::Display>(
    bounds: (Option<T>, Option<T>), is: T, least: &str, most: &str,
) -> Option<String> {
    match bounds {
        (Some(bound), _) if is < bound => Some(format!("{least} is {bound}")),
        (_, Some(bound)) if is > bound => Some(format!("{most} is {bound}")),
        _ => None,
    }
}

/// A compiled pattern, or why it is none.
type Pattern = Result<Regex, String>;

/// The pattern, for whole values.
fn compiled(pattern: &str) -> Pattern {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("the pattern has {} bytes; the limit is {MAX_PATTERN}", pattern.len()));
    }
    let build = |pattern: &str| RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build();
    // First alone: `a)(b` would be one only inside the parentheses.
    build(pattern)
        .and_then(|_| build(&format!(r"\A(?:{pattern})\z")))
        .map_err(|error| format!("the pattern does not parse: {error}"))
}

/// `SECRET.KEY`.
fn is_secret_reference(text: &str) -> bool {
    text.split_once('.').is_some_and(|(name, key)| {
        is_dns_label(name)
            && (1..=63).contains(&key.len())
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
