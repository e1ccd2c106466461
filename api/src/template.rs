//! Template: a named, parameterised list of actions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Object;

/// A template document. Its actions are kept as a tree, because expressions may stand where a typed value will be.
pub type Template = Object<TemplateSpec, TemplateStatus>;

/// Parameters and actions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TemplateSpec {
    /// What a run may or must state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Parameter>,
    /// The actions, each of the shape of [`crate::Action`]. `{{ … }}` may stand inside any scalar; a scalar that is one
    /// lone expression keeps the expression's type. In scope: `machine` (name, labels, macs, facts) and `params`.
    #[schemars(with = "Vec<crate::Action>")]
    pub actions: Vec<serde_json::Value>,
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
