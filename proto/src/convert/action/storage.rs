//! `storage`.

use landfall_api::message::StorageResult;
use landfall_api::{
    DiskLayoutSpec, EncryptSpec, PartitionSpec, RaidSpec, SecretText, Storage, StorageSpec, SubvolumeSpec,
    VolumeGroupSpec, VolumeSpec,
};

use crate::convert::{ConvertError, codec::*, word::*};
use crate::v1;

impl TryFrom<v1::Storage> for Storage {
    type Error = ConvertError;

    fn try_from(wire: v1::Storage) -> Result<Self, ConvertError> {
        let layout = StorageSpec {
            keys: wire.keys.keys().map(|name| (name.clone(), String::new())).collect(),
            disks: list::from("disks", wire.disks)?,
            raids: list::from("raids", wire.raids)?,
            volume_groups: list::from("groups", wire.groups)?,
        };
        let keys = wire.keys.into_iter().map(|(name, key)| (name, SecretText::new(key))).collect();
        Ok(Self { layout, keys })
    }
}

impl From<Storage> for v1::Storage {
    fn from(storage: Storage) -> Self {
        let Storage { layout: StorageSpec { keys: _, disks, raids, volume_groups }, keys } = storage;
        Self {
            disks: list::to(disks),
            raids: list::to(raids),
            groups: list::to(volume_groups),
            keys: keys.into_iter().map(|(name, key)| (name, key.into_exposed())).collect(),
        }
    }
}

wire! {
    DiskLayoutSpec = v1::StorageDisks { select: selectors, table: word, partitions: list }
    PartitionSpec = v1::StoragePartition {
        name: text_if_any, role: word_if_any, size: word_if_any, preserve,
        ..content: v1::StorageContent {
            format: word_if_any, label: text_if_any, mount: text_if_any, options: text_if_any, subvolumes: list,
            encrypt: one_if_any,
        }
    }
    RaidSpec = v1::StorageRaid {
        level: level, name: text, from,
        ..content: v1::StorageContent {
            format: word_if_any, label: text_if_any, mount: text_if_any, options: text_if_any, subvolumes: list,
            encrypt: one_if_any,
        }
    }
    VolumeGroupSpec = v1::StorageGroup { volumes: list, name: text, from }
    VolumeSpec = v1::StorageVolume {
        name: text, size: word_if_any,
        ..content: v1::StorageContent {
            format: word_if_any, label: text_if_any, mount: text_if_any, options: text_if_any, subvolumes: list,
            encrypt: one_if_any,
        }
    }
    SubvolumeSpec = v1::StorageSubvolume { name: text, mount: text_if_any, options: text_if_any }
    EncryptSpec = v1::StorageEncrypt { key: text, name: text_if_any }
    StorageResult = v1::StorageResult { disks: list, written }
}

codec! {
    level: u32 => u8,
        |field, wire| u8::try_from(wire).map_err(|error| ConvertError::new(field, error)), |level| level.into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::convert::testing::{refused, survives};

    fn storage() -> Storage {
        let spec: StorageSpec = serde_json::from_value(json!({
            "keys": {"disk": "geheim"},
            "disks": [
                {"select": [{"serial": "A"}, {"serial": "B"}], "partitions": [{"role": "esp", "size": "1GiB"}, {"name": "pv"}]},
                {"table": "mbr", "partitions": [{"role": "root", "format": "btrfs", "label": "wurzel",
                    "subvolumes": [{"name": "@", "mount": "/", "options": "noatime"}, {"name": "@home"}]}]},
                {"partitions": [{"name": "old data", "preserve": true, "format": "xfs", "mount": "/srv", "options": "ro"}]},
            ],
            "raids": [{"name": "m", "level": 1, "from": ["pv"], "encrypt": {"key": "disk", "name": "crypt"}}],
            "volumeGroups": [{"name": "vg", "from": ["m"], "volumes": [
                {"name": "swap", "size": "10%", "format": "swap"}, {"name": "rest", "size": "rest", "format": "none"}]}],
        }))
        .unwrap();
        spec.resolved()
    }

    #[test]
    fn a_layout_survives_the_wire_and_shows_no_key() {
        survives::<v1::Storage, _>(storage());
    }

    #[test]
    fn a_layout_with_unknown_words_is_refused_by_its_field() {
        refused::<v1::Storage, _>(
            storage(),
            &[
                ("disks.table", |wire| wire.disks[0].table.clear()),
                ("disks.table", |wire| wire.disks[0].table = "apm".into()),
                ("disks.partitions.role", |wire| wire.disks[0].partitions[0].role = "rood".into()),
                ("disks.partitions.size", |wire| wire.disks[0].partitions[0].size = "big".into()),
                ("raids.level", |wire| wire.raids[0].level = 256),
                ("raids.content.encrypt.key", |wire| {
                    wire.raids[0].content.as_mut().unwrap().encrypt.as_mut().unwrap().key.clear();
                }),
                ("groups.volumes.content.format", |wire| {
                    wire.groups[0].volumes[0].content.as_mut().unwrap().format = "ntfs".into();
                }),
            ],
        );
    }
}
