//! `storage`.

use landfall_api::{
    DiskId, DiskLayoutSpec, EncryptSpec, PartitionSpec, RaidSpec, SecretText, SizeSpec, Storage, StorageSpec,
    SubvolumeSpec, VolumeGroupSpec, VolumeSpec, message::StorageResult,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::{
    ConvertError, Within as _,
    scalar::text,
    selector::{selector, selector_to_wire},
};
use crate::v1;

/// The fields that every device has, from the wire. They are the fields of several types.
macro_rules! with_content {
    ($content:expr, $made:ident { $($own:ident: $value:expr),* $(,)? }) => {{
        let wire: v1::StorageContent = $content.unwrap_or_default();
        $made {
            $($own: $value,)*
            format: word("content.format", &wire.format)?,
            label: stated(wire.label),
            mount: stated(wire.mount),
            options: stated(wire.options),
            subvolumes: all(wire.subvolumes).within("content.subvolumes")?,
            encrypt: wire.encrypt.map(EncryptSpec::try_from).transpose().within("content.encrypt")?,
        }
    }};
}

/// The same, to the wire.
macro_rules! content_of {
    ($spec:ident) => {
        Some(v1::StorageContent {
            format: $spec.format.map(|format| format.name().to_owned()).unwrap_or_default(),
            label: $spec.label.unwrap_or_default(),
            mount: $spec.mount.unwrap_or_default(),
            options: $spec.options.unwrap_or_default(),
            subvolumes: $spec.subvolumes.into_iter().map(Into::into).collect(),
            encrypt: $spec.encrypt.map(Into::into),
        })
    };
}

/// Empty: the document does not state it.
fn stated(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A word of a document; empty: it is not stated.
fn word<T: DeserializeOwned>(field: &'static str, text: &str) -> Result<Option<T>, ConvertError> {
    let read = |text: &str| serde_json::from_value(Value::from(text)).map_err(|error| ConvertError::new(field, error));
    Some(text).filter(|text| !text.is_empty()).map(read).transpose()
}

fn size(text: &str) -> Result<Option<SizeSpec>, ConvertError> {
    word("size", text)
}

fn all<W, T: TryFrom<W, Error = ConvertError>>(wire: Vec<W>) -> Result<Vec<T>, ConvertError> {
    wire.into_iter().map(T::try_from).collect()
}

impl TryFrom<v1::Storage> for Storage {
    type Error = ConvertError;

    fn try_from(wire: v1::Storage) -> Result<Self, ConvertError> {
        let layout = StorageSpec {
            keys: wire.keys.keys().map(|name| (name.clone(), String::new())).collect(),
            disks: all(wire.disks).within("disks")?,
            raids: all(wire.raids).within("raids")?,
            volume_groups: all(wire.groups).within("groups")?,
        };
        let keys = wire.keys.into_iter().map(|(name, key)| (name, SecretText::new(key))).collect();
        Ok(Self { layout, keys })
    }
}

impl From<Storage> for v1::Storage {
    fn from(storage: Storage) -> Self {
        let Storage { layout: StorageSpec { keys: _, disks, raids, volume_groups }, keys } = storage;
        Self {
            disks: disks.into_iter().map(Into::into).collect(),
            raids: raids.into_iter().map(Into::into).collect(),
            groups: volume_groups.into_iter().map(Into::into).collect(),
            keys: keys.into_iter().map(|(name, key)| (name, key.into_exposed())).collect(),
        }
    }
}

impl TryFrom<v1::StorageDisks> for DiskLayoutSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::StorageDisks) -> Result<Self, ConvertError> {
        Ok(Self {
            select: wire.select.into_iter().map(|one| selector(one.fields)).collect(),
            table: word("table", &wire.table)?.ok_or_else(|| ConvertError::missing("table"))?,
            partitions: all(wire.partitions).within("partitions")?,
        })
    }
}

impl From<DiskLayoutSpec> for v1::StorageDisks {
    fn from(spec: DiskLayoutSpec) -> Self {
        Self {
            select: spec.select.into_iter().map(|one| v1::Selector { fields: selector_to_wire(one) }).collect(),
            table: spec.table.as_str().to_owned(),
            partitions: spec.partitions.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::StoragePartition> for PartitionSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::StoragePartition) -> Result<Self, ConvertError> {
        Ok(with_content!(
            wire.content,
            PartitionSpec {
                name: stated(wire.name),
                role: word("role", &wire.role)?,
                size: size(&wire.size)?,
                preserve: wire.preserve,
            }
        ))
    }
}

impl From<PartitionSpec> for v1::StoragePartition {
    fn from(spec: PartitionSpec) -> Self {
        Self {
            name: spec.name.unwrap_or_default(),
            role: spec.role.map(|role| role.as_str().to_owned()).unwrap_or_default(),
            size: spec.size.map(|size| size.to_string()).unwrap_or_default(),
            preserve: spec.preserve,
            content: content_of!(spec),
        }
    }
}

impl TryFrom<v1::StorageRaid> for RaidSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::StorageRaid) -> Result<Self, ConvertError> {
        let level = u8::try_from(wire.level).map_err(|error| ConvertError::new("level", error))?;
        Ok(with_content!(wire.content, RaidSpec { name: text("name", wire.name)?, level: level, from: wire.from }))
    }
}

impl From<RaidSpec> for v1::StorageRaid {
    fn from(spec: RaidSpec) -> Self {
        Self { name: spec.name, level: spec.level.into(), from: spec.from, content: content_of!(spec) }
    }
}

impl TryFrom<v1::StorageGroup> for VolumeGroupSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::StorageGroup) -> Result<Self, ConvertError> {
        let volumes = all(wire.volumes).within("volumes")?;
        Ok(Self { name: text("name", wire.name)?, from: wire.from, volumes })
    }
}

impl From<VolumeGroupSpec> for v1::StorageGroup {
    fn from(spec: VolumeGroupSpec) -> Self {
        Self { name: spec.name, from: spec.from, volumes: spec.volumes.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<v1::StorageVolume> for VolumeSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::StorageVolume) -> Result<Self, ConvertError> {
        Ok(with_content!(wire.content, VolumeSpec { name: text("name", wire.name)?, size: size(&wire.size)? }))
    }
}

impl From<VolumeSpec> for v1::StorageVolume {
    fn from(spec: VolumeSpec) -> Self {
        let size = spec.size.map(|size| size.to_string()).unwrap_or_default();
        Self { name: spec.name, size, content: content_of!(spec) }
    }
}

impl TryFrom<v1::StorageSubvolume> for SubvolumeSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::StorageSubvolume) -> Result<Self, ConvertError> {
        Ok(Self { name: text("name", wire.name)?, mount: stated(wire.mount), options: stated(wire.options) })
    }
}

impl From<SubvolumeSpec> for v1::StorageSubvolume {
    fn from(spec: SubvolumeSpec) -> Self {
        let SubvolumeSpec { name, mount, options } = spec;
        Self { name, mount: mount.unwrap_or_default(), options: options.unwrap_or_default() }
    }
}

impl TryFrom<v1::StorageEncrypt> for EncryptSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::StorageEncrypt) -> Result<Self, ConvertError> {
        Ok(Self { key: text("key", wire.key)?, name: stated(wire.name) })
    }
}

impl From<EncryptSpec> for v1::StorageEncrypt {
    fn from(spec: EncryptSpec) -> Self {
        Self { key: spec.key, name: spec.name.unwrap_or_default() }
    }
}

impl From<v1::StorageResult> for StorageResult {
    fn from(wire: v1::StorageResult) -> Self {
        Self { disks: wire.disks.into_iter().map(DiskId::from).collect(), written: wire.written }
    }
}

impl From<StorageResult> for v1::StorageResult {
    fn from(result: StorageResult) -> Self {
        Self { disks: result.disks.into_iter().map(v1::DiskId::from).collect(), written: result.written }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn storage() -> Storage {
        let spec: StorageSpec = serde_json::from_value(json!({
            "keys": {"disk": "geheim"},
            "disks": [
                {"select": [{"serial": "A"}, {"serial": "B"}], "partitions": [{"role": "esp", "size": "1GiB"}, {"name": "pv"}]},
                {"table": "mbr", "partitions": [{"role": "root", "format": "btrfs", "label": "wurzel",
                    "subvolumes": [{"name": "@", "mount": "/", "options": "noatime"}, {"name": "@home"}]}]},
                {"partitions": [{"name": "old data", "preserve": true, "format": "xfs", "mount": "/srv", "options": "ro"}]},
            ],
            "raids": [{"name": "m", "level": 1, "from": ["pv"], "encrypt": {"key": "disk", "name": "geheimnis"}}],
            "volumeGroups": [{"name": "vg", "from": ["m"], "volumes": [
                {"name": "swap", "size": "10%", "format": "swap"}, {"name": "rest", "size": "rest", "format": "none"}]}],
        }))
        .unwrap();
        spec.resolved()
    }

    #[test]
    fn a_layout_survives_the_wire_and_shows_no_key() {
        let storage = storage();
        assert!(!format!("{storage:?}").contains("geheim\""), "{storage:?}");
        assert_eq!(Storage::try_from(v1::Storage::from(storage.clone())), Ok(storage));
    }

    #[test]
    fn a_layout_with_unknown_words_is_refused_by_its_field() {
        type Spoil = fn(&mut v1::Storage);
        let cases: [(&str, Spoil); 7] = [
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
        ];
        for (field, spoil) in cases {
            let mut wire = v1::Storage::from(storage());
            spoil(&mut wire);
            assert_eq!(Storage::try_from(wire).unwrap_err().field(), field);
        }
    }
}
