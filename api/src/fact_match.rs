//! Expressions over facts, as enrolment rules and pools use them: the disk selectors' operators, on any fact.

use std::{cmp::Ordering, collections::BTreeMap, sync::OnceLock};

use serde_json::Value;

use crate::facts::schema::{resolved, schema_of};
use crate::selector::{EQUAL, OPERATORS, glob, parse_size};
use crate::{MachineFacts, nearest};

/// An invalid condition of a rule.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    /// A path without a fact.
    #[error("\"{path}\" is not a fact{}", did_you_mean(.near.as_ref()))]
    UnknownFact { path: String, near: Option<String> },
    /// An expression that does not parse.
    #[error("{path}: \"{expression}\" is not valid; write a value, or one of = != < <= > >= in glob and a value")]
    BadExpression { path: String, expression: String },
    /// An operator that compares numbers, without a number.
    #[error("{path}: \"{expression}\" must compare with a number; write one, with or without a unit such as GiB")]
    NoNumber { path: String, expression: String },
}

fn did_you_mean(near: Option<&String>) -> String {
    near.map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

/// One parsed expression.
enum Test<'a> {
    Compare(&'static [Ordering], u64),
    Is(Vec<&'a str>),
    IsNot(&'a str),
    Glob(&'a str),
}

/// Whether every condition holds for these facts (`MachineFacts` as JSON). A repeated fact, such as
/// `disks.id.sizeBytes`, matches if one of its values matches; with `!=` if all do. A missing fact never matches.
///
/// # Errors `FactError` if a condition is invalid, independent of the facts.
pub fn facts_match(when: &BTreeMap<String, String>, facts: &Value) -> Result<bool, FactError> {
    let tests: Vec<_> =
        when.iter().map(|(path, text)| Ok((path, parse(path, text)?))).collect::<Result<_, FactError>>()?;
    Ok(tests.iter().all(|(path, test)| {
        let mut found = Vec::new();
        values(facts, path, &mut found);
        match test {
            Test::IsNot(_) => !found.is_empty() && found.iter().all(|value| holds(test, value)),
            _ => found.iter().any(|value| holds(test, value)),
        }
    }))
}

/// What is wrong with each condition, by path.
pub(crate) fn faults(when: &BTreeMap<String, String>) -> Vec<(String, FactError)> {
    when.iter().filter_map(|(path, text)| Some((path.clone(), parse(path, text).err()?))).collect()
}

fn parse<'a>(path: &str, text: &'a str) -> Result<Test<'a>, FactError> {
    if !known(path) {
        let paths: Vec<&str> = paths().iter().map(String::as_str).collect();
        let near = nearest(path, &paths).map(str::to_owned);
        return Err(FactError::UnknownFact { path: path.to_owned(), near });
    }
    let text = text.trim();
    let bad = || FactError::BadExpression { path: path.to_owned(), expression: text.to_owned() };
    let word = |name: &str| text.strip_prefix(name).filter(|rest| rest.starts_with(char::is_whitespace)).map(str::trim);
    if let Some(list) = word("in") {
        let items: Vec<&str> = list.split(',').map(str::trim).collect();
        return if items.iter().any(|item| item.is_empty()) { Err(bad()) } else { Ok(Test::Is(items)) };
    }
    if let Some(pattern) = word("glob") {
        return if pattern.is_empty() { Err(bad()) } else { Ok(Test::Glob(pattern)) };
    }
    let (operator, orderings, operand) = OPERATORS
        .iter()
        .find_map(|(name, orderings)| text.strip_prefix(name).map(|rest| (*name, *orderings, rest.trim())))
        .unwrap_or(("", EQUAL, text));
    match operator {
        _ if operand.is_empty() => Err(bad()),
        "<" | "<=" | ">" | ">=" => {
            let number = parse_size(operand)
                .map_err(|_| FactError::NoNumber { path: path.to_owned(), expression: text.to_owned() })?;
            Ok(Test::Compare(orderings, number))
        }
        "!=" => Ok(Test::IsNot(operand)),
        _ => Ok(Test::Is(vec![operand])),
    }
}

fn holds(test: &Test<'_>, value: &Value) -> bool {
    let number = value.as_u64();
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let same = |wanted: &str| text == wanted || (number.is_some() && number == parse_size(wanted).ok());
    match test {
        Test::Compare(orderings, wanted) => number.is_some_and(|number| orderings.contains(&number.cmp(wanted))),
        Test::Is(wanted) => wanted.iter().any(|wanted| same(wanted)),
        Test::IsNot(wanted) => !same(wanted),
        Test::Glob(pattern) => glob(pattern, &text),
    }
}

/// Every scalar at that path; lists are walked through.
fn values<'v>(from: &'v Value, path: &str, out: &mut Vec<&'v Value>) {
    match from {
        Value::Array(items) => items.iter().for_each(|item| values(item, path, out)),
        Value::Object(fields) => {
            let (first, rest) = path.split_once('.').unwrap_or((path, ""));
            if let Some(field) = fields.get(first) {
                values(field, rest, out);
            }
        }
        Value::Null => {}
        scalar if path.is_empty() => out.push(scalar),
        _ => {}
    }
}

fn known(path: &str) -> bool {
    paths().iter().any(|known| known == path)
}

/// Every path of a fact that is known when a machine enrols: what is on its disks is read later.
fn paths() -> &'static [String] {
    static PATHS: OnceLock<Vec<String>> = OnceLock::new();
    PATHS.get_or_init(|| {
        let mut out = Vec::new();
        walk(schema_of::<MachineFacts>(), "", &mut out);
        out
    })
}

fn walk(schema: &Value, path: &str, out: &mut Vec<String>) {
    let at = resolved(schema_of::<MachineFacts>(), schema);
    if let Some(items) = at.get("items") {
        return walk(items, path, out);
    }
    let Some(fields) = at.get("properties").and_then(Value::as_object) else { return out.push(path.to_owned()) };
    for (name, field) in fields {
        if path != "disks" || name != "contents" {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(field, &path, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiskFacts, TpmFacts};

    fn facts() -> Value {
        let mut facts = MachineFacts { memory_bytes: 64 << 30, ..MachineFacts::default() };
        facts.smbios.manufacturer = "Dell Inc.".into();
        facts.cpu.logical = 16;
        facts.cpu.flags = vec!["avx2".into(), "vmx".into()];
        facts.tpm = Some(TpmFacts { version: 2, ..TpmFacts::default() });
        for gb in [480, 2000] {
            let mut disk = DiskFacts { transport: "nvme".into(), ..DiskFacts::default() };
            disk.id.size_bytes = gb * 1_000_000_000;
            facts.disks.push(disk);
        }
        serde_json::to_value(facts).unwrap()
    }

    fn check(path: &str, expression: &str) -> Result<bool, FactError> {
        let when = BTreeMap::from([(path.to_owned(), expression.to_owned())]);
        assert_eq!(faults(&when).pop().map(|(_, fault)| fault), facts_match(&when, &Value::Null).err());
        facts_match(&when, &facts())
    }

    #[test]
    fn every_operator_does_what_it_says_on_any_fact() {
        for (path, expression, matches) in [
            ("smbios.manufacturer", "Dell Inc.", true),
            ("smbios.manufacturer", "glob Dell*", true),
            ("smbios.manufacturer", "in HPE, Dell Inc.", true),
            ("smbios.manufacturer", "!= Dell Inc.", false),
            ("memoryBytes", ">= 64GiB", true),
            ("memoryBytes", "> 64GiB", false),
            ("memoryBytes", "= 64 GiB", true),
            ("cpu.logical", "< 17", true),
            ("disks.id.sizeBytes", "> 1TB", true),
            ("disks.id.sizeBytes", "> 3TB", false),
            ("disks.transport", "!= nvme", false),
            ("disks.transport", "!= sata", true),
            ("disks.rotational", "false", true),
            ("smbios.serial", "glob ?*", false),
            ("cpu.flags", "vmx", true),
            ("cpu.flags", "svm", false),
            ("tpm.version", ">= 2", true),
            ("memory.modules.kind", "DDR5", false),
            ("devices.class", "display", false),
            ("firmware.secureBoot", "!= true", false),
            ("smbios.manufacturer", "> 3", false),
        ] {
            assert_eq!(check(path, expression), Ok(matches), "{path}: {expression}");
        }
    }

    #[test]
    fn what_does_not_read_says_where_and_what_to_write() {
        assert!(check("smbios.manufactuer", "x").unwrap_err().to_string().contains("did you mean smbios.manufacturer"));
        for path in ["", "smbios", "disks.id", "smbios.serial.x", "disks.contents.table"] {
            assert!(matches!(check(path, "x"), Err(FactError::UnknownFact { .. })), "{path}");
        }
        for expression in ["", "=", "in a,,b", "!="] {
            assert!(check("smbios.serial", expression).is_err(), "{expression}");
        }
        assert!(matches!(check("memoryBytes", "> much"), Err(FactError::NoNumber { .. })));
    }

    #[test]
    fn every_condition_must_hold_and_none_is_every_machine() {
        let both = |memory: &str| {
            BTreeMap::from([("memoryBytes".to_owned(), memory.to_owned()), ("cpu.logical".to_owned(), "16".to_owned())])
        };
        assert_eq!(facts_match(&both("> 1GiB"), &facts()), Ok(true));
        assert_eq!(facts_match(&both("> 1TiB"), &facts()), Ok(false));
        assert_eq!(facts_match(&BTreeMap::new(), &facts()), Ok(true));
    }
}
