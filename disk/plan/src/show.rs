//! A plan as text that a person can read.

use std::fmt;

use landfall_api::TableSpec;

use crate::{
    partitions::{DiskPlan, Origin},
    plan::Plan,
    step::{Device, Step, VolumeSize},
};

/// Bytes in the largest unit in which they come to at least 1, with one digit after the point unless they are whole.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len()).rev().find(|n| count >> (10 * n) > 0).unwrap_or(0);
    let tenths = (u128::from(count) * 10) >> (10 * unit);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {}", UNITS[unit]),
        (whole, tenth) => format!("{whole}.{tenth} {}", UNITS[unit]),
    }
}

impl Plan {
    /// A device as people call it.
    fn named(&self, device: &Device) -> String {
        match device {
            Device::Partition { disk, number } => {
                let name = self.disks.get(*disk).map_or("?", |disk| disk.disk.name.as_str());
                partition_name(name, *number)
            }
            Device::Raid(name) => format!("md/{name}"),
            Device::Volume { group, name } => format!("{group}/{name}"),
            Device::Opened(name) => name.clone(),
        }
    }

    fn list(&self, devices: impl Iterator<Item = Device>) -> String {
        devices.map(|device| self.named(&device)).collect::<Vec<_>>().join(", ")
    }
}

/// The kernel's name of a partition: a name that ends with a digit gets a `p` before the number.
pub(crate) fn partition_name(disk: &str, number: u32) -> String {
    let p = if disk.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    format!("{disk}{p}{number}")
}

impl fmt::Display for DiskPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.table {
            TableSpec::Gpt => "GPT",
            TableSpec::Mbr => "MBR",
        };
        let landfall_api::DiskId { name, serial, size_bytes, .. } = &self.disk;
        writeln!(f, "disk {name} (serial {serial}, {}): new {kind}", bytes(*size_bytes))?;
        for part in self.partitions.iter().filter(|part| part.origin != Origin::Receipt) {
            let range = part.bytes(self.sector);
            let size = bytes(range.end - range.start);
            let (start, kept) = (bytes(range.start), part.origin == Origin::Kept);
            let kind = if kept { "stays as it is" } else { part.kind.name };
            let device = partition_name(name, part.number);
            writeln!(f, "  {device:<12} {:<20} {size:>10} at {start:<10} {kind}", part.name)?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disks.iter().try_for_each(|disk| disk.fmt(f))?;
        for step in &self.steps {
            match step {
                Step::Raid { name, level, members, .. } => {
                    writeln!(f, "RAID {level} md/{name} of {}", self.list(members.iter().cloned()))?;
                }
                Step::Encrypt { device, name, key, .. } => {
                    writeln!(f, "LUKS2 on {} as {name}, with the key {key}", self.named(device))?;
                }
                Step::Group { name, members } => {
                    let members = self.list(members.iter().map(|member| member.device.clone()));
                    writeln!(f, "volume group {name} of {members}")?;
                }
                Step::Volume { group, name, size } => {
                    let size = match size {
                        VolumeSize::Extents(extents) => bytes(extents * crate::stack::EXTENT),
                        VolumeSize::Rest => "what is left".into(),
                    };
                    writeln!(f, "volume {group}/{name}: {size}")?;
                }
                Step::Format { device, format, label, .. } => {
                    let label = label.as_ref().map(|label| format!(", label {label}")).unwrap_or_default();
                    writeln!(f, "{} on {}{label}", format.name(), self.named(device))?;
                }
                Step::Subvolumes { device, names } => {
                    writeln!(f, "subvolumes {} on {}", names.join(", "), self.named(device))?;
                }
            }
        }
        for mount in &self.mounts {
            let options = mount.all_options().map(|options| format!(" ({options})")).unwrap_or_default();
            writeln!(f, "{} is mounted at {}{options}", self.named(&mount.device), mount.at)?;
        }
        Ok(())
    }
}
