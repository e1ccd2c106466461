//! `clearDisks`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    kind::{ActionInfo, Declaration, Download, Then},
    rules::Rules,
};
use crate::{DiskSelector, DurationSpec};

/// Clears everything by which disks boot or are recognised: boot sectors, partition tables, signatures and, last,
/// receipts. Other data is not overwritten: this does not erase the disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClearDisksSpec {
    /// Which disks; exactly one must match each. Default: every disk that carries a receipt of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskSelector>,
}

impl Declaration for ClearDisksSpec {
    const INFO: ActionInfo = ActionInfo {
        about: "Clears boot sectors, partition tables, signatures and receipts of disks.",
        timeout: DurationSpec::from_secs(5 * 60),
        attempts: 1,
        protocol: 2,
        tools: false,
        then: Then::Next,
        writes_image: false,
        means_written_disk: false,
        after_failure: false,
        no_branch: Some("remove its branch: clearDisks must not clear what another branch writes at the same time"),
        secrets: &[],
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        let disks = spec.get("disks").and_then(Value::as_array);
        for (n, disk) in disks.into_iter().flatten().enumerate() {
            rules.selector(Some(disk), &format!("{path}.disks[{n}]"));
        }
    }

    fn downloads(&self) -> Vec<Download> {
        Vec::new()
    }
}
