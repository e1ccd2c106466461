//! rootio: partitions, file systems and mounts, from the storage section of the Hardware's metadata. Its three commands
//! become one `storage`.

use std::collections::BTreeMap;

use landfall_api::{
    DiskLayoutSpec, DiskSelector, FileSystem, PartitionRole, PartitionSpec, SizeSpec, StorageSpec, TableSpec,
    VolumeGroupSpec, VolumeSpec, YamlNode,
};
use serde_json::Value;

use super::{Context, List, Source};
use crate::fields::{Fields, is_true, text_of};
use crate::names::Unique;
use crate::report::Report;
use crate::{device, names};

/// What rootio counts sizes of partitions in, bytes.
const SECTOR: u64 = 512;

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    source.not_needed(&["MIRROR_HOST"], "the layout is written into the template", context);
    let mbr = source.env("MBR").is_some_and(|text| is_true(&text.text));
    let command = source.command.first().cloned().unwrap_or_default();
    if command == "wipe" {
        let what = "storage clears its disks by itself; for others write a wipe action";
        list.items.push(source.without_counterpart(what, context));
        return false;
    }
    if list.is_divided() {
        // The layout is complete already; what else the action says is reported.
        source.done("storage", Value::Null, context);
        return true;
    }
    let Some(hardware) = context.hardware else {
        let what = "add the file with the Hardware whose metadata.instance.storage it follows";
        list.items.push(source.without_counterpart(what, context));
        return false;
    };
    let Some(node) = hardware.storage() else {
        let what = format!("the Hardware {} has no metadata.instance.storage; write a storage action", hardware.name);
        list.items.push(source.without_counterpart(&what, context));
        return false;
    };
    // The layout stands in the Hardware's file.
    let file = context.report.file().to_owned();
    context.report.in_file(&hardware.file);
    let layout = layout(node, mbr, context.report);
    context.report.in_file(&file);
    list.divide(&layout);
    let spec = serde_json::to_value(layout).unwrap_or_default();
    list.items.push(source.done("storage", spec, context));
    true
}

/// Reads a layout; `devices` finds what stands at a path such as /dev/sda3.
struct Reader<'a> {
    spec: StorageSpec,
    /// Disk and partition by path.
    partitions: BTreeMap<(String, u32), (usize, usize)>,
    names: Unique,
    report: &'a mut Report,
}

fn layout(node: &YamlNode, mbr: bool, report: &mut Report) -> StorageSpec {
    let mut reader =
        Reader { spec: StorageSpec::default(), partitions: BTreeMap::new(), names: Unique::devices(), report };
    let Some(mut storage) = Fields::of(node) else { return reader.spec };
    for disk in storage.list("disks") {
        reader.disk(disk, mbr);
    }
    for group in storage.list("volume_groups") {
        reader.group(group);
    }
    for file_system in storage.list("filesystems") {
        reader.file_system(file_system);
    }
    storage.no_counterpart(&["raid"], "rootio makes no arrays; write raids in the storage action", reader.report);
    storage.finish("the storage", reader.report);
    reader.spec
}

impl Reader<'_> {
    fn disk(&mut self, node: &YamlNode, mbr: bool) {
        let Some(mut disk) = Fields::of(node) else { return };
        let path = disk.text("device").map(|text| text.text).unwrap_or_default();
        let (selector, known) = device::selector(&path);
        if let Some(known) = known {
            self.report.note(disk.line, format!("{path}: {known}"));
        }
        if disk.has("wipe_table") && disk.truth("wipe_table") == Some(false) {
            let message =
                "wipe_table is false, and storage makes the table anew; write preserve: true for what must stay";
            self.report.todo(disk.line_of("wipe_table"), message);
        }
        let mut partitions = Vec::new();
        for (index, node) in disk.list("partitions").iter().enumerate() {
            let (number, partition) = self.partition(node, index);
            self.partitions.insert((path.clone(), number), (self.spec.disks.len(), partitions.len()));
            partitions.push(partition);
        }
        disk.finish("the disk", self.report);
        self.report.count("rootio disk", true);
        let select = vec![DiskSelector(selector.as_object().cloned().unwrap_or_default().into_iter().collect())];
        let table = if mbr { TableSpec::Mbr } else { TableSpec::Gpt };
        self.spec.disks.push(DiskLayoutSpec { select, table, partitions });
    }

    fn partition(&mut self, node: &YamlNode, index: usize) -> (u32, PartitionSpec) {
        let Some(mut fields) = Fields::of(node) else { return (0, PartitionSpec::default()) };
        let label = fields.text("label").map(|text| text.text).unwrap_or_default();
        let number = fields.text("number").and_then(|text| text.text.parse().ok());
        let sectors: u64 = fields.text("size").and_then(|text| text.text.parse().ok()).unwrap_or(0);
        let size = match sectors.checked_mul(SECTOR) {
            Some(bytes) if bytes > 0 => SizeSpec::Bytes(bytes),
            _ => SizeSpec::Rest,
        };
        let role = match label.to_ascii_uppercase().as_str() {
            "SWAP" => Some(PartitionRole::Swap),
            "BIOS" => Some(PartitionRole::BiosBoot),
            "EFI" => Some(PartitionRole::Esp),
            _ => None,
        };
        let mut partition = PartitionSpec { role, size: Some(size), ..PartitionSpec::default() };
        partition.name = Some(self.names.give(names::device(if label.is_empty() { "part" } else { &label })));
        if role == Some(PartitionRole::Esp) {
            // Only what the file systems say is mounted.
            partition.mount = Some("none".to_owned());
        }
        fields.no_counterpart(&["start", "type_guid"], "the order and the role decide", self.report);
        fields.finish("the partition", self.report);
        self.report.count("rootio partition", true);
        (number.unwrap_or_else(|| u32::try_from(index + 1).unwrap_or_default()), partition)
    }

    fn at(&mut self, path: &str) -> Option<&mut PartitionSpec> {
        let (disk, number) = device::split(path);
        let (disk, partition) = self.partitions.get(&(disk, number?)).copied()?;
        self.spec.disks.get_mut(disk)?.partitions.get_mut(partition)
    }

    fn group(&mut self, node: &YamlNode) {
        let Some(mut fields) = Fields::of(node) else { return };
        let name = fields.text("name").map(|text| names::device(&text.text)).unwrap_or_default();
        let mut from = Vec::new();
        for member in fields.list("physical_volumes") {
            let path = text_of(member).unwrap_or_default();
            match self.at(&path).map(|part| part.name().to_owned()) {
                Some(name) => from.push(name),
                None => {
                    self.report.todo(member.line, format!("{path} is none of the partitions above; list it in from"))
                }
            }
        }
        let mut volumes = Vec::new();
        for volume in fields.list("logical_volumes") {
            let Some(mut fields) = Fields::of(volume) else { continue };
            let name = fields.text("name").map(|text| names::device(&text.text)).unwrap_or_default();
            let bytes = fields.text("size").and_then(|text| text.text.parse().ok()).filter(|bytes: &u64| *bytes > 0);
            let size = Some(bytes.map_or(SizeSpec::Rest, SizeSpec::Bytes));
            fields.no_counterpart(&["tags", "opts"], "LVM's defaults are used", self.report);
            fields.finish("the volume", self.report);
            self.report.count("rootio volume", true);
            volumes.push(VolumeSpec { name, size, ..VolumeSpec::default() });
        }
        fields.no_counterpart(&["tags"], "LVM's defaults are used", self.report);
        fields.finish("the volume group", self.report);
        self.spec.volume_groups.push(VolumeGroupSpec { name, from, volumes });
    }

    fn file_system(&mut self, node: &YamlNode) {
        let Some(mut mount) = Fields::of(node).and_then(|mut fields| fields.map("mount")) else { return };
        let path = mount.text("device").map(|text| text.text).unwrap_or_default();
        let stated = mount.text("format").map(|text| text.text).unwrap_or_default();
        let format = match stated.as_str() {
            "ext4" => Some(FileSystem::Ext4),
            "xfs" => Some(FileSystem::Xfs),
            "btrfs" => Some(FileSystem::Btrfs),
            "vfat" => Some(FileSystem::Vfat),
            "swap" => Some(FileSystem::Swap),
            "ext2" | "ext3" => {
                self.report.todo(mount.line, format!("{stated} has no counterpart; the file system becomes ext4"));
                Some(FileSystem::Ext4)
            }
            _ => None,
        };
        let point = mount.text("point").map(|text| text.text).filter(|point| point.starts_with('/'));
        let label = self.label(&mut mount);
        let line = mount.line;
        mount.no_counterpart(&["files"], "write each with a writeFile", self.report);
        mount.finish("the mount", self.report);
        let known = format.is_some();
        if !known {
            self.report
                .todo(line, format!("the file system \"{stated}\" is not supported; choose ext4, xfs, btrfs or vfat"));
        }
        let volume = || path.strip_prefix("/dev/").and_then(|path| path.split_once('/'));
        let found = if let Some(part) = self.at(&path) {
            if point.as_deref() == Some("/") {
                part.role = part.role.or(Some(PartitionRole::Root));
            }
            (part.format, part.label, part.mount) = (format, label, point.or_else(|| part.mount.take()));
            true
        } else if let Some((group, name)) = volume()
            && let Some(group) = self.spec.volume_groups.iter_mut().find(|found| found.name == group)
            && let Some(volume) = group.volumes.iter_mut().find(|found| found.name == name)
        {
            (volume.format, volume.label, volume.mount) = (format, label, point);
            true
        } else {
            self.report.todo(line, format!("{path} is none of the partitions and volumes above; add it to the layout"));
            false
        };
        self.report.count("rootio file system", found && known);
    }

    /// The label among the options of mkfs; others are reported.
    fn label(&mut self, mount: &mut Fields<'_>) -> Option<String> {
        let mut create = mount.map("create")?;
        let words: Vec<String> = create.list("options").iter().filter_map(text_of).collect();
        create.get("force");
        let line = create.line;
        create.finish("create", self.report);
        match words.as_slice() {
            [] => None,
            [flag, label] if flag == "-L" || flag == "-n" => Some(label.clone()),
            _ => {
                let message = format!("the options \"{}\" have no counterpart; only a label is taken", words.join(" "));
                self.report.todo(line, message);
                let at = words.iter().position(|word| word == "-L")?;
                words.get(at + 1).cloned()
            }
        }
    }
}
