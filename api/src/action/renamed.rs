//! Keys that actions had in earlier versions: what was stored then, or lies in a repository of templates, keeps its meaning.

use serde::{Deserialize as _, Deserializer};
use serde_json::Value;

/// The key that was, and the one that took its place. Every value of the first must mean the same under the second.
const RENAMED: [(&str, &str); 1] = [("clearDisks", "wipe")];

/// The key of today.
pub(super) fn current(key: &str) -> &str {
    RENAMED.into_iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| new)
}

/// Reads a template's list. Its items stay trees, so the keys are renamed here: what follows knows those of today alone.
pub(crate) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let mut items = Vec::<Value>::deserialize(deserializer)?;
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        for (old, new) in RENAMED {
            // An item that has both is left to the check of "exactly one".
            if !item.contains_key(new)
                && let Some(spec) = item.shift_remove(old)
            {
                item.insert(new.to_owned(), spec);
            }
        }
    }
    Ok(items)
}
