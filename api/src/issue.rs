//! One fault of a document: where it is, what it is, and what to do. Every check of documents reports in this form.

use serde_json::Value;

use crate::{ErrorCode, Problem, nearest::nearest};

/// One fault of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issue {
    pub(crate) code: ErrorCode,
    /// Such as `spec.identity.macs[0]`; empty for the document itself.
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Issue {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (path, message, hint) = (path.into(), message.into(), hint.into());
        Self { code: ErrorCode::InvalidDocument, path, message, hint }
    }
    pub(crate) fn coded(mut self, code: ErrorCode) -> Self {
        self.code = code;
        self
    }
    pub(crate) fn into_problem(self) -> Problem {
        Problem::new(self.code, self.message).at(self.path).hint(self.hint)
    }
}

/// The first fault as the problem, the others as its causes.
pub(crate) fn one_problem(issues: Vec<Issue>) -> Problem {
    let mut issues = issues.into_iter();
    let Some(first) = issues.next() else {
        return Problem::new(ErrorCode::Internal, "a document was refused without a reason");
    };
    let mut problem = first.into_problem();
    problem.causes = issues
        .map(|issue| if issue.path.is_empty() { issue.message } else { format!("{}: {}", issue.path, issue.message) })
        .collect();
    problem
}

/// `a.b`, or `b` at the top.
pub(crate) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Whether a string holds an expression.
pub(crate) fn has_expression(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// What is wrong with JSON, without the place, which is counted from where the JSON begins.
pub(crate) fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// The text with every expression replaced; its lines stay where they are.
pub(crate) fn without_expressions(text: &str, by: char) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once("{{") {
        let (expression, after) = inside.split_once("}}").unwrap_or((inside, ""));
        out.push_str(before);
        out.push(by);
        out.extend(expression.matches('\n'));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Names that a message lists; of more it lists the first.
const MAX_LISTED: usize = 20;
const FIRST: usize = 5;

/// The names there are, as a message lists them.
pub(crate) fn listed(names: &[&str]) -> String {
    match names.len() {
        ..=MAX_LISTED => names.join(", "),
        _ => format!("{}, and others that `landfall explain` prints", names[..FIRST].join(", ")),
    }
}

/// A hint that lists what is known, and before it the name that was most likely meant.
pub(crate) fn suggest(written: &str, known: &[&str], list: &str) -> String {
    let list = format!("{list} {}", listed(known));
    match nearest(written, known) {
        Some(name) => format!("did you mean \"{name}\"? {list}"),
        None => list,
    }
}

/// The longest text that is repeated in a message, characters.
const MAX_SHOWN: usize = 60;

/// A value's type in plain words. A long text is cut, and no more than its first line is shown.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => {
            let line = s.lines().next().unwrap_or_default();
            let shown: String = line.chars().take(MAX_SHOWN).collect();
            let rest = if shown.len() < s.trim_end().len() { "…" } else { "" };
            format!("the text \"{shown}{rest}\"")
        }
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a mapping".into(),
    }
}
