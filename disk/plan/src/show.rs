//! A plan as text that a person can read.

use std::fmt;

use landfall_api::TableSpec;

use crate::partitions::{DiskPlan, Origin};
use crate::plan::Plan;
use crate::step::{Device, EXTENT, Step, VolumeSize};
use crate::words::{bytes, partition_name};

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
                        VolumeSize::Extents(extents) => bytes(extents * EXTENT),
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
