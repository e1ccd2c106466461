//! Template: a named, parameterised list of actions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DurationSpec, Object};

/// A template document. Its actions are kept as a tree, because expressions may stand where a typed value will be.
pub type Template = Object<TemplateSpec, TemplateStatus>;

/// Parameters and actions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TemplateSpec {
    /// What a run may or must state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Parameter>,
    /// The actions, each of the shape of [`crate::Action`]. `{{ … }}` may stand inside any scalar; a scalar that is one
    /// lone expression keeps the expression's type. In scope: `machine` (name, labels, macs, facts) and `params`.
    #[schemars(with = "Vec<crate::Action>")]
    pub actions: Vec<serde_json::Value>,
    /// How long a run may take in all, from the moment an agent takes it to its end; a hold counts, a pause does not.
    /// Default: 24h, or where that is longer, all that its actions and its phone-home may take by their own limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationSpec>,
    /// When a run has succeeded. Default: `phoneHome` if the installed system is given the phone-home unit and the last
    /// action is `reboot` or `kexec`; else `reboot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_on: Option<SuccessOn>,
    /// What the agent does after a failure or a cancel, in order; `hold`, `reboot` and `powerOff` only. Whatever comes
    /// of it, the run ends as it failed. It is done once: after a power cut it is not begun again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<crate::Action>")]
    pub on_failure: Vec<serde_json::Value>,
}

/// When a run has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SuccessOn {
    /// The installed system phoned home within its deadline.
    PhoneHome,
    /// The last action was done: the machine went down (or, in a list without `reboot`, `kexec` or `powerOff`, stayed).
    Reboot,
}

/// One parameter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parameter {
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Used when a run does not state it; without one a run must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
}

/// Templates have no life of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateStatus {}
