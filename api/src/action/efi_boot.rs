//! `efiBoot`: its fields, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{ActionInfo, Declaration};
use super::rules::Rules;
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

words! {
    /// What UEFI is to start.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    BootPolicy {
        /// The network as before, and the disk right behind it: Landfall keeps a say in what the machine starts.
        #[default]
        NetFirst = "netFirst",
        /// The disk, before everything else.
        DiskFirst = "diskFirst",
        /// The disk, but only at the next start: the order stays as it is, without the disk.
        NextOnly = "nextOnly",
        /// What it starts now: nothing is written.
        Leave = "leave",
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
        means_written_disk: true,
        no_branch: Some("remove its branch: the firmware has one boot order, and branches run at the same time"),
        ..ActionInfo::new(
            "Sets the boot order of UEFI: the network or the installed disk first, or the disk at the next start alone.",
            DurationSpec::from_secs(5 * 60),
            8,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
    }
}
