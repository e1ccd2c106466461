//! `reboot`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    kind::{ActionInfo, Declaration, Download, Then},
    rules::Rules,
};
use crate::DurationSpec;

/// Restarts the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RebootSpec {}

impl Declaration for RebootSpec {
    const INFO: ActionInfo = ActionInfo {
        about: "Restarts into the installed system. The last action.",
        timeout: DurationSpec::from_secs(5 * 60),
        attempts: 1,
        protocol: 1,
        tools: false,
        then: Then::SystemStarts,
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
