//! How many documents there are, kept up to date with every change: a scrape of the metrics reads no document.

use std::collections::BTreeMap;

use landfall_api::{Document, Kind};

/// How many documents a store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    kinds: BTreeMap<Kind, u64>,
    phases: BTreeMap<(Kind, String), u64>,
}

impl Counts {
    /// Documents of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).copied().unwrap_or_default()
    }

    /// Documents of a kind that has phases, by phase and in its order; none is counted as 0.
    pub fn phases(&self, kind: Kind) -> impl Iterator<Item = (&str, u64)> {
        self.phases.iter().filter(move |((of, _), _)| *of == kind).map(|((_, phase), count)| (phase.as_str(), *count))
    }

    pub(crate) fn replace(&mut self, kind: Kind, before: Option<&Document>, now: Option<&Document>) {
        if let (Some(before), Some(now)) = (before, now)
            && is_same_phase(before, now)
        {
            return;
        }
        if let Some(before) = before {
            subtract(&mut self.kinds, kind);
            if let Some(phase) = phase(before) {
                subtract(&mut self.phases, (kind, phase));
            }
        }
        if let Some(now) = now {
            *self.kinds.entry(kind).or_default() += 1;
            if let Some(phase) = phase(now) {
                *self.phases.entry((kind, phase)).or_default() += 1;
            }
        }
    }
}

fn subtract<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

fn phase(document: &Document) -> Option<String> {
    let phase = match document {
        Document::Machine(machine) => machine.status.as_ref().map(|status| format!("{:?}", status.phase)),
        Document::Workflow(workflow) => workflow.status.as_ref().map(|status| format!("{:?}", status.phase)),
        _ => return None,
    };
    Some(phase.unwrap_or_else(|| "Unknown".to_owned()))
}

/// Cheap: most changes are of a status, and few of its phase.
pub(crate) fn is_same_phase(a: &Document, b: &Document) -> bool {
    match (a, b) {
        (Document::Machine(a), Document::Machine(b)) => {
            a.status.as_ref().map(|s| s.phase) == b.status.as_ref().map(|s| s.phase)
        }
        (Document::Workflow(a), Document::Workflow(b)) => {
            a.status.as_ref().map(|s| s.phase) == b.status.as_ref().map(|s| s.phase)
        }
        _ => true,
    }
}
