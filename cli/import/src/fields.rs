//! A mapping of a source file, read field by field. What no code asked for is reported when the reader is done, so that
//! nothing is left out silently.

use std::collections::BTreeSet;

use landfall_api::{YamlField, YamlNode, YamlValue};
use serde_json::Value;

use crate::report::Report;

/// The fields of one mapping.
#[derive(Debug)]
pub(crate) struct Fields<'n> {
    /// The line of the mapping.
    pub(crate) line: u64,
    fields: &'n [YamlField],
    read: BTreeSet<&'n str>,
}

/// A text and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) line: u64,
}

impl<'n> Fields<'n> {
    /// Of a mapping; `None` of anything else.
    pub(crate) fn of(node: &'n YamlNode) -> Option<Self> {
        match &node.value {
            YamlValue::Map(fields) => Some(Self { line: node.line, fields, read: BTreeSet::new() }),
            _ => None,
        }
    }

    /// A field's value; `None` if it is missing or null.
    pub(crate) fn get(&mut self, name: &str) -> Option<&'n YamlNode> {
        // Of a key that stands twice the last.
        let field = self.fields.iter().rfind(|field| field.name == name)?;
        self.read.insert(&field.name);
        (!is_null(&field.node)).then_some(&field.node)
    }

    /// Whether there is a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().rfind(|field| field.name == name).is_some_and(|field| !is_null(&field.node))
    }

    /// The line of a field's name, or of the mapping.
    pub(crate) fn line_of(&self, name: &str) -> u64 {
        self.fields.iter().rfind(|field| field.name == name).map_or(self.line, |field| field.line)
    }

    /// A scalar as the file has it.
    pub(crate) fn text(&mut self, name: &str) -> Option<Text> {
        let line = self.line_of(name);
        let text = text_of(self.get(name)?)?;
        Some(Text { text, line })
    }

    /// A truth value, also of its usual words.
    pub(crate) fn truth(&mut self, name: &str) -> Option<bool> {
        self.text(name).map(|text| is_true(&text.text))
    }

    /// The mapping in a field.
    pub(crate) fn map(&mut self, name: &str) -> Option<Self> {
        Self::of(self.get(name)?)
    }

    /// The items of a list in a field; one value that is no list counts as a list of it.
    pub(crate) fn list(&mut self, name: &str) -> &'n [YamlNode] {
        match self.get(name) {
            Some(YamlNode { value: YamlValue::List(items), .. }) => items,
            Some(node) => std::slice::from_ref(node),
            None => &[],
        }
    }

    /// The fields that were not read, and are not null. They count as read.
    pub(crate) fn rest(&mut self) -> Vec<&'n YamlField> {
        let mut rest: Vec<&'n YamlField> = Vec::new();
        for field in self.fields.iter().filter(|field| !self.read.contains(field.name.as_str())) {
            // Of a key that stands twice the last.
            rest.retain(|earlier| earlier.name != field.name);
            if !is_null(&field.node) {
                rest.push(field);
            }
        }
        self.read.extend(rest.iter().map(|field| field.name.as_str()));
        rest
    }

    /// Fields whose effect Landfall has anyway, or does not need: a note each.
    pub(crate) fn not_needed(&mut self, names: &[&str], why: &str, report: &mut Report) {
        for name in names {
            if self.get(name).is_some() {
                report.note(self.line_of(name), format!("{name} is left out: {why}"));
            }
        }
    }

    /// Fields without a counterpart: a finding each.
    pub(crate) fn no_counterpart(&mut self, names: &[&str], what_to_do: &str, report: &mut Report) {
        for name in names {
            if self.get(name).is_some() {
                report.todo(self.line_of(name), format!("{name} has no counterpart; {what_to_do}"));
            }
        }
    }

    /// Reports what was not read; `of` names the mapping.
    pub(crate) fn finish(mut self, of: &str, report: &mut Report) {
        for field in self.rest() {
            let message = format!("the field {} of {of} has no counterpart; check whether you need it", field.name);
            report.todo(field.line, message);
        }
    }
}

/// A scalar as the file has it; `None` of a list, a mapping and null.
pub(crate) fn text_of(node: &YamlNode) -> Option<String> {
    match &node.value {
        YamlValue::Scalar { value: Value::Null, .. } => None,
        YamlValue::Scalar { value: Value::String(text), .. } => Some(text.clone()),
        YamlValue::Scalar { value, written } => Some(written.clone().unwrap_or_else(|| value.to_string())),
        YamlValue::List(_) | YamlValue::Map(_) => None,
    }
}

/// The items of a list.
pub(crate) fn items(node: &YamlNode) -> Option<&[YamlNode]> {
    match &node.value {
        YamlValue::List(items) => Some(items),
        _ => None,
    }
}

/// Whether a word says yes, in YAML 1.1, Go or a shell.
pub(crate) fn is_true(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "true" | "t" | "yes" | "y" | "on" | "1")
}

pub(crate) fn is_null(node: &YamlNode) -> bool {
    matches!(&node.value, YamlValue::Scalar { value: Value::Null, .. })
}
