//! `raid`: an md array.

use landfall_api::RaidSpec;

use super::{Reader, Thing};
use crate::{fields::Fields, names};

impl Reader<'_> {
    pub(super) fn raid(&mut self, id: &str, entry: &mut Fields<'_>) -> bool {
        let name = entry.text("name").map_or_else(|| id.to_owned(), |text| text.text);
        let level = entry.text("raidlevel");
        let stated = level.as_ref().map(|text| text.text.to_ascii_lowercase()).unwrap_or_default();
        let level = match stated.trim_start_matches("raid") {
            "0" | "stripe" => 0,
            "1" | "mirror" => 1,
            "5" => 5,
            "6" => 6,
            "10" => 10,
            other => {
                self.report.todo(entry.line, format!("RAID {other} is not supported; write level 0, 1, 5, 6 or 10"));
                entry.rest();
                return false;
            }
        };
        let from = self.members("devices", entry);
        if !entry.list("spare_devices").is_empty() {
            let message = "spare_devices has no counterpart; add spares in the installed system with mdadm --add";
            self.report.todo(entry.line_of("spare_devices"), message);
        }
        let metadata = entry.text("metadata").filter(|text| !matches!(text.text.as_str(), "default" | "1.2"));
        if let Some(metadata) = metadata {
            let message =
                format!("metadata {} has no counterpart; arrays have 1.2, those of an ESP 1.0", metadata.text);
            self.report.todo(metadata.line, message);
        }
        let what = "an array has one file system or is part of a volume group; make volumes in place of partitions";
        entry.no_counterpart(&["ptable", "container"], what, self.report);
        if entry.truth("preserve") == Some(true) {
            let message = "an array is made anew, and curtin kept it; keep its data elsewhere, or do not list it";
            self.report.todo(entry.line_of("preserve"), message);
        }
        self.wipe(entry);
        entry.get("path");
        entry.get("mdname");
        self.things.insert(id.to_owned(), Thing::Raid(self.spec.raids.len()));
        let name = if is_number(&name) {
            let message = format!("the array is called array-{name}: mdadm reads {name} as the number of a device");
            self.report.note(entry.line, message);
            format!("array-{name}")
        } else {
            name
        };
        let name = self.names.give(names::device(&name));
        self.spec.raids.push(RaidSpec { name, level, from, ..RaidSpec::default() });
        true
    }
}

/// Whether mdadm reads the name of an array as a number that the kernel gives (mdadm(8), DEVICE NAMES).
fn is_number(name: &str) -> bool {
    let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    ["", "d", "md", "md_d"].iter().any(|start| name.strip_prefix(start).is_some_and(number))
}
