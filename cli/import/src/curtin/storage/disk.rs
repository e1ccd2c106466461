//! `disk`: which one, and its table.

use landfall_api::{DiskLayoutSpec, DiskSelector, TableSpec};
use serde_json::{Map, Value, json};

use super::{Reader, Thing};
use crate::{device, fields::Fields, todo};

/// What curtin itself only shows.
const SHOWN: [&str; 7] = ["model", "vendor", "info", "multipath", "nvme_controller", "idata", "device_id"];

impl Reader<'_> {
    pub(super) fn disk(&mut self, id: &str, entry: &mut Fields<'_>) -> bool {
        for name in SHOWN {
            entry.get(name);
        }
        if entry.has("name") {
            let message = "the links in /dev/disk/by-dname are not made; name file systems by label or UUID";
            self.report.note(entry.line, message);
            entry.get("name");
        }
        entry.get("grub_device");
        let Some(selector) = self.selector(id, entry) else { return false };
        let index = self.spec.disks.len();
        let table = match entry.text("ptable") {
            Some(text) => match text.text.as_str() {
                "msdos" | "dos" | "mbr" => TableSpec::Mbr,
                "gpt" => TableSpec::Gpt,
                other => {
                    let message = format!("a partition table of the kind {other} has no counterpart; a GPT is made");
                    self.report.todo(text.line, message);
                    TableSpec::Gpt
                }
            },
            None => TableSpec::Gpt,
        };
        if table == TableSpec::Mbr {
            self.msdos.insert(index);
        }
        self.wipe(entry);
        if entry.truth("preserve") == Some(true) && self.version == 1 {
            let message = "partitions that are not listed are lost, and curtin kept them; list each with its \
                partition_name and preserve: true";
            self.report.todo(entry.line_of("preserve"), message);
        }
        self.spec.disks.push(DiskLayoutSpec { select: vec![selector], table, partitions: Vec::new() });
        self.things.insert(id.to_owned(), Thing::Disk(index));
        true
    }

    fn selector(&mut self, id: &str, entry: &mut Fields<'_>) -> Option<DiskSelector> {
        let (serial, wwn, path) = (entry.text("serial"), entry.text("wwn"), entry.text("path"));
        let matched = entry.map("match");
        let mut fields = Map::new();
        for (name, text) in [("serial", &serial), ("wwn", &wwn)] {
            if let Some(text) = text {
                fields.insert(name.to_owned(), text.text.clone().into());
            }
        }
        match path {
            Some(path) if path.text.starts_with("iscsi:") => {
                // Not repeated: it may hold a password.
                self.report
                    .todo(path.line, format!("{id} is an iSCSI disk, which Landfall does not attach; use a local one"));
                return None;
            }
            Some(path) if fields.is_empty() => {
                let (selector, known) = device::selector(&path.text);
                if let Some(known) = known {
                    self.report.note(path.line, format!("{}: {known}", path.text));
                }
                fields = selector.as_object().cloned().unwrap_or_default();
            }
            _ => {}
        }
        if let Some(mut matched) = matched {
            if let Some(ssd) = matched.truth("ssd") {
                fields.insert("rotational".to_owned(), Value::Bool(!ssd));
            }
            for name in ["serial", "model", "vendor"] {
                if let Some(text) = matched.text(name) {
                    let glob = text.text.contains(['*', '?']);
                    let value = if glob { format!("glob {}", text.text) } else { text.text };
                    fields.insert(name.to_owned(), value.into());
                }
            }
            matched.no_counterpart(
                &["size"],
                "write size: \">= 480GB\" or the like; exactly one disk must match",
                self.report,
            );
            matched.finish("match", self.report);
        }
        if fields.is_empty() {
            let message = format!("{id} has no serial, wwn or path; write a selector that exactly one disk matches");
            self.report.todo(entry.line, message);
            fields.insert("serial".to_owned(), json!(todo::value("serial")));
        }
        Some(DiskSelector(fields.into_iter().collect()))
    }

    /// What stood on a device is cleared in any case; more than that has no counterpart.
    pub(super) fn wipe(&mut self, entry: &mut Fields<'_>) {
        let Some(wipe) = entry.text("wipe") else { return };
        if !matches!(wipe.text.as_str(), "superblock" | "superblock-recursive" | "pvremove") {
            let message =
                format!("wipe: {} has no counterpart; tables and signatures are cleared, not all data", wipe.text);
            self.report.todo(wipe.line, message);
        }
    }
}
