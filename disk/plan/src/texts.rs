//! Files of the installed system that follow from a plan.

use landfall_api::FileSystem;

use crate::mounts::{Mount, Swap};
use crate::step::Step;

const HEAD: &str = "# Written by Landfall from the workflow's storage action.\n";

/// The contents of files in the installed system; `None`: it needs no such file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    /// /etc/fstab
    pub fstab: String,
    /// /etc/crypttab
    pub crypttab: Option<String>,
    /// /etc/mdadm/mdadm.conf or /etc/mdadm.conf
    pub mdadm_conf: Option<String>,
}

impl Texts {
    pub(crate) fn of(mounts: &[Mount], swaps: &[Swap], opened: &[(String, uuid::Uuid)], steps: &[Step]) -> Self {
        let mut fstab = HEAD.to_owned();
        for mount in mounts {
            let options = mount.all_options().unwrap_or_else(|| "defaults".into());
            // Neither XFS nor btrfs is checked at the start: fsck.xfs(8), fsck.btrfs(8).
            let pass = match mount.format {
                FileSystem::Xfs | FileSystem::Btrfs => 0,
                _ if mount.at == "/" => 1,
                _ => 2,
            };
            fstab += &format!("{} {} {} {options} 0 {pass}\n", mount.source, mount.at, mount.format.name());
        }
        for Swap { source, options } in swaps {
            fstab += &format!("{source} none swap {} 0 0\n", options.as_deref().unwrap_or("sw"));
        }
        let crypttab = opened.iter().map(|(name, uuid)| format!("{name} UUID={uuid} none luks\n"));
        let arrays = steps.iter().filter_map(|step| match step {
            Step::Raid { name, metadata, uuid, .. } => {
                let version = metadata.version();
                // Not by its name as well: how mdadm writes that on the disk depends on how long it is.
                Some(format!("ARRAY /dev/md/{name} metadata={version} UUID={}\n", md_uuid(*uuid)))
            }
            _ => None,
        });
        // Without a place for mail mdadm's monitor does not start.
        let arrays = joined(arrays).map(|arrays| format!("{HEAD}HOMEHOST <system>\nMAILADDR root\n{arrays}"));
        Self { fstab, crypttab: joined(crypttab).map(|lines| format!("{HEAD}{lines}")), mdadm_conf: arrays }
    }
}

fn joined(lines: impl Iterator<Item = String>) -> Option<String> {
    let text: String = lines.collect();
    (!text.is_empty()).then_some(text)
}

/// As mdadm writes identities: four groups of eight digits.
pub fn md_uuid(uuid: uuid::Uuid) -> String {
    let digits = uuid.simple().to_string();
    let groups: Vec<&str> = (0..4).filter_map(|n| digits.get(n * 8..n * 8 + 8)).collect();
    groups.join(":")
}
