//! kubectl's output templates: text with expressions in braces, `{range}` and `{end}`.
//!
//! The expressions are JSONPath; kubectl's dialect of it (no `$` in front, names with dashes, `\.` inside a name) is turned
//! into RFC 9535 and evaluated by a crate.

use std::str::FromStr;

use serde_json::Value;
use serde_json_path::JsonPath;

/// Nested `{range}`s at most; a bound costs nothing.
const MAX_DEPTH: usize = 16;

/// One expression, such as `.metadata.name`.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    /// Of the whole document, also inside a range: it began with `$`.
    root: bool,
    path: JsonPath,
}

impl Expression {
    /// What it finds in `here`, or in `root` if it began with `$`.
    fn find<'a>(&self, root: &'a Value, here: &'a Value) -> Vec<&'a Value> {
        self.path.query(if self.root { root } else { here }).all()
    }

    /// Everything it finds in a document.
    pub(crate) fn all<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        self.find(document, document)
    }
}

impl FromStr for Expression {
    type Err = String;
    /// `.metadata.name`, `{.metadata.name}` or `metadata.name`.
    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.trim();
        let inner = inner.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inner).trim();
        let (root, translated) = translated(inner)?;
        let path = JsonPath::parse(&translated)
            .map_err(|error| format!("\"{text}\" is not a path: {error}; an example is .metadata.name"))?;
        Ok(Self { root, path })
    }
}

/// Translates kubectl's dialect to RFC 9535; returns whether it applies to the whole document.
fn translated(text: &str) -> Result<(bool, String), String> {
    let mut out = String::from("$");
    let root = text.starts_with('$');
    let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
    while !rest.is_empty() {
        if rest.starts_with('[') {
            let end = closing(rest).ok_or_else(|| format!("\"{text}\": a [ is not closed"))?;
            let (bracket, after) = rest.split_at(end);
            out.push_str(bracket);
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix("..") {
            out.push_str("..");
            // `..[` and `..*` go on as they are; a name follows as any other.
            rest = after;
            if rest.starts_with('[') {
                continue;
            }
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            if rest.is_empty() {
                // `{.}` alone is the whole; after a name a dot wants another.
                return if out == "$" {
                    Ok((root, out))
                } else {
                    Err(format!("\"{text}\": a name is missing after the ."))
                };
            }
        }
        let (name, after) = name(rest);
        match name.as_str() {
            "" => return Err(format!("\"{text}\": a name is missing after the .")),
            "*" => out.push_str("[*]"),
            _ => out.push_str(&format!("[{}]", Value::String(name))),
        }
        rest = after;
    }
    Ok((root, out))
}

/// A name up to the next `.` or `[`; `\` takes what follows as it is.
fn name(text: &str) -> (String, &str) {
    let (mut out, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                out.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (out, text.get(at..).unwrap_or_default()),
            c => out.push(c),
        }
    }
    (out, "")
}

/// One past the `]` that closes the `[` at the beginning.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            (None, _) => {}
        }
    }
    None
}

/// A whole template.
#[derive(Debug, Clone)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Print(Expression),
    Range(Expression, Vec<Part>),
}

impl FromStr for Template {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("jsonpath= needs a template, such as jsonpath={.metadata.name}".into());
        }
        // As kubectl has it: a lone path needs no braces.
        if !text.contains('{') {
            return Ok(Self(vec![Part::Print(text.parse()?)]));
        }
        let mut rest = text;
        let parts = parts(&mut rest, 0)?;
        Ok(Self(parts))
    }
}

/// Parts up to the end, or inside a range up to its `{end}`.
fn parts(rest: &mut &str, depth: usize) -> Result<Vec<Part>, String> {
    if depth > MAX_DEPTH {
        return Err(format!("more than {MAX_DEPTH} nested ranges"));
    }
    let mut out = Vec::new();
    loop {
        let Some(open) = rest.find('{') else {
            if depth > 0 {
                return Err("a {range} has no {end}".into());
            }
            if !rest.is_empty() {
                out.push(Part::Text((*rest).to_owned()));
            }
            return Ok(out);
        };
        let (before, from) = rest.split_at(open);
        if !before.is_empty() {
            out.push(Part::Text(before.to_owned()));
        }
        let close = brace(from).ok_or_else(|| format!("a {{ is not closed: {from}"))?;
        let inner = from.get(1..close).unwrap_or_default().trim();
        *rest = from.get(close + 1..).unwrap_or_default();
        if inner == "end" {
            return if depth > 0 { Ok(out) } else { Err("{end} without a {range}".into()) };
        }
        if let Some(of) = inner.strip_prefix("range").filter(|of| of.starts_with(char::is_whitespace)) {
            out.push(Part::Range(of.parse()?, parts(rest, depth + 1)?));
        } else if inner.starts_with(['"', '\'']) {
            out.push(Part::Text(literal(inner)?));
        } else if inner.is_empty() {
            return Err("{} contains no expression".into());
        } else {
            out.push(Part::Print(inner.parse()?));
        }
    }
}

/// The place of the `}` that closes the `{` at the beginning, past quoted ones.
fn brace(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

/// `"\n"` and the like.
fn literal(text: &str) -> Result<String, String> {
    let bad = || format!("{text} is not a quoted text");
    let quote = text.chars().next().ok_or_else(bad)?;
    let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).ok_or_else(bad)?;
    let (mut out, mut escaped) = (String::new(), false);
    for c in inner.chars() {
        match c {
            'n' if escaped => out.push('\n'),
            't' if escaped => out.push('\t'),
            'r' if escaped => out.push('\r'),
            c if escaped => out.push(c),
            '\\' => {
                escaped = true;
                continue;
            }
            c => out.push(c),
        }
        escaped = false;
    }
    Ok(out)
}

impl Template {
    /// The text for a document.
    pub(crate) fn render(&self, document: &Value) -> String {
        let mut out = String::new();
        render(&self.0, document, document, &mut out);
        out
    }
}

fn render(parts: &[Part], root: &Value, here: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Print(expression) => {
                out.push_str(&expression.find(root, here).into_iter().map(plain).collect::<Vec<_>>().join(" "));
            }
            Part::Range(expression, inner) => {
                for found in expression.find(root, here) {
                    render(inner, root, found, out);
                }
            }
        }
    }
}

/// A value as text: strings as they are, everything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> Value {
        json!({"items": [
            {"metadata": {"name": "a", "labels": {"x.y/z": "1", "top-rack": "r7"}}, "status": {"phase": "Failed", "n": 3}},
            {"metadata": {"name": "b"}, "status": {"phase": "Available", "conditions": [{"type": "Connected", "status": "True"}]}}
        ]})
    }

    #[test]
    fn templates_print_what_kubectls_users_expect() {
        for (template, text) in [
            ("{.items[*].metadata.name}", "a b"),
            (".items[*].metadata.name", "a b"),
            ("{$.items[0].metadata.name}", "a"),
            ("{.items[?(@.status.phase==\"Failed\")].metadata.name}", "a"),
            ("{.items[?(@.status.phase=='Failed' || @.metadata.name=='b')].metadata.name}", "a b"),
            ("{.items[1].status.conditions[?(@.type==\"Connected\")].status}", "True"),
            ("{.items[0].metadata.labels.x\\.y/z}", "1"),
            ("{.items[0].metadata.labels['x.y/z']}", "1"),
            ("{.items[0].metadata.labels.top-rack}", "r7"),
            ("{.items[-1:].metadata.name}", "b"),
            ("{..phase}", "Failed Available"),
            ("{.items[0].status}", "{\"phase\":\"Failed\",\"n\":3}"),
            ("{.items[0].status.n}", "3"),
            ("{.items[*].none}", ""),
            ("n: {.items[0].metadata.name}!", "n: a!"),
            ("{range .items[*]}{.metadata.name}{\"\\t\"}{.status.phase}{'\\n'}{end}", "a\tFailed\nb\tAvailable\n"),
            (
                "{range .items[*]}{range .status.conditions[*]}{@.type}:{end}{$.items[0].metadata.name} {end}",
                "a Connected:a ",
            ),
            ("{\"}\"}{.items[?(@.metadata.name==\"}\")]}", "}"),
        ] {
            assert_eq!(template.parse::<Template>().unwrap().render(&list()), text, "{template}");
        }
        assert_eq!("{.}".parse::<Template>().unwrap().render(&json!(1)), "1");
    }

    #[test]
    fn invalid_templates_are_refused() {
        for bad in
            ["", "{.a", "{}", "{end}", "{range .a}", "{.a..}", "{.a[0}", "{.a.}", "{.a[?(}", "{\"x}", "{range .a}{.b}"]
        {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
        assert!("{range .a}".repeat(40).parse::<Template>().is_err());
    }
}
