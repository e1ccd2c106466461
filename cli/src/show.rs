//! The forms in which documents are shown: `-o`.

use std::str::FromStr;

use jiff::Timestamp;
use landfall_api::{Document, Kind};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::jsonpath::{Expression, Template, plain};
use crate::output::Out;
use crate::table;
use crate::table::{Columns, or_dash};

/// A form.
#[derive(Debug, Clone)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
    JsonPath(Template),
    Columns(Vec<(String, Expression)>),
}

impl FromStr for Output {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (word, argument) = match text.split_once('=') {
            Some((word, argument)) => (word, Some(argument)),
            None => (text, None),
        };
        match (word, argument) {
            ("table", None) => Ok(Self::Table),
            ("wide", None) => Ok(Self::Wide),
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("name", None) => Ok(Self::Name),
            ("jsonpath", Some(template)) => Ok(Self::JsonPath(template.parse()?)),
            ("custom-columns", Some(columns)) => Ok(Self::Columns(custom(columns)?)),
            ("jsonpath", None) => Err("an example is jsonpath={.metadata.name}".into()),
            ("custom-columns", None) => Err("an example is custom-columns=NAME:.metadata.name".into()),
            _ => {
                let known = ["table", "wide", "json", "yaml", "name", "jsonpath", "custom-columns"];
                let meant =
                    landfall_api::nearest(word, &known).map(|n| format!("did you mean {n}? ")).unwrap_or_default();
                Err(format!("{meant}the formats are {}", known.join(", ")))
            }
        }
    }
}

/// `NAME:.metadata.name,PHASE:.status.phase`; a comma inside brackets parts no columns.
fn custom(text: &str) -> Result<Vec<(String, Expression)>, String> {
    let (mut depth, mut begin, mut pieces) = (0i32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                pieces.push(text.get(begin..at).unwrap_or_default());
                begin = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(text.get(begin..).unwrap_or_default());
    let column = |piece: &str| match piece.split_once(':') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.parse()?)),
        _ => Err(format!("\"{piece}\" is not a column; write NAME:PATH, such as PHASE:.status.phase")),
    };
    pieces.into_iter().map(column).collect()
}

impl Output {
    /// Whether it is for people who watch a terminal.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// Shows one value in a format for programs; prints nothing in a format for people, which the caller handles.
    pub(crate) fn value(&self, value: &Value, out: &mut Out) -> Result<(), Failure> {
        match self {
            Self::Table | Self::Wide => {}
            Self::Json => out.json(value)?,
            Self::Yaml => out.yaml(value)?,
            Self::Name => out.line(&reference(value))?,
            Self::JsonPath(template) => text(&template.render(value), out)?,
            Self::Columns(columns) => own(columns, std::slice::from_ref(value)).print(out, true)?,
        }
        Ok(())
    }
}

impl Output {
    /// The same where it may be one of several values: JSON a line each, YAML behind `---`, columns without their names.
    pub(crate) fn one_of(&self, one: bool, value: &Value, out: &mut Out) -> Result<(), Failure> {
        match self {
            Self::Json if !one => out.json_line(value)?,
            Self::Yaml if !one => {
                out.line("---")?;
                out.yaml(value)?;
            }
            Self::Columns(columns) if !one => own(columns, std::slice::from_ref(value)).print(out, false)?,
            _ => self.value(value, out)?,
        }
        Ok(())
    }
}

/// Text of a template, with the end of line that a terminal wants.
fn text(rendered: &str, out: &mut Out) -> Result<(), Failure> {
    if !rendered.is_empty() {
        out.value(rendered.strip_suffix('\n').unwrap_or(rendered))?;
    }
    Ok(())
}

/// `machine/node-1` of a document's tree.
fn reference(document: &Value) -> String {
    let word = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = Kind::from_word(word("/kind")).map_or("?", Kind::singular);
    format!("{kind}/{}", word("/metadata/name"))
}

fn own(columns: &[(String, Expression)], documents: &[Value]) -> Columns {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut out = Columns::new(&names);
    for document in documents {
        let cell = |(_, path): &(String, Expression)| {
            or_dash(path.all(document).into_iter().map(plain).collect::<Vec<_>>().join(","))
        };
        out.row(columns.iter().map(cell).collect());
    }
    out
}

/// How a list is shown besides its form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) header: bool,
    pub(crate) labels: bool,
    /// One document was asked for by its name.
    pub(crate) one: bool,
    /// The revision of the list.
    pub(crate) revision: u64,
}

/// Shows documents; tables one a kind.
pub(crate) fn documents(output: &Output, documents: &[Document], look: Look, out: &mut Out) -> Result<(), Failure> {
    let trees = || documents.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>().map_err(unseen);
    match output {
        Output::Table | Output::Wide => {
            let mut kinds: Vec<Kind> = documents.iter().map(Document::kind).collect();
            kinds.dedup();
            for (i, kind) in kinds.iter().enumerate() {
                if i > 0 {
                    out.line("")?;
                }
                let of: Vec<&Document> = documents.iter().filter(|d| d.kind() == *kind).collect();
                let mut columns =
                    table::documents(*kind, &of, matches!(output, Output::Wide), look.labels, Timestamp::now());
                if kinds.len() > 1 {
                    columns.prefix(&format!("{}/", kind.singular()));
                }
                columns.print(out, look.header)?;
            }
        }
        Output::Yaml => {
            for (i, document) in documents.iter().enumerate() {
                if i > 0 {
                    out.line("---")?;
                }
                out.yaml(document)?;
            }
        }
        Output::Name => documents.iter().try_for_each(|d| out.line(&d.reference()))?,
        Output::Columns(columns) => own(columns, &trees()?).print(out, look.header)?,
        Output::Json | Output::JsonPath(_) => match (trees()?.as_slice(), look.one) {
            ([one], true) => output.value(one, out)?,
            (all, _) => {
                output.value(&json!({ "items": all, "metadata": { "resourceVersion": look.revision } }), out)?;
            }
        },
    }
    Ok(())
}

pub(crate) fn unseen(error: serde_json::Error) -> Failure {
    Failure::local("cannot show the response", error, "this is a fault in landfall; please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_output_format_parses_and_typos_get_a_hint() {
        for good in ["wide", "name", "jsonpath={.a}", "custom-columns=A:.a,B:.b[?(@.c==1,1)]", "custom-columns=A:b"] {
            if let Err(error) = good.parse::<Output>() {
                assert!(good.contains(",1"), "{good}: {error}");
            }
        }
        assert!("jsn".parse::<Output>().unwrap_err().contains("did you mean json?"));
        for bad in
            ["", "json=1", "jsonpath", "jsonpath=", "custom-columns=", "custom-columns=A", "custom-columns=A:.a,"]
        {
            assert!(bad.parse::<Output>().is_err(), "{bad}");
        }
    }
}
