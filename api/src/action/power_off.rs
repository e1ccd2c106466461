//! `powerOff`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    kind::{ActionInfo, Declaration, Download, Then},
    rules::Rules,
};
use crate::DurationSpec;

/// Turns the machine off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PowerOffSpec {}

impl Declaration for PowerOffSpec {
    const INFO: ActionInfo = ActionInfo {
        about: "Turns the machine off. The last action.",
        timeout: DurationSpec::from_secs(5 * 60),
        attempts: 1,
        protocol: 2,
        tools: false,
        then: Then::MachineOff,
        writes_image: false,
        means_written_disk: false,
        after_failure: true,
        no_branch: None,
        secrets: &[],
    };

    fn check(_: &Map<String, Value>, _: &str, _: &mut Rules<'_>) {}

    fn downloads(&self) -> Vec<Download> {
        Vec::new()
    }
}
