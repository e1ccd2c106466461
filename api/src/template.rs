//! Template: a named, parameterised list of actions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{DurationSpec, Object, Parameter};

/// A template document. Its actions are kept as a tree, because expressions may stand where a typed value will be.
pub type Template = Object<TemplateSpec, TemplateStatus>;

/// Parameters and actions.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TemplateSpec {
    /// Values that a workflow may or must state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Parameter>,
    /// Whether this template is only for others to include. No workflow can run it, and its list may lean on what stands
    /// around it there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fragment: bool,
    /// The list of actions: each has a name, and a key that says what it does. `{{ … }}` may stand inside any scalar; a
    /// scalar that is one lone expression keeps the expression's type. In scope: `machine` (name, labels, macs, facts),
    /// `params`, and `disk` in a loop over disks.
    #[serde(deserialize_with = "crate::action::list")]
    #[schemars(with = "Vec<crate::Action>")]
    pub actions: Vec<serde_json::Value>,
    /// The longest time for a workflow, from the moment an agent takes it to its end; a hold counts, a pause does not.
    /// Default: 24h, or the sum of the limits of its actions and its phone-home if that is longer.
    pub timeout: Option<DurationSpec>,
    /// When a workflow has succeeded. Default: `phoneHome` if the installed system gets the phone-home unit and the
    /// last action is `reboot` or `kexec`; else `reboot`.
    pub success_on: Option<SuccessOn>,
    /// Whether the agent checks the whole list before the first action that destroys data: disks match, sources answer, images
    /// fit. Default: on.
    pub precheck: Option<Precheck>,
    /// What the agent does after a failure or a cancel, in order; `hold`, `http`, `wait`, `reboot` and `powerOff` alone. The workflow
    /// ends as failed in any case. The list runs once: after a power cut it does not begin again.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::action::list")]
    #[schemars(with = "Vec<crate::Action>")]
    pub on_failure: Vec<serde_json::Value>,
}

impl TemplateSpec {
    /// The templates that its list includes, each with the item's place; fixed text.
    pub fn includes(&self) -> impl Iterator<Item = (usize, &str)> {
        let items = self.actions.iter().enumerate();
        items.filter_map(|(index, item)| Some((index, item.pointer("/include/template")?.as_str()?)))
    }

    /// The fields that only a whole list can have, and whether this one does. A template that has one of them cannot be
    /// included.
    pub const fn of_whole_lists(&self) -> [(&'static str, bool); 4] {
        let Self { timeout, success_on, on_failure, precheck, .. } = self;
        [
            ("onFailure", !on_failure.is_empty()),
            ("timeout", timeout.is_some()),
            ("successOn", success_on.is_some()),
            ("precheck", precheck.is_some()),
        ]
    }
}

/// When a workflow has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SuccessOn {
    /// The installed system phoned home within its deadline.
    PhoneHome,
    /// The last action was done: the machine went down (or, in a list without `reboot`, `kexec` or `powerOff`, stayed).
    Reboot,
}

/// Whether the agent checks the whole list before the first action that destroys data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Precheck {
    /// It does. A check that fails fails that action, and nothing was written.
    On,
    /// Each action finds its own faults when its turn comes.
    Off,
}

/// Templates have no status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateStatus {}
