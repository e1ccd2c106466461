//! Enrolment rules: for machines without a person's document.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Object;

/// An enrolment rule document.
pub type EnrolmentRule = Object<EnrolmentRuleSpec, EnrolmentRuleStatus>;

/// Which machines, and what they get. Of several matching rules the one with the highest priority applies; of equals
/// the first by name.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrolmentRuleSpec {
    /// Higher priorities are checked first. Default 0.
    #[serde(default)]
    pub priority: i32,
    /// Path of a fact, such as `smbios.manufacturer` or `memoryBytes`, to an expression as in a disk selector; all must hold.
    /// Empty: every machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, String>,
    /// The machine's name, with expressions over `facts`. Default: the name it was discovered under.
    pub name: Option<String>,
    /// Labels for the machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Approves the machine without a person. Then every computer on the provisioning network gets what the rule gives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approve: bool,
    /// A template to run once the machine is approved. A rule is not a person's request: only blank disks are written.
    pub template: Option<String>,
}

/// The results of the rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrolmentRuleStatus {
    /// Machines it was applied to.
    #[serde(default)]
    pub applied: u64,
}
