//! `lvm_volgroup` and `lvm_partition`.

use landfall_api::{SizeSpec, VolumeGroupSpec, VolumeSpec};

use super::{Reader, Thing};
use crate::{fields::Fields, names};

impl Reader<'_> {
    pub(super) fn group(&mut self, id: &str, entry: &mut Fields<'_>) -> bool {
        let name = entry.text("name").map_or_else(|| id.to_owned(), |text| text.text);
        let from = self.members("devices", entry);
        self.kept(entry);
        entry.get("uuid");
        self.things.insert(id.to_owned(), Thing::Group(self.spec.volume_groups.len()));
        let name = self.names.give(names::device(&name));
        self.spec.volume_groups.push(VolumeGroupSpec { name, from, volumes: Vec::new() });
        true
    }

    pub(super) fn volume(&mut self, id: &str, entry: &mut Fields<'_>) -> bool {
        let name = entry.text("name").map_or_else(|| id.to_owned(), |text| text.text);
        let group = entry.text("volgroup").map(|text| text.text).unwrap_or_default();
        let size = self.size(id, entry).or(Some(SizeSpec::Rest));
        self.kept(entry);
        self.wipe(entry);
        entry.get("path");
        let Some(thing) = self.thing(&group, entry.line) else { return false };
        let Thing::Group(index) = thing else {
            self.report.todo(entry.line, format!("{id}: {group} is no volume group"));
            return false;
        };
        let Some(found) = self.spec.volume_groups.get_mut(index) else { return false };
        self.things.insert(id.to_owned(), Thing::Volume(index, found.volumes.len()));
        found.volumes.push(VolumeSpec { name: names::device(&name), size, ..VolumeSpec::default() });
        true
    }

    fn kept(&mut self, entry: &mut Fields<'_>) {
        if entry.truth("preserve") == Some(true) {
            let message = "LVM is made anew, and curtin kept it; keep its data elsewhere, or do not list it";
            self.report.todo(entry.line_of("preserve"), message);
        }
    }
}
