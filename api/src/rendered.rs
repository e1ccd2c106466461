//! A template's list as it would be pinned for a machine: what `landfall template render` and a dry run of `provision`
//! show.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::{Action, DurationSpec, LeftOut, Precheck, Problem, SuccessOn};

/// The body of `POST …/machines/{name}/render`: `template` or `document`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenderRequest {
    /// Name of a stored template.
    pub template: Option<String>,
    /// A Template document that need not be stored.
    pub document: Option<Value>,
    /// Values for its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
}

/// A list as a workflow would pin it. Secrets are references in it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderedList {
    /// The machine's name.
    pub machine: String,
    /// The template's name.
    pub template: String,
    /// What is done, in order.
    pub actions: Vec<Action>,
    /// Items of the template that are not in `actions`, because their condition does not hold for this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// What is done after a failure or a cancel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<Action>,
    /// The longest time for the workflow, where the template states it.
    pub timeout: Option<DurationSpec>,
    /// When it has succeeded, where the template states it.
    pub success_on: Option<SuccessOn>,
    /// Whether the agent checks the whole list first, where the template states it.
    pub precheck: Option<Precheck>,
    /// What the machine's agent said of the list; only in the answer to a dry run.
    pub machine_check: Option<MachineCheck>,
}

/// Whether every action of a list would begin on the machine: disks match, sources answer, images fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MachineCheck {
    /// Each would; nothing was written.
    Passed,
    /// One would not.
    Failed(Problem),
    /// The agent was not asked, or did not answer; this is why.
    NotMade(String),
}
