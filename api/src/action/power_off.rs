//! `powerOff`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{ActionInfo, Declaration, Then};
use crate::DurationSpec;

/// Turns the machine off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PowerOffSpec {}

impl Declaration for PowerOffSpec {
    const INFO: ActionInfo = ActionInfo {
        then: Then::MachineOff,
        after_failure: true,
        ..ActionInfo::new("Turns the machine off. The last action.", DurationSpec::from_secs(5 * 60), 2)
    };
}
