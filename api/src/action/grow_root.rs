//! `growRoot`: its fields, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::kind::{ActionInfo, Declaration};
use super::rules::{Rules, plain_text};
use crate::{DiskSelector, DurationSpec, SizeSpec, issue::join};

/// Makes the partition of an installed image's root larger, into the free space behind it, with its file system: ext4, XFS or btrfs.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrowRootSpec {
    /// How large the partition is to be, such as 20GiB; one that is larger stays. Default: all the space to the next partition or
    /// the end of the disk.
    pub size: Option<SizeSpec>,
    /// Which disk. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What came of a `growRoot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrowRootResult {
    /// The installed root file system's device.
    pub root_device: String,
    /// How large its partition is, bytes.
    pub size_bytes: u64,
    /// False: it was that large before.
    pub grown: bool,
}

impl GrowRootSpec {
    /// How large the partition is to be, bytes; `None`: as large as it can be.
    pub fn bytes(&self) -> Option<u64> {
        match self.size {
            Some(SizeSpec::Bytes(bytes)) => Some(bytes),
            // The rules leave no other.
            Some(SizeSpec::Percent(_) | SizeSpec::Rest) | None => None,
        }
    }
}

impl Declaration for GrowRootSpec {
    const INFO: ActionInfo = ActionInfo {
        // The table is the old one or the new one at every instant, and what is as large already stays.
        attempts: 3,
        tools: true,
        means_written_disk: true,
        ..ActionInfo::new(
            "Grows the partition and file system of an installed image's root.",
            DurationSpec::from_secs(30 * 60),
            8,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        let Some(Ok(size)) = plain_text(spec, "size").map(str::parse::<SizeSpec>) else { return };
        if !matches!(size, SizeSpec::Bytes(_)) {
            let message = format!("{size} is not a size of growRoot");
            rules.say(join(path, "size"), message, "write a size such as 20GiB, or leave size out for all the space");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_in_bytes_or_all_there_is() {
        let spec = |size| GrowRootSpec { size, disk: None };
        assert_eq!((spec(Some(SizeSpec::Bytes(5))).bytes(), spec(None).bytes()), (Some(5), None));
    }
}
