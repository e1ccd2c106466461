//! YAML files parsed into trees that keep the line of every field.
//!
//! Typed deserialisation straight from YAML stops at the first fault and forgets lines behind `#[serde(flatten)]`. A
//! located tree is checked against the schema as a whole, so one check of a file finds all its faults.

mod tree;

use std::collections::BTreeMap;

use serde_json::Value;

pub use tree::{DuplicateKeys, YamlField, YamlNode, YamlValue};

use crate::issue::{Issue, join};
use crate::{Document, ErrorCode, Problem, check};

/// Largest file that is read, bytes. Documents are a few kilobytes; the coordinator takes 1 MiB a document.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// A document and the place it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Sourced {
    /// The document; parsed and valid.
    pub document: Document,
    /// Its place.
    pub origin: Origin,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file's name as given, `-` for standard input.
    pub source: String,
    /// The document's number within the file, from 1.
    pub document: usize,
    /// Line of every field, from 1.
    lines: BTreeMap<String, u64>,
}

impl Origin {
    /// Line, from 1, of the field at `path`, or of the nearest field around it that the file has.
    pub fn line(&self, path: &str) -> u64 {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(cut) => path = &path[..cut],
                None => return self.lines.get("").copied().unwrap_or(1),
            }
        }
    }
    /// `file:line (document 2) field`, for people and for editors that jump to `file:line`.
    pub fn place(&self, path: &str) -> String {
        let mut out = format!("{}:{}", self.source, self.line(path));
        if self.document > 1 {
            out.push_str(&format!(" (document {})", self.document));
        }
        if !path.is_empty() {
            out.push(' ');
            out.push_str(path);
        }
        out
    }
    fn problem(&self, issue: Issue) -> Problem {
        let place = self.place(&issue.path);
        issue.into_problem().at(place)
    }
}

impl Document {
    /// Reads every document of a YAML (or JSON) file; `source` is the name shown in problems. Empty documents are passed
    /// over. All faults of all documents are reported, each with file, line and field.
    ///
    /// # Errors
    /// At least one [`Problem`]: `InvalidDocument` or `InvalidTemplate`, its subject `file:line field`.
    pub fn from_yaml_str(source: &str, text: &str) -> Result<Vec<Sourced>, Vec<Problem>> {
        let trees = yaml_trees(source, text, DuplicateKeys::Refused).map_err(|problem| vec![*problem])?;
        let (mut documents, mut problems) = (Vec::new(), Vec::new());
        for (index, tree) in trees.into_iter().enumerate() {
            let mut origin = Origin { source: source.to_owned(), document: index + 1, lines: BTreeMap::new() };
            let value = with_lines(tree, String::new(), &mut origin.lines);
            match check::document(value).and_then(|document| {
                let issues = document.issues();
                if issues.is_empty() { Ok(document) } else { Err(issues) }
            }) {
                Ok(document) => documents.push(Sourced { document, origin }),
                Err(issues) => problems.extend(issues.into_iter().map(|issue| origin.problem(issue))),
            }
        }
        if problems.is_empty() { Ok(documents) } else { Err(problems) }
    }
}

/// Reads every document of a YAML (or JSON) file, of whatever kind it is; `source` is the name shown in the problem. An
/// empty document is a null.
///
/// # Errors
/// A [`Problem`] with code `InvalidDocument`, its subject `file:line:column`: the text is not YAML, or is longer than
/// [`MAX_FILE_BYTES`].
pub fn yaml_trees(source: &str, text: &str, duplicates: DuplicateKeys) -> Result<Vec<YamlNode>, Box<Problem>> {
    if text.len() > MAX_FILE_BYTES {
        let message = format!("the file has {} bytes; the limit is {MAX_FILE_BYTES}", text.len());
        return Err(Box::new(Problem::new(ErrorCode::InvalidDocument, message).at(source).hint("split it")));
    }
    tree::read(text, duplicates).map_err(|error| Box::new(syntax_problem(source, &error)))
}

/// The only document of a text that is part of another; what is wrong with it, with its line, from 1. A key that stands twice is
/// taken: other programs take the last.
pub(crate) fn one_tree(text: &str) -> Result<YamlNode, (u64, String)> {
    let mut trees = tree::read(text, DuplicateKeys::Kept)
        .map_err(|error| (error.location().map_or(1, |at| at.line().max(1)), fault(&error)))?;
    match (trees.pop(), trees.pop()) {
        (Some(tree), None) => Ok(tree),
        (Some(second), Some(_)) => Err((second.line, "a second document begins there".to_owned())),
        (None, _) => {
            let value = YamlValue::Scalar { value: Value::Null, written: None };
            Ok(YamlNode { line: 1, column: 1, value })
        }
    }
}

/// The node's value; the line of every field below it goes to `lines`.
fn with_lines(node: YamlNode, path: String, lines: &mut BTreeMap<String, u64>) -> Value {
    let line = node.line;
    let value = match node.value {
        YamlValue::Scalar { value, .. } => value,
        YamlValue::List(items) => {
            items.into_iter().enumerate().map(|(i, item)| with_lines(item, format!("{path}[{i}]"), lines)).collect()
        }
        YamlValue::Map(fields) => fields
            .into_iter()
            .map(|YamlField { name, line, node }| {
                let below = join(&path, &name);
                // A field is where its name stands.
                (name, with_lines(YamlNode { line, ..node }, below, lines))
            })
            .collect(),
    };
    lines.insert(path, line);
    value
}

fn syntax_problem(source: &str, error: &serde_saphyr::Error) -> Problem {
    let place = match error.location() {
        Some(at) if at.line() > 0 => format!("{source}:{}:{}", at.line(), at.column()),
        _ => source.to_owned(),
    };
    let text = fault(error);
    let hint = if text.contains("duplicate") {
        "remove one of the two: a mapping has each key once"
    } else if text.starts_with("tabs ") {
        "indent with spaces"
    } else {
        "check the indentation, and quote values that contain \": \", \"#\" or \"{{\""
    };
    Problem::new(ErrorCode::InvalidDocument, format!("this is not YAML: {text}")).at(place).hint(hint)
}

/// What the library says without a place.
fn fault(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    // The place is the subject; the library's own copy of it would say it twice.
    // And what a program could set is no help to a person.
    let ends = [" at line ", ", set DuplicateKeyPolicy"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    text.get(..end).unwrap_or(&text).trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "\
apiVersion: landfall.dev/v1alpha1
kind: Machine
metadata: {name: node-1}
spec:
  identity:
    macs:
      - 52:54:00:00:00:01
";

    fn problems(text: &str) -> Vec<Problem> {
        Document::from_yaml_str("m.yaml", text).expect_err("refused")
    }

    #[test]
    fn every_nonempty_document_of_a_file_is_read() {
        let text = format!("---\n{MACHINE}---\n---\n{}", MACHINE.replace("node-1", "node-2"));
        let read = Document::from_yaml_str("m.yaml", &text).unwrap();
        let names: Vec<_> = read.iter().map(|s| s.document.metadata().name.as_str()).collect();
        assert_eq!(names, ["node-1", "node-2"]);
        assert_eq!(read[0].origin.place("spec.identity.macs[0]"), "m.yaml:8 spec.identity.macs[0]");
    }

    #[test]
    fn an_unknown_field_is_named_with_line_and_suggestion() {
        let problems = problems(&MACHINE.replace("macs:", "mac:"));
        let unknown = &problems[0];
        assert_eq!(unknown.subject, "m.yaml:6 spec.identity.mac");
        assert_eq!(unknown.message, "there is no field \"mac\" here");
        assert_eq!(unknown.hint, "did you mean \"macs\"? The fields are macs, smbiosUuid, serial");
    }

    #[test]
    fn faults_of_all_documents_are_reported_at_once() {
        let bad = MACHINE.replace("52:54:00:00:00:01", "nonsense");
        let text = format!("{bad}---\n{}", MACHINE.replace("name: node-1", "name: Node_1"));
        let found = problems(&text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].subject, "m.yaml:7 spec.identity.macs[0]");
        assert!(found[0].message.contains("is not a MAC address"), "{}", found[0].message);
        assert_eq!(found[1].subject, "m.yaml:11 (document 2) metadata.name");
    }

    #[test]
    fn broken_yaml_says_where() {
        let found = problems("apiVersion: landfall.dev/v1alpha1\nkind: [Machine\nmetadata: {name: a}\n");
        assert!(found[0].subject.starts_with("m.yaml:"), "{found:?}");
        assert!(found[0].message.starts_with("this is not YAML: "), "{found:?}");
    }

    #[test]
    fn a_duplicate_key_is_refused() {
        let found = problems(&MACHINE.replace("kind: Machine\n", "kind: Machine\nkind: Machine\n"));
        assert!(found[0].message.contains("duplicate"), "{found:?}");
    }

    #[test]
    fn an_unquoted_number_in_a_text_field_gets_a_hint() {
        let found = problems(&format!("{MACHINE}    serial: 12345\n"));
        assert_eq!(found[0].subject, "m.yaml:8 spec.identity.serial");
        assert!(found[0].hint.contains("quotes"), "{found:?}");
    }
}
