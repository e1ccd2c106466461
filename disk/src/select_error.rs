//! Why a selector chose no disk.

use landfall_api::{ErrorCode, Problem, SelectorError};

/// One disk and why it did or did not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name, size, model, serial.
    pub disk: String,
    /// One sentence a field that disagrees; empty: it matched.
    pub mismatches: Vec<String>,
}

/// Not exactly one disk was chosen.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The selector does not parse.
    #[error("the disk selector is not valid")]
    Selector(#[from] SelectorError),
    /// None matches.
    #[error("no disk matches the selector; {}", describe(.0))]
    NoneMatches(Vec<Candidate>),
    /// Several match.
    #[error("more than one disk matches the selector; {}", describe(.0))]
    Ambiguous(Vec<Candidate>),
    /// The disk chosen is one of several paths to the same unit.
    #[error(
        "{disk} and {other} are two paths to one unit ({identity}); writing to a single path of a multipath unit \
        is refused"
    )]
    LonePath { disk: String, other: String, identity: String },
}

fn describe(candidates: &[Candidate]) -> String {
    if candidates.is_empty() {
        return "this machine has no disks".into();
    }
    let one = |c: &Candidate| match c.mismatches.as_slice() {
        [] => format!("{} matches", c.disk),
        why => format!("{} does not: {}", c.disk, why.join(", ")),
    };
    candidates.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl SelectError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Selector(_) => ErrorCode::InvalidDocument,
            Self::NoneMatches(_) => ErrorCode::NoDiskMatches,
            Self::Ambiguous(_) | Self::LonePath { .. } => ErrorCode::AmbiguousDisk,
        }
    }
    /// The failure as a person reads it.
    pub fn problem(&self) -> Problem {
        let hint = match self {
            Self::Selector(_) => "correct the selector in the template",
            Self::NoneMatches(_) => "change the selector, or check that the boot image has the disk's driver",
            Self::Ambiguous(_) => "name one disk by its serial or wwn",
            Self::LonePath { .. } => "present the unit over one path during the install",
        };
        Problem::new(self.code(), self.to_string()).hint(hint).at("disk").caused_by(self)
    }
}
