//! The shape all documents share: kind, metadata, spec and status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

/// The only `apiVersion` there is so far.
pub const API_VERSION: &str = "landfall.dev/v1alpha1";

/// The kinds of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// One physical or virtual computer.
    Machine,
    /// A named, parameterised list of actions.
    Template,
    /// One execution of a template on one machine.
    Workflow,
    /// Values that templates refer to.
    Secret,
    /// Rules for machines without a person's document.
    EnrolmentRule,
    /// So many machines that run one template.
    Pool,
}

impl Kind {
    /// Every kind, in the order they depend on one another.
    pub const ALL: [Self; 6] =
        [Self::Secret, Self::Machine, Self::Template, Self::EnrolmentRule, Self::Pool, Self::Workflow];
    /// Its name as written in documents, the singular and the plural used on the command line, and what it is.
    const fn words(self) -> [&'static str; 4] {
        match self {
            Self::Machine => ["Machine", "machine", "machines", "One physical or virtual computer."],
            Self::Template => ["Template", "template", "templates", "A named, parameterised list of actions."],
            Self::Workflow => ["Workflow", "workflow", "workflows", "One execution of a template on one machine."],
            Self::Secret => {
                ["Secret", "secret", "secrets", "Values that templates refer to, for the machines they belong to."]
            }
            Self::EnrolmentRule => {
                let about = "Rules for machines without a person's document.";
                ["EnrolmentRule", "enrolmentrule", "enrolmentrules", about]
            }
            Self::Pool => ["Pool", "pool", "pools", "So many machines that run one template."],
        }
    }
    /// The kind's name as written in documents.
    pub const fn as_str(self) -> &'static str {
        self.words()[0]
    }
    /// The singular used on the command line, `machine` for [`Kind::Machine`].
    pub const fn singular(self) -> &'static str {
        self.words()[1]
    }
    /// The plural used in routes and on the command line.
    pub const fn plural(self) -> &'static str {
        self.words()[2]
    }
    /// A description in one line.
    pub const fn about(self) -> &'static str {
        self.words()[3]
    }
    /// The kind a person means: singular or plural, either case, or the short forms `m`, `t`, `w`, `wf` and `rule`.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "m" | "machine" | "machines" => Some(Self::Machine),
            "t" | "template" | "templates" => Some(Self::Template),
            "w" | "wf" | "workflow" | "workflows" => Some(Self::Workflow),
            "secret" | "secrets" => Some(Self::Secret),
            "rule" | "rules" | "enrolmentrule" | "enrolmentrules" => Some(Self::EnrolmentRule),
            "pool" | "pools" => Some(Self::Pool),
            _ => None,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Name, labels and what the store fills in.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// A DNS label: lower-case letters, digits and `-`, at most 63; unique within its kind.
    pub name: String,
    /// For people and selectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Given by the store at creation, never reused.
    pub uid: Option<Uuid>,
    /// Counts changes of `spec`, from 1. Given by the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// Changes with every write; a write naming an older one is refused. Given by the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resource_version: u64,
    /// When the document was created. Given by the store.
    pub creation_timestamp: Option<Timestamp>,
    /// A deletion was requested; the document is removed when `finalizers` is empty. Given by the store.
    pub deletion_timestamp: Option<Timestamp>,
    /// Who must finish work before the document is removed. Maintained by the coordinator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One document of spec type `S` and status type `T`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Object<S, T> {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// The kind, matching the type.
    pub kind: Kind,
    /// Name, labels, versions.
    pub metadata: Metadata,
    /// What is wanted of it: the fields of its kind.
    pub spec: S,
    /// What the coordinator has seen. Ignored when a person applies the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<T>,
}
