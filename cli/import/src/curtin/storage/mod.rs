//! curtin's storage configuration, versions 1 and 2: a list of entries that name each other, as one `storage` action.

mod crypt;
mod disk;
mod format;
mod lvm;
mod partition;
mod raid;
mod size;

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::{
    DiskSelector, EncryptSpec, FileSystem, Member, PartitionRole, PartitionSpec, StorageSpec, YamlNode,
};
use serde_json::{Value, json};

use crate::fields::{Fields, items};
use crate::names::Unique;
use crate::report::Report;

/// What the storage section comes to.
#[derive(Debug)]
pub(super) struct Layout {
    /// The fields of the action; `todo` names what is missing.
    pub(super) spec: Value,
    /// The selector of the disk with the root, else of the first.
    pub(super) disk: Value,
    /// Whether there are partitions, and not only disks.
    pub(super) is_divided: bool,
    /// Whether the root stands on it.
    pub(super) has_root: bool,
}

/// What an entry's id stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    Disk(usize),
    Partition(usize, usize),
    Raid(usize),
    Group(usize),
    Volume(usize, usize),
}

/// Reads the entries in their order.
struct Reader<'a> {
    version: u64,
    spec: StorageSpec,
    things: BTreeMap<String, Thing>,
    /// Entries without a counterpart, with their lines: what stands on them has none either.
    lost: BTreeMap<String, u64>,
    /// Ids of disks whose table is of the old kind.
    msdos: BTreeSet<usize>,
    names: Unique,
    report: &'a mut Report,
}

/// The file system on a device and its mount point.
struct Stands<'a> {
    format: &'a mut Option<FileSystem>,
    label: &'a mut Option<String>,
    mount: &'a mut Option<String>,
    options: &'a mut Option<String>,
    encrypt: &'a mut Option<EncryptSpec>,
}

/// Reads the section; `None` if it lists nothing.
pub(super) fn read(node: &YamlNode, report: &mut Report) -> Option<Layout> {
    // `storage: [entries]` is the version 1 without its frame.
    let (version, entries) = match items(node) {
        Some(entries) => (1, entries),
        None => {
            let mut section = Fields::of(node)?;
            let version = section.text("version").and_then(|text| text.text.parse().ok()).unwrap_or(1);
            let entries = section.get("config").and_then(items).unwrap_or_default();
            section.not_needed(&["device_map_path", "grub"], "the layout decides", report);
            section.no_counterpart(&["swap"], "add a partition with the role swap", report);
            section.finish("the storage", report);
            (version, entries)
        }
    };
    if !(1..=2).contains(&version) {
        report.todo(node.line, format!("version {version} of the storage configuration is not known; it is read as 1"));
    }
    let mut reader = Reader {
        version,
        spec: StorageSpec::default(),
        things: BTreeMap::new(),
        lost: BTreeMap::new(),
        msdos: BTreeSet::new(),
        names: Unique::devices(),
        report,
    };
    for entry in entries {
        reader.entry(entry);
    }
    (!entries.is_empty()).then(|| reader.finish(node.line))
}

impl Reader<'_> {
    fn entry(&mut self, node: &YamlNode) {
        let Some(mut entry) = Fields::of(node) else {
            return self.report.todo(node.line, "this is no entry of a storage configuration; it is left out");
        };
        let id = entry.text("id").map(|text| text.text).unwrap_or_default();
        let kind = entry.text("type").map(|text| text.text).unwrap_or_default();
        let mapped = match kind.as_str() {
            "disk" => self.disk(&id, &mut entry),
            "partition" => self.partition(&id, &mut entry),
            "format" => self.format(&id, &mut entry),
            "mount" => self.mount(&mut entry),
            "raid" => self.raid(&id, &mut entry),
            "lvm_volgroup" => self.group(&id, &mut entry),
            "lvm_partition" => self.volume(&id, &mut entry),
            "dm_crypt" => self.crypt(&id, &mut entry),
            "nvme_controller" => {
                entry.rest();
                self.report.note(entry.line, "the NVMe controller is left out: its disks are found by their own ids");
                true
            }
            _ => {
                entry.rest();
                let message =
                    format!("{id}: the type {kind} has no counterpart; use partitions, raids or volumeGroups");
                self.report.todo(entry.line, message);
                false
            }
        };
        if !mapped {
            self.lost.insert(id.clone(), node.line);
        }
        self.report.count(format!("storage {kind}"), mapped);
        entry.finish(&format!("{kind} {id}"), self.report);
    }

    /// What an id stands for; a finding if it is nothing.
    fn thing(&mut self, id: &str, line: u64) -> Option<Thing> {
        let found = self.things.get(id).copied();
        if found.is_none() {
            let message = match self.lost.get(id) {
                Some(at) => format!("it stands on {id} (line {at}), which has no counterpart; it is left out"),
                None => format!("there is no entry {id} before this one; it is left out"),
            };
            self.report.todo(line, message);
        }
        found
    }

    /// A disk as a device of its own: it gets one partition, because Landfall's file systems and members stand on these.
    fn whole(&mut self, thing: Thing, id: &str, line: u64) -> Thing {
        let Thing::Disk(disk) = thing else { return thing };
        let name = self.names.give(crate::names::device(id));
        let Some(layout) = self.spec.disks.get_mut(disk) else { return thing };
        let partition = Thing::Partition(disk, layout.partitions.len());
        layout.partitions.push(PartitionSpec { name: Some(name), ..PartitionSpec::default() });
        self.things.insert(id.to_owned(), partition);
        self.report.note(line, format!("{id} is a whole disk: it gets one partition, and that is used"));
        partition
    }

    fn partition_at(&mut self, disk: usize, partition: usize) -> Option<&mut PartitionSpec> {
        self.spec.disks.get_mut(disk)?.partitions.get_mut(partition)
    }

    /// The names of members, in their order.
    fn members(&mut self, field: &str, entry: &mut Fields<'_>) -> Vec<String> {
        let mut out = Vec::new();
        for node in entry.list(field) {
            let Some(id) = crate::fields::text_of(node) else { continue };
            let Some(thing) = self.thing(&id, node.line) else { continue };
            let thing = self.whole(thing, &id, node.line);
            let name = match thing {
                Thing::Partition(disk, partition) => {
                    self.partition_at(disk, partition).map(|part| part.name().to_owned())
                }
                Thing::Raid(raid) => self.spec.raids.get(raid).map(|raid| raid.name.clone()),
                Thing::Disk(_) | Thing::Group(_) | Thing::Volume(..) => {
                    self.report.todo(node.line, format!("{id} cannot be a member; list partitions or arrays"));
                    None
                }
            };
            out.extend(name);
        }
        out
    }

    /// Where a file system, a mount point and encryption are stated.
    fn stands(&mut self, thing: Thing) -> Option<Stands<'_>> {
        macro_rules! stands {
            ($at:expr) => {{
                let at = $at?;
                Some(Stands {
                    format: &mut at.format,
                    label: &mut at.label,
                    mount: &mut at.mount,
                    options: &mut at.options,
                    encrypt: &mut at.encrypt,
                })
            }};
        }
        match thing {
            Thing::Partition(disk, partition) => stands!(self.partition_at(disk, partition)),
            Thing::Raid(raid) => stands!(self.spec.raids.get_mut(raid)),
            Thing::Volume(group, volume) => stands!(self.spec.volume_groups.get_mut(group)?.volumes.get_mut(volume)),
            Thing::Disk(_) | Thing::Group(_) => None,
        }
    }

    fn finish(mut self, line: u64) -> Layout {
        self.roles();
        let is_divided = self.spec.disks.iter().any(|disk| !disk.partitions.is_empty());
        let disk = self.disk_of_root();
        for (index, layout) in self.spec.disks.iter().enumerate() {
            if layout.partitions.is_empty() && is_divided {
                let id = self.things.iter().find(|(_, thing)| **thing == Thing::Disk(index)).map(|(id, _)| id.as_str());
                let message = format!("the disk {} is left as it is: nothing stands on it", id.unwrap_or_default());
                self.report.note(line, message);
            }
        }
        self.spec.disks.retain(|layout| !layout.partitions.is_empty());
        self.spec.volume_groups.retain(|group| !group.volumes.is_empty());
        let mut spec = serde_json::to_value(&self.spec).unwrap_or_default();
        if let (Some(fields), false) = (spec.as_object_mut(), self.lost.is_empty()) {
            let lost: Vec<String> = self.lost.keys().map(|id| format!("{id} has no counterpart")).collect();
            fields.insert("todo".to_owned(), json!(lost));
        }
        Layout { spec, disk, is_divided, has_root: self.spec.mounts_root() }
    }

    /// What partitions are for follows from where they are mounted.
    fn roles(&mut self) {
        let spec = self.spec.clone();
        for part in self.spec.disks.iter_mut().flat_map(|layout| &mut layout.partitions) {
            if part.role.is_some() || spec.is_member(part.name()) {
                continue;
            }
            part.role = match (part.mount.as_deref(), part.format) {
                (Some("/"), _) => Some(PartitionRole::Root),
                (Some("/boot"), _) => Some(PartitionRole::Boot),
                (Some("/boot/efi"), _) => Some(PartitionRole::Esp),
                (Some("/home"), _) => Some(PartitionRole::Home),
                (Some("/srv"), _) => Some(PartitionRole::Srv),
                (Some("/var"), _) => Some(PartitionRole::Var),
                (_, Some(FileSystem::Swap)) => Some(PartitionRole::Swap),
                _ => None,
            };
        }
        for part in self.spec.disks.iter_mut().flat_map(|layout| &mut layout.partitions) {
            let is_esp = part.role == Some(PartitionRole::Esp);
            if is_esp && part.mount.is_none() && !part.preserve && !spec.is_member(part.name()) {
                part.mount = Some("none".to_owned());
            }
        }
    }

    fn disk_of_root(&self) -> Value {
        let is_root = |mount: &Option<String>| mount.as_deref() == Some("/");
        let of_member = |name: &str| match self.spec.member(name)? {
            Member::Partition(disk, _) => Some(disk),
            Member::Raid(raid) => match self.spec.member(raid.from.first()?)? {
                Member::Partition(disk, _) => Some(disk),
                Member::Raid(_) => None,
            },
        };
        let partition = self.spec.disks.iter().position(|disk| disk.partitions.iter().any(|part| is_root(&part.mount)));
        let raid = || of_member(&self.spec.raids.iter().find(|raid| is_root(&raid.mount))?.name);
        let group = || {
            let has_root = |volumes: &[landfall_api::VolumeSpec]| volumes.iter().any(|volume| is_root(&volume.mount));
            of_member(self.spec.volume_groups.iter().find(|group| has_root(&group.volumes))?.from.first()?)
        };
        let first = || self.spec.disks.iter().position(|disk| !disk.partitions.is_empty());
        let disk = partition.or_else(raid).or_else(group).or_else(first).unwrap_or(0);
        let select = self.spec.disks.get(disk).and_then(|disk| disk.select.first());
        select.map_or_else(|| json!({}), |DiskSelector(fields)| json!(fields))
    }
}
