//! The goal of a wait, and whether a document has reached it.

use std::str::FromStr;

use landfall_api::{Condition, ConditionStatus, Document};

use crate::table;

/// The goal of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum For {
    Condition { kind: String, status: ConditionStatus },
    Phase(String),
    Create,
    Delete,
}

impl FromStr for For {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "\"{text}\" is not a valid goal; write condition=Connected, condition=Connected=False, \
                    phase=Succeeded, create or delete"
            )
        };
        match text.split_once('=') {
            None if text == "create" => Ok(Self::Create),
            None if text == "delete" => Ok(Self::Delete),
            Some(("phase", phase)) if !phase.is_empty() => Ok(Self::Phase(phase.to_owned())),
            Some(("condition", rest)) => {
                let (kind, status) = rest.split_once('=').unwrap_or((rest, "True"));
                let status = match status.to_ascii_lowercase().as_str() {
                    "true" => ConditionStatus::True,
                    "false" => ConditionStatus::False,
                    "unknown" => ConditionStatus::Unknown,
                    other => return Err(format!("\"{other}\" is not a status; a condition is True, False or Unknown")),
                };
                if kind.is_empty() { Err(bad()) } else { Ok(Self::Condition { kind: kind.to_owned(), status }) }
            }
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for For {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Condition { kind, status } => write!(f, "condition {kind} to be {status:?}"),
            Self::Phase(phase) => write!(f, "phase {phase}"),
            Self::Create => f.write_str("it to be created"),
            Self::Delete => f.write_str("it to be deleted"),
        }
    }
}

impl For {
    /// Whether an existing document has reached the goal.
    pub(super) fn met(&self, document: &Document) -> bool {
        match self {
            Self::Condition { kind, status } => {
                conditions(document).iter().any(|c| c.kind.as_str().eq_ignore_ascii_case(kind) && c.status == *status)
            }
            Self::Phase(phase) => table::phase(document).is_some_and(|is| is.eq_ignore_ascii_case(phase)),
            Self::Create => true,
            Self::Delete => false,
        }
    }

    pub(super) fn said(&self) -> &'static str {
        match self {
            Self::Condition { .. } => "condition met",
            Self::Phase(_) => "phase reached",
            Self::Create => "created",
            Self::Delete => "deleted",
        }
    }
}

fn conditions(document: &Document) -> &[Condition] {
    match document {
        Document::Machine(machine) => machine.status.as_ref().map_or(&[], |s| &s.conditions),
        Document::Workflow(run) => run.status.as_ref().map_or(&[], |s| &s.conditions),
        Document::Pool(pool) => pool.status.as_ref().map_or(&[], |s| &s.conditions),
        Document::Template(_) | Document::Secret(_) | Document::EnrolmentRule(_) => &[],
    }
}
