//! What the parts of a layout mean together.

mod names;
mod stands;

use std::collections::BTreeMap;

use self::names::{array_name_fault, group_name_fault, name_fault, volume_name_fault};
use super::{Member, PartitionRole, PartitionSpec, RaidSpec, SizeSpec, StorageSpec, TableSpec, VolumeGroupSpec};

/// Most disks of one layout.
const MAX_DISKS: usize = 64;
/// Entries of a GPT of the usual size (UEFI 2.10, section 5.3.2), without the receipt's.
const MAX_GPT: usize = 127;
/// Entries of a table of the old kind.
const MAX_MBR: usize = 4;
/// Most volumes of a group: more than any installed system has.
const MAX_VOLUMES: usize = 128;

/// What is wrong with a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}; {hint}")]
pub struct StorageFault {
    /// The field, such as `disks[0].partitions[1].size`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl StorageSpec {
    /// Everything that is wrong with the layout, whatever the disks are.
    pub fn faults(&self) -> Vec<StorageFault> {
        let mut check = Check { spec: self, faults: Vec::new(), names: BTreeMap::new(), mounts: BTreeMap::new() };
        check.run();
        check.faults
    }
}

struct Check<'a> {
    spec: &'a StorageSpec,
    faults: Vec<StorageFault>,
    /// Of devices, and where each stands.
    names: BTreeMap<&'a str, String>,
    /// Mount points, and what is mounted there.
    mounts: BTreeMap<&'a str, String>,
}

impl<'a> Check<'a> {
    fn say(&mut self, path: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) {
        self.faults.push(StorageFault { path: path.into(), message: message.into(), hint: hint.into() });
    }

    fn run(&mut self) {
        let spec = self.spec;
        let disks: usize = spec.disks.iter().map(|layout| layout.select.len()).sum();
        if spec.disks.is_empty() {
            self.say("disks", "there is no disk", "list at least one, with its partitions");
        } else if disks > MAX_DISKS {
            self.say("disks", format!("there are {disks} disks; the limit is {MAX_DISKS}"), "use several actions");
        }
        for (n, layout) in spec.disks.iter().enumerate() {
            let path = format!("disks[{n}]");
            if layout.select.is_empty() {
                let hint = "write one selector for each disk, or leave the field out for the only disk";
                self.say(format!("{path}.select"), "no disk is selected", hint);
            }
            self.partitions(&path, layout.table, &layout.partitions, layout.select.len());
        }
        for (n, raid) in spec.raids.iter().enumerate() {
            let path = format!("raids[{n}]");
            self.named(&raid.name, &format!("{path}.name"), array_name_fault);
            self.raid(raid, &path);
            self.content(spec.of_raid(raid), &path, &raid.name, 1, raid.mount.is_some());
            self.member(&raid.name, raid.format.is_some() || raid.mount.is_some(), &path);
        }
        for (n, group) in spec.volume_groups.iter().enumerate() {
            let path = format!("volumeGroups[{n}]");
            self.named(&group.name, &format!("{path}.name"), group_name_fault);
            self.group(group, &path);
        }
        self.used_once();
    }

    /// A name that no other device has.
    fn named(&mut self, name: &'a str, path: &str, fault: fn(&str) -> Option<(String, &'static str)>) {
        if let Some((message, hint)) = fault(name) {
            return self.say(path, message, hint);
        }
        if let Some(first) = self.names.insert(name, path.to_owned()) {
            let message = format!("\"{name}\" is the name of another device too ({first})");
            self.say(path, message, "give each its own name");
        }
    }

    fn partitions(&mut self, path: &str, table: TableSpec, partitions: &'a [PartitionSpec], disks: usize) {
        let at = format!("{path}.partitions");
        let limit = if table == TableSpec::Gpt { MAX_GPT } else { MAX_MBR };
        match partitions.len() {
            0 => self.say(&at, "there is no partition", "list at least one"),
            many if many > limit => {
                let message = format!("there are {many} partitions; the table has room for {limit}");
                self.say(&at, message, "join some of them in an LVM volume group");
            }
            _ => {}
        }
        let new = partitions.iter().enumerate().filter(|(_, part)| !part.preserve);
        let sizes: Vec<(String, SizeSpec)> = new.map(|(n, part)| (format!("{at}[{n}].size"), part.size())).collect();
        self.sizes(&sizes);
        for (n, part) in partitions.iter().enumerate() {
            let path = format!("{at}[{n}]");
            if part.preserve {
                self.preserved(part, table, &path);
            } else {
                self.named(part.name(), &format!("{path}.name"), name_fault);
            }
            self.role(part, table, &path);
            self.content(self.spec.of_partition(part), &path, part.name(), disks, part.mount.is_some());
            self.member(part.name(), part.format.is_some() || part.mount.is_some(), &path);
        }
    }

    /// At most one takes the rest, and percentages do not exceed the whole.
    fn sizes(&mut self, sizes: &[(String, SizeSpec)]) {
        let mut rest = sizes.iter().filter(|(_, size)| *size == SizeSpec::Rest);
        if let (Some((first, _)), Some((second, _))) = (rest.next(), rest.next()) {
            let first = first.trim_end_matches(".size");
            let message = format!("two would take the rest of the space, this one and {first}");
            self.say(second, message, "state a size, such as 20GiB or 50%");
        }
        let percent = |(_, size): &(String, SizeSpec)| if let SizeSpec::Percent(n) = size { u32::from(*n) } else { 0 };
        let sum: u32 = sizes.iter().map(percent).sum();
        if let Some((last, _)) = sizes.iter().rfind(|size| percent(size) > 0).filter(|_| sum > 100) {
            self.say(last, format!("the percentages come to {sum}"), "let them come to 100 at most");
        }
    }

    fn preserved(&mut self, part: &'a PartitionSpec, table: TableSpec, path: &str) {
        let at = |field: &str| format!("{path}.{field}");
        match part.name.as_deref() {
            None => self.say(at("name"), "a preserved partition has no name", "write the name that it has on the disk"),
            Some(name) => self.named(name, &at("name"), names::label_fault),
        }
        let mut refuse = |field: &str, stated: bool| {
            if stated {
                let message = format!("a preserved partition stays as it is, so {field} has no meaning");
                self.say(at(field), message, "remove the field, or remove preserve");
            }
        };
        refuse("size", part.size.is_some());
        refuse("label", part.label.is_some());
        refuse("encrypt", part.encrypt.is_some());
        refuse("subvolumes", !part.subvolumes.is_empty());
        if table == TableSpec::Mbr {
            let hint = "use a GPT, or clear the disk";
            self.say(at("preserve"), "only a GPT names its partitions, so none of an MBR can be preserved", hint);
        }
    }

    fn role(&mut self, part: &PartitionSpec, table: TableSpec, path: &str) {
        let at = |field: &str| format!("{path}.{field}");
        let content = self.spec.of_partition(part);
        let role = part.role();
        if role == PartitionRole::BiosBoot {
            if table == TableSpec::Mbr {
                let hint = "remove the partition: GRUB uses the space in front of the first one";
                self.say(at("role"), "an MBR has no partition of this role", hint);
            }
            if content.format.is_some() || content.mount.is_some() || content.encrypt.is_some() {
                let hint = "remove format, mount and encrypt";
                self.say(path, "GRUB's core stands on this partition, and no file system", hint);
            }
        }
        let only = match role {
            PartitionRole::Esp => Some(super::FileSystem::Vfat),
            PartitionRole::Swap => Some(super::FileSystem::Swap),
            _ => None,
        };
        if let (Some(only), Some(format)) = (only, content.format)
            && only != format
        {
            let message =
                format!("a partition with the role {} takes {}, not {}", role.as_str(), only.name(), format.name());
            self.say(at("format"), message, "remove the field, or choose another role");
        }
        if role == PartitionRole::Esp && content.encrypt.is_some() {
            self.say(at("encrypt"), "firmware cannot read an encrypted EFI system partition", "remove the field");
        }
    }

    /// A member of something has no file system of its own.
    fn member(&mut self, name: &str, has_content: bool, path: &str) {
        if has_content && self.spec.is_member(name) {
            let message =
                format!("{name} is a member of a RAID or of a volume group, so it has no file system of its own");
            self.say(path, message, "remove format and mount");
        }
    }

    fn raid(&mut self, raid: &RaidSpec, path: &str) {
        let at = |field: &str| format!("{path}.{field}");
        let fewest = match raid.level {
            0 | 1 | 10 => 2,
            5 => 3,
            6 => 4,
            other => {
                return self.say(at("level"), format!("RAID {other} is not supported"), "write 0, 1, 5, 6 or 10");
            }
        };
        let (mut members, mut known) = (0, true);
        let (mut esp, mut others) = (false, false);
        for (n, name) in raid.from.iter().enumerate() {
            let at = format!("{path}.from[{n}]");
            match self.spec.member(name) {
                Some(Member::Partition(disks, part)) => {
                    members += self.spec.disks.get(disks).map_or(0, |layout| layout.select.len());
                    let is_esp = part.role() == PartitionRole::Esp;
                    (esp, others) = (esp | is_esp, others | !is_esp);
                    if part.encrypt.is_some() {
                        let message =
                            format!("{name} is encrypted, and an array of encrypted partitions is not supported");
                        self.say(at, message, "encrypt the array itself");
                    }
                }
                Some(Member::Raid(_)) => {
                    let hint = "list partitions, or use level 10 for mirrors in stripes";
                    self.say(at, format!("{name} is an array, and arrays consist of partitions"), hint);
                }
                None => {
                    known = false;
                    self.unknown(name, &at);
                }
            }
        }
        if known && members < fewest && !raid.from.is_empty() {
            let message = format!("RAID {} needs {fewest} partitions or more, and this has {members}", raid.level);
            self.say(at("from"), message, "list one partition of each disk; a name on several disks means all of them");
        }
        if raid.from.is_empty() {
            self.say(at("from"), "the array has no members", "list the names of partitions");
        }
        if esp && others {
            let hint = "list only partitions with the role esp";
            self.say(at("from"), "the array has members that are EFI system partitions and others", hint);
        } else if esp && raid.level != 1 {
            let hint = "write level: 1";
            self.say(
                at("level"),
                "firmware reads one member alone, so EFI system partitions can only be mirrored",
                hint,
            );
        }
        if esp && raid.encrypt.is_some() {
            self.say(at("encrypt"), "firmware cannot read an encrypted EFI system partition", "remove the field");
        }
    }

    fn unknown(&mut self, name: &str, path: &str) {
        let known: Vec<&str> =
            self.spec.disks.iter().flat_map(|layout| &layout.partitions).map(PartitionSpec::name).collect();
        let hint = format!("the partitions are {}", known.join(", "));
        self.say(path, format!("there is no partition \"{name}\""), hint);
    }

    fn group(&mut self, group: &'a VolumeGroupSpec, path: &str) {
        let at = |field: &str| format!("{path}.{field}");
        if group.from.is_empty() {
            self.say(at("from"), "the group has no members", "list the names of partitions or arrays");
        }
        for (n, name) in group.from.iter().enumerate() {
            let at = format!("{path}.from[{n}]");
            match self.spec.member(name) {
                Some(Member::Partition(_, part)) if part.role() == PartitionRole::Esp => {
                    self.say(at, "an EFI system partition cannot be part of a volume group", "list another partition");
                }
                Some(Member::Raid(raid)) if self.spec.is_esp(raid) => {
                    self.say(at, "an EFI system partition cannot be part of a volume group", "list another array");
                }
                Some(_) => {}
                None => self.unknown(name, &at),
            }
        }
        if group.volumes.is_empty() || group.volumes.len() > MAX_VOLUMES {
            let message = format!("the group has {} volumes", group.volumes.len());
            self.say(at("volumes"), message, format!("list 1 to {MAX_VOLUMES}"));
        }
        let sizes =
            group.volumes.iter().enumerate().map(|(n, volume)| (format!("{path}.volumes[{n}].size"), volume.size()));
        self.sizes(&sizes.collect::<Vec<_>>());
        let mut names = BTreeMap::new();
        for (n, volume) in group.volumes.iter().enumerate() {
            let path = format!("{path}.volumes[{n}]");
            let at = format!("{path}.name");
            if let Some((message, hint)) = volume_name_fault(&volume.name) {
                self.say(at, message, hint);
            } else if names.insert(volume.name.as_str(), n).is_some() {
                let message = format!("two volumes of {} are called \"{}\"", group.name, volume.name);
                self.say(at, message, "give each its own name");
            }
            self.content(volume.content(), &path, &volume.name, 1, volume.mount.is_some());
        }
    }

    /// No device is a member twice, and none that is preserved or has another use is one.
    fn used_once(&mut self) {
        let mut users: BTreeMap<&str, &str> = BTreeMap::new();
        let raids = self.spec.raids.iter().enumerate().map(|(n, raid)| (format!("raids[{n}]"), &raid.name, &raid.from));
        let groups = self.spec.volume_groups.iter().enumerate();
        let groups = groups.map(|(n, group)| (format!("volumeGroups[{n}]"), &group.name, &group.from));
        for (path, user, from) in raids.chain(groups) {
            for (n, name) in from.iter().enumerate() {
                let at = format!("{path}.from[{n}]");
                if let Some(other) = users.insert(name, user) {
                    self.say(&at, format!("{name} is a member of {other} already"), "list each device once");
                }
                let Some(Member::Partition(_, part)) = self.spec.member(name) else { continue };
                if part.preserve {
                    let message = format!("{name} is preserved, and {user} would overwrite it");
                    self.say(at, message, "remove preserve, or list another partition");
                } else if matches!(part.role(), PartitionRole::BiosBoot | PartitionRole::Swap) {
                    let message = format!("a partition with the role {} cannot be a member", part.role().as_str());
                    self.say(at, message, "remove the role");
                }
            }
        }
    }
}
