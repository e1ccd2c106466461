//! `format` and `mount`: what stands on a device, and where.

use landfall_api::FileSystem;

use super::Reader;
use crate::fields::Fields;

impl Reader<'_> {
    pub(super) fn format(&mut self, id: &str, entry: &mut Fields<'_>) -> bool {
        entry.get("name");
        let volume = entry.text("volume").map(|text| text.text).unwrap_or_default();
        let stated = entry.text("fstype").map(|text| text.text).unwrap_or_default();
        let label = entry.text("label").map(|text| text.text).filter(|label| !label.is_empty());
        let preserve = entry.truth("preserve") == Some(true);
        entry.no_counterpart(&["uuid"], "UUIDs follow from the workflow, and fstab names them", self.report);
        entry.no_counterpart(&["extra_options"], "file systems get mkfs' defaults", self.report);
        let Some(thing) = self.thing(&volume, entry.line) else { return false };
        let thing = self.whole(thing, &volume, entry.line);
        let format = match stated.as_str() {
            "ext4" => FileSystem::Ext4,
            "xfs" => FileSystem::Xfs,
            "btrfs" => FileSystem::Btrfs,
            "vfat" | "fat" | "fat32" | "fat16" | "fat12" | "fat64" => FileSystem::Vfat,
            "swap" => FileSystem::Swap,
            "ext2" | "ext3" => {
                let message = format!("{stated} has no counterpart; the file system becomes ext4");
                self.report.todo(entry.line_of("fstype"), message);
                FileSystem::Ext4
            }
            other => {
                let message = format!("{id}: the file system {other} has no counterpart; choose ext4, xfs or btrfs");
                self.report.todo(entry.line_of("fstype"), message);
                return false;
            }
        };
        let Some(stands) = self.stands(thing) else {
            self.report.todo(entry.line, format!("{id}: no file system can stand on {volume}; name a device"));
            return false;
        };
        *stands.format = Some(format);
        // What stays has its label.
        *stands.label = label.filter(|_| !preserve);
        self.things.insert(id.to_owned(), thing);
        true
    }

    pub(super) fn mount(&mut self, entry: &mut Fields<'_>) -> bool {
        let path = entry.text("path").map(|text| text.text).unwrap_or_default();
        let options = entry.text("options").map(|text| text.text);
        let options = options.filter(|options| !matches!(options.as_str(), "" | "defaults"));
        for name in ["freq", "passno", "fstype"] {
            // fstab's last two fields follow from the file system.
            entry.get(name);
        }
        if entry.has("spec") {
            let spec = entry.text("spec").map(|text| text.text).unwrap_or_default();
            let message = format!(
                "the line of fstab for {spec} at {path} has no counterpart; add it with an exec in the installed system"
            );
            self.report.todo(entry.line, message);
            entry.rest();
            return false;
        }
        let device = entry.text("device").map(|text| text.text).unwrap_or_default();
        let Some(thing) = self.thing(&device, entry.line) else { return false };
        let Some(stands) = self.stands(thing) else {
            self.report.todo(entry.line, format!("{device} has no file system; it cannot be mounted at {path}"));
            return false;
        };
        if path.starts_with('/') {
            *stands.mount = Some(path);
        }
        *stands.options = options;
        true
    }
}
