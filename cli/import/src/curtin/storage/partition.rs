//! `partition`: one of a disk.

use landfall_api::{PartitionRole, PartitionSpec, SizeSpec};

use super::{Reader, Thing, size::size};
use crate::fields::{Fields, Text};
use crate::{names, todo};

/// Types of a GPT by their GUID, of those that have a role (UEFI 2.10, table 5.7; the BIOS boot partition is GRUB's).
const TYPES: [(&str, PartitionRole); 3] = [
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", PartitionRole::Esp),
    ("21686148-6449-6e6f-744e-656564454649", PartitionRole::BiosBoot),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", PartitionRole::Swap),
];
/// Of those that need none: Linux' own, its RAID and its LVM.
const PLAIN: [&str; 3] = [
    "0fc63daf-8483-4772-8e79-3d69d8477de4", "a19d880f-05fc-4d3b-a006-743f0f84911e",
    "e6d6d379-f507-44c2-a23c-238f2a3df928",
];

impl Reader<'_> {
    pub(super) fn partition(&mut self, id: &str, entry: &mut Fields<'_>) -> bool {
        let device = entry.text("device").map(|text| text.text).unwrap_or_default();
        let disk = match self.thing(&device, entry.line) {
            Some(Thing::Disk(disk)) => disk,
            Some(_) => {
                let message =
                    format!("{id}: {device} is no disk, and only disks are divided; use a volume group on it");
                self.report.todo(entry.line, message);
                entry.rest();
                return false;
            }
            None => {
                entry.rest();
                return false;
            }
        };
        let mbr = self.msdos.contains(&disk);
        let flag = entry.text("flag");
        if flag.as_ref().is_some_and(|flag| flag.text == "extended") {
            self.report.note(entry.line, format!("{id} is left out: its logical partitions become primary ones"));
            entry.rest();
            return true;
        }
        let mut part = PartitionSpec { size: self.size(id, entry), ..PartitionSpec::default() };
        part.role = self.role(flag, mbr);
        let kind = entry.text("partition_type");
        if let Some(kind) = kind.filter(|_| part.role.is_none()) {
            let guid = kind.text.to_ascii_lowercase();
            part.role = TYPES.iter().find(|(known, _)| *known == guid).map(|(_, role)| *role);
            if part.role.is_none() && !PLAIN.contains(&guid.as_str()) && !mbr {
                self.report
                    .todo(kind.line, format!("the type {guid} has no counterpart; the partition is one for data"));
            }
        }
        let stated = entry.text("partition_name");
        part.preserve = entry.truth("preserve") == Some(true);
        part.name = Some(match (part.preserve, stated) {
            (true, Some(name)) => name.text,
            (true, None) => {
                let message = format!("{id} stays, and is found by its name; write what lsblk -o PARTLABEL shows");
                self.report.todo(entry.line, message);
                todo::value("partition_name")
            }
            (false, stated) => {
                let name = stated.map_or_else(|| id.to_owned(), |name| name.text);
                self.names.give(names::device(&name))
            }
        });
        if part.preserve {
            part.size = None;
            if entry.truth("resize") == Some(true) {
                let message = "a partition that stays is not resized; grow it in the installed system";
                self.report.todo(entry.line_of("resize"), message);
            }
            if entry.has("wipe") {
                let message = "the content of a partition that stays is not cleared; remove preserve to make it anew";
                self.report.todo(entry.line_of("wipe"), message);
                entry.get("wipe");
            }
        }
        self.wipe(entry);
        entry.no_counterpart(&["uuid"], "UUIDs follow from the workflow", self.report);
        entry.no_counterpart(&["attrs"], "attributes of partitions are not set", self.report);
        // The order of the entries is that of the table.
        for name in ["number", "offset", "name", "multipath", "path", "resize", "idata"] {
            entry.get(name);
        }
        let Some(layout) = self.spec.disks.get_mut(disk) else { return false };
        self.things.insert(id.to_owned(), Thing::Partition(disk, layout.partitions.len()));
        layout.partitions.push(part);
        true
    }

    /// The size in an entry; without one it is the rest.
    pub(super) fn size(&mut self, id: &str, entry: &mut Fields<'_>) -> Option<SizeSpec> {
        let text = entry.text("size")?;
        let size = size(&text.text);
        if size.is_none() {
            let message = format!("\"{}\" is no size of {id}; it becomes the rest of the space", text.text);
            self.report.todo(text.line, message);
        }
        size.or(Some(SizeSpec::Rest))
    }

    fn role(&mut self, flag: Option<Text>, mbr: bool) -> Option<PartitionRole> {
        let flag = flag?;
        match flag.text.as_str() {
            "boot" if mbr => {
                self.report.note(flag.line, "the flag boot is left out: the boot loader finds its partition by itself");
                None
            }
            "boot" | "esp" => Some(PartitionRole::Esp),
            "bios_grub" => Some(PartitionRole::BiosBoot),
            "swap" => Some(PartitionRole::Swap),
            "logical" | "lvm" | "raid" | "home" | "linux" | "" => None,
            other => {
                self.report
                    .todo(flag.line, format!("the flag {other} has no counterpart; the partition is one for data"));
                None
            }
        }
    }
}
