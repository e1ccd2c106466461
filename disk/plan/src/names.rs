//! Names under which devices are found: no two may be equal, and some are made from those in the layout.

use std::collections::BTreeMap;

use crate::{error::PlanError, partitions::DiskPlan, step::Step};

/// The name of a volume below /dev/mapper (lvm(8), VALID NAMES): a hyphen in either part is doubled.
pub fn volume_name(group: &str, volume: &str) -> String {
    let doubled = |name: &str| name.replace('-', "--");
    format!("{}-{}", doubled(group), doubled(volume))
}

/// Each name in a table is of one partition, because by it a partition that stays is found again; and each below
/// /dev/mapper of one device.
pub(crate) fn distinct(tables: &[DiskPlan], steps: &[Step]) -> Result<(), PlanError> {
    for table in tables {
        let mut taken = BTreeMap::new();
        for part in &table.partitions {
            let what = format!("partition {} of disk {}", part.number, table.disk.name);
            one(&mut taken, part.name.clone(), what)?;
        }
    }
    let mut taken = BTreeMap::new();
    for step in steps {
        match step {
            Step::Encrypt { name, .. } => one(&mut taken, name.clone(), "an opened LUKS device".into())?,
            Step::Volume { group, name, .. } => {
                one(&mut taken, volume_name(group, name), format!("volume {group}/{name}"))?;
            }
            Step::Raid { .. } | Step::Group { .. } | Step::Format { .. } | Step::Subvolumes { .. } => {}
        }
    }
    Ok(())
}

fn one(taken: &mut BTreeMap<String, String>, name: String, what: String) -> Result<(), PlanError> {
    match taken.get(&name) {
        Some(first) => Err(PlanError::SameName { name, first: first.clone(), second: what }),
        None => {
            taken.insert(name, what);
            Ok(())
        }
    }
}
