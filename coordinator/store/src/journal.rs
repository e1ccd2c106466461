//! What a document's history tells: every change of what people decide, by whom and when.
//!
//! Labels, spec, finalizers and deletion are what people decide; of the status only the phase is kept. Everything else in a
//! status follows from agents' reports, which the event log has, and changes every second while an image is written.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, HistoryOperation, Kind};
use serde_json::{Map, Value, json};

use super::{ChangeOp, actor};

/// Changes kept of one document; older ones are dropped as new ones come.
pub const HISTORY_PER_DOCUMENT: usize = 100;
/// How long a change is kept: a year, and a month for questions about it.
pub const HISTORY_AGE: Duration = Duration::from_secs(396 * 24 * 3600);
/// Changes kept of all documents together: a few hundred MB at most.
pub const HISTORY_TOTAL: u64 = 500_000;
/// A change larger than this many bytes of JSON is noted without its content.
const MAX_CHANGE_BYTES: usize = 16 << 10;

/// Who makes a change, and when: taken where it is asked for, not where it is carried out.
#[derive(Debug, Clone)]
pub(super) struct By {
    pub(super) who: String,
    pub(super) time: Timestamp,
}

impl By {
    pub(super) fn now() -> Self {
        Self { who: actor::current(), time: Timestamp::now() }
    }
}

/// The entry that a change makes, if it is one of what people decide. `old` is absent for a new document.
pub(super) fn entry(
    old: Option<&Document>, new: &Document, op: ChangeOp, revision: u64, by: By,
) -> Option<HistoryEntry> {
    let metadata = new.metadata();
    let operation = match op {
        ChangeOp::Added => HistoryOperation::Created,
        ChangeOp::Deleted => HistoryOperation::Deleted,
        ChangeOp::Modified if old.is_some_and(|old| unchanged(old, new)) => return None,
        ChangeOp::Modified
            if metadata.deletion_timestamp.is_some()
                && old.is_some_and(|old| old.metadata().deletion_timestamp.is_none()) =>
        {
            HistoryOperation::DeletionRequested
        }
        ChangeOp::Modified => HistoryOperation::Changed,
    };
    let change = match (op, old) {
        // What it was, so that it can be made again.
        (ChangeOp::Deleted, _) | (_, None) => visible(new),
        (_, Some(old)) => merge_diff(&visible(old), &visible(new)).unwrap_or_default(),
    };
    let bytes = change.to_string().len();
    let fits = bytes <= MAX_CHANGE_BYTES;
    Some(HistoryEntry {
        resource_version: revision,
        generation: metadata.generation,
        time: by.time,
        who: by.who,
        operation,
        change: if fits { change } else { Value::Null },
        omitted_bytes: if fits { 0 } else { bytes as u64 },
    })
}

fn phase(document: &Document) -> Option<Value> {
    let phase = match document {
        Document::Machine(machine) => serde_json::to_value(machine.status.as_ref()?.phase),
        Document::Workflow(workflow) => serde_json::to_value(workflow.status.as_ref()?.phase),
        _ => return None,
    };
    phase.ok()
}

/// Whether a change is none of what people decide. Cheap: most changes are of a status.
pub(super) fn unchanged(old: &Document, new: &Document) -> bool {
    let (a, b) = (old.metadata(), new.metadata());
    super::rules::same_spec(old, new)
        && a.labels == b.labels
        && a.finalizers == b.finalizers
        && a.deletion_timestamp == b.deletion_timestamp
        && super::counts::is_same_phase(old, new)
}

/// The part of a document that history tells of.
fn visible(document: &Document) -> Value {
    let mut tree = serde_json::to_value(document).unwrap_or_default();
    let mut spec = tree.get_mut("spec").map(Value::take).unwrap_or_default();
    if document.kind() == Kind::Secret
        && let Some(spec) = spec.as_object_mut()
    {
        // Nothing is in it; and if ever something were, it is not for here.
        spec.remove("data");
    }
    let metadata = document.metadata();
    let mut about = Map::new();
    if !metadata.labels.is_empty() {
        about.insert("labels".into(), json!(metadata.labels));
    }
    if !metadata.finalizers.is_empty() {
        about.insert("finalizers".into(), json!(metadata.finalizers));
    }
    if let Some(time) = metadata.deletion_timestamp {
        about.insert("deletionTimestamp".into(), json!(time));
    }
    let mut out = Map::new();
    if !about.is_empty() {
        out.insert("metadata".into(), about.into());
    }
    out.insert("spec".into(), spec);
    if let Some(phase) = phase(document) {
        out.insert("status".into(), json!({ "phase": phase }));
    }
    out.into()
}

/// The JSON merge patch (RFC 7396) that makes `new` of `old`; `None` if they are equal.
fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            None => drop(patch.insert(key.clone(), value.clone())),
            Some(before) => {
                if let Some(change) = merge_diff(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(patch.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_diff_contains_exactly_the_changed_fields() {
        let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": {"f": 1}});
        let new = json!({"a": 1, "b": {"c": [1, 2], "d": 2}, "g": "h"});
        let expected = json!({"b": {"c": [1, 2]}, "g": "h", "e": null});
        assert_eq!(merge_diff(&old, &new), Some(expected));
        assert_eq!(merge_diff(&old, &old), None);
        assert_eq!(merge_diff(&json!([1]), &json!({"a": 1})), Some(json!({"a": 1})));
    }
}
