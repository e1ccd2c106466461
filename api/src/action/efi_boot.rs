//! `efiBoot`: its fields, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    kind::{ActionInfo, Declaration, Download, Then},
    rules::Rules,
};
use crate::{DiskId, DiskSelector, DurationSpec, issue::join};

/// Sets the boot order of UEFI. Without it `writeImage` and `installBootloader` do what `netFirst` says; in a list that has it they
/// leave the order alone. On a machine that was started by a BIOS it does nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EfiBootSpec {
    /// What the firmware is to start. Default: `netFirst`.
    #[serde(default)]
    pub policy: BootPolicy,
    /// The disk of an installed image. Default: what this workflow wrote, which of a layout are all its disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSelector>,
}

/// What UEFI is to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BootPolicy {
    /// The network as before, and the disk right behind it: Landfall keeps a say in what the machine starts.
    #[default]
    NetFirst,
    /// The disk, before everything else.
    DiskFirst,
    /// The disk, but only at the next start: the order stays as it is, without the disk.
    NextOnly,
    /// What it starts now: nothing is written.
    Leave,
}

impl BootPolicy {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::NetFirst, Self::DiskFirst, Self::NextOnly, Self::Leave];

    /// As documents have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NetFirst => "netFirst",
            Self::DiskFirst => "diskFirst",
            Self::NextOnly => "nextOnly",
            Self::Leave => "leave",
        }
    }

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name)
    }
}

/// What came of an `efiBoot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EfiBootResult {
    /// What was asked for.
    pub policy: BootPolicy,
    /// The disks that have an entry; none where nothing was to be written.
    pub disks: Vec<DiskId>,
}

impl Declaration for EfiBootSpec {
    const INFO: ActionInfo = ActionInfo {
        about: "Sets the boot order of UEFI: the network or the installed disk first, or the disk at the next start alone.",
        timeout: DurationSpec::from_secs(5 * 60),
        attempts: 1,
        protocol: 8,
        tools: false,
        then: Then::Next,
        writes_image: false,
        means_written_disk: true,
        after_failure: false,
        no_branch: Some("remove its branch: the firmware has one boot order, and branches run at the same time"),
        secrets: &[],
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
    }

    fn downloads(&self) -> Vec<Download> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_one_name_everywhere() {
        for policy in BootPolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
            assert_eq!(BootPolicy::named(policy.as_str()), Some(policy));
        }
        assert_eq!(BootPolicy::named("netfirst"), None);
    }
}
