//! `reboot`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{ActionInfo, Declaration, Then};
use crate::DurationSpec;

/// Restarts the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RebootSpec {}

impl Declaration for RebootSpec {
    const INFO: ActionInfo = ActionInfo {
        then: Then::SystemStarts,
        after_failure: true,
        ..ActionInfo::new("Restarts into the installed system. The last action.", DurationSpec::from_secs(5 * 60), 1)
    };
}
