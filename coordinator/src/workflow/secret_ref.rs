//! References to secrets: what an expression such as `{{ secrets.db.password }}` leaves in a pinned list.
//!
//! No value is ever in scope while a template renders. What is, is an object that prints as a placeholder of characters
//! that no text has ([`NAME`], [`KEY`], [`END`] are Unicode noncharacters); once the scalar is rendered, whole placeholders
//! become references in their one written form, and anything else that is left of one (a filter cut it, or made it upper
//! case) is refused. Text that looks like a reference and came from anywhere else is refused too: a machine's facts must
//! not name secrets. [`resolve`] puts the values in, when an assignment is made and not before.

use std::{collections::BTreeSet, fmt, sync::Arc};

use landfall_api::ActionSpec;
use minijinja::value::{Object, ObjectRepr, Value as Scope};
use serde_json::Value;

/// Why a text with any of them is refused.
pub(super) const UNUSABLE: &str =
    "a label, a fact or a parameter contains characters that are not allowed (U+FDD0 to U+FDD2)";

/// Before a secret's name.
const NAME: char = '\u{fdd0}';
/// Between name and key.
const KEY: char = '\u{fdd1}';
/// After the key.
const END: char = '\u{fdd2}';

/// How a reference is written in a pinned list: these around `NAME.KEY`.
const OPEN: &str = "{{ secrets.";
const CLOSE: &str = " }}";

/// One value of one secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretRef {
    /// The secret's name.
    pub secret: String,
    /// The value's key.
    pub key: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OPEN}{}.{}{CLOSE}", self.secret, self.key)
    }
}

/// What expressions see as `secrets`.
#[derive(Debug)]
pub(super) struct Secrets;

#[derive(Debug)]
struct OneSecret(String);

#[derive(Debug)]
struct OneValue(String, String);

impl Object for Secrets {
    fn get_value(self: &Arc<Self>, key: &Scope) -> Option<Scope> {
        Some(Scope::from_object(OneSecret(key.as_str()?.to_owned())))
    }
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}")
    }
}

impl Object for OneSecret {
    fn get_value(self: &Arc<Self>, key: &Scope) -> Option<Scope> {
        Some(Scope::from_object(OneValue(self.0.clone(), key.as_str()?.to_owned())))
    }
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    // Half a placeholder: a secret without a key is refused.
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}{}", self.0)
    }
}

impl Object for OneValue {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}{}{KEY}{}{END}", self.0, self.1)
    }
}

fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_key(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a text holds what only [`Secrets`] may print.
pub(super) fn has_placeholder(text: &str) -> bool {
    text.contains([NAME, KEY, END])
}

/// The text without the characters that stand for secrets while a template is rendered. The label of any disk may have them, and no
/// template could be rendered for that machine.
pub fn without_placeholders(mut text: String) -> String {
    text.retain(|c| !matches!(c, NAME | KEY | END));
    text
}

/// What expressions see as a parameter of type secret: the value that `NAME.KEY` refers to.
pub(super) fn parameter(reference: &str) -> Option<Scope> {
    let (name, key) = reference.split_once('.')?;
    (is_name(name) && is_key(key)).then(|| Scope::from_object(OneValue(name.to_owned(), key.to_owned())))
}

/// A rendered text as it is pinned.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub(super) fn pinned(text: &str) -> Result<String, &'static str> {
    if text.contains(OPEN) {
        return Err("a value outside an expression looks like a reference to a secret");
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(NAME) {
        out.push_str(before);
        let parts = after.split_once(KEY).and_then(|(name, after)| {
            let (key, after) = after.split_once(END)?;
            (is_name(name) && is_key(key)).then_some((name, key, after))
        });
        let (name, key, after) = parts.ok_or("a secret cannot be changed by filters: write secrets.NAME.KEY alone")?;
        out.push_str(&SecretRef { secret: name.to_owned(), key: key.to_owned() }.to_string());
        rest = after;
    }
    if has_placeholder(rest) {
        return Err("a secret cannot be changed by filters: write secrets.NAME.KEY alone");
    }
    out.push_str(rest);
    Ok(out)
}

/// The path of a reference that stands where it would be logged or shown; `tree` is an action's.
pub(super) fn misplaced(tree: &Value) -> Option<String> {
    fn look(tree: &Value, path: &str) -> Option<String> {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match tree {
            Value::String(text) if !text.contains(OPEN) => None,
            Value::String(_) => (!ActionSpec::may_hold_secret(path)).then(|| path.to_owned()),
            Value::Array(items) => items.iter().enumerate().find_map(|(n, item)| look(item, &format!("{path}[{n}]"))),
            Value::Object(fields) => fields.iter().find_map(|(name, field)| look(field, &below(name))),
            _ => None,
        }
    }
    look(tree, "")
}

/// Splits a text at its references: what stands before each, the reference, and what is left at the end.
fn split(text: &str) -> (Vec<(&str, SecretRef)>, &str) {
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        let next = rest.split_once(OPEN).and_then(|(before, after)| {
            let (inner, after) = after.split_once(CLOSE)?;
            let (secret, key) = inner.split_once('.')?;
            (is_name(secret) && is_key(key))
                .then(|| (before, SecretRef { secret: secret.to_owned(), key: key.to_owned() }, after))
        });
        let Some((before, reference, after)) = next else { return (found, rest) };
        found.push((before, reference));
        rest = after;
    }
}

/// Every reference in a pinned tree.
pub fn references(tree: &Value) -> BTreeSet<SecretRef> {
    match tree {
        Value::String(text) => split(text).0.into_iter().map(|(_, reference)| reference).collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Object(fields) => fields.values().flat_map(references).collect(),
        _ => BTreeSet::new(),
    }
}

/// The tree with every reference replaced by what `value_of` says. What is put in is not looked at again.
///
/// # Errors
/// The first reference that `value_of` does not know.
pub fn resolve<'v>(tree: Value, value_of: &impl Fn(&SecretRef) -> Option<&'v str>) -> Result<Value, SecretRef> {
    Ok(match tree {
        Value::String(text) => {
            let (found, rest) = split(&text);
            let mut out = String::new();
            for (before, reference) in found {
                out.push_str(before);
                match value_of(&reference) {
                    Some(value) => out.push_str(value),
                    None => return Err(reference),
                }
            }
            out.push_str(rest);
            Value::String(out)
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| resolve(item, value_of)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, field)| Ok((name, resolve(field, value_of)?)))
            .collect::<Result<serde_json::Map<_, _>, SecretRef>>()?
            .into(),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_replaced_everywhere_and_values_are_not_parsed() {
        let tree =
            json!({"a": "x {{ secrets.db-1.pw }} y {{ secrets.tls.key_2 }}", "b": ["{{ secrets.db-1.pw }}"], "c": 7});
        let found: Vec<_> = references(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["{{ secrets.db-1.pw }}", "{{ secrets.tls.key_2 }}"]);
        let value_of = |r: &SecretRef| match r.key.as_str() {
            "pw" => Some("{{ secrets.tls.key_2 }}"),
            _ => Some("K"),
        };
        let resolved = resolve(tree.clone(), &value_of).unwrap();
        assert_eq!(resolved, json!({"a": "x {{ secrets.tls.key_2 }} y K", "b": ["{{ secrets.tls.key_2 }}"], "c": 7}));
        assert_eq!(resolve(tree, &|r: &SecretRef| (r.key == "pw").then_some("p")).unwrap_err().secret, "tls");
    }

    #[test]
    fn what_is_no_reference_stays_text() {
        for text in
            ["{{ secrets.}}", "{{ secrets.A.b }}", "{{ secrets.a.b", "{{secrets.a.b}}", "{{ secrets.a }} }}", ""]
        {
            assert!(references(&json!(text)).is_empty(), "{text}");
            assert_eq!(resolve(json!(text), &|_: &SecretRef| None::<&str>).unwrap(), json!(text));
        }
    }
}
