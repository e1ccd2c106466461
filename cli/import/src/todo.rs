//! Placeholders for what a person must write. `landfall template validate` refuses both kinds: expressions know no name
//! `todo`, and documents no such field.

use serde_json::{Value, json};

/// In place of a value: `{{ todo.digest }}`.
pub(crate) fn value(name: &str) -> String {
    let word: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{{{{ todo.{} }}}}", word.trim_matches('_').to_ascii_lowercase())
}

/// In place of an action that has no counterpart.
pub(crate) fn action(name: &str, what: impl Into<String>) -> Value {
    json!({"name": name, "todo": what.into()})
}
