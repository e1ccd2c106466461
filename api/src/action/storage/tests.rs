//! What layouts are refused, and where; and which are taken.

use serde_json::json;

use super::*;
use crate::validate::tests::faults;

const AT: &str = "spec.actions[0].storage";

fn of(spec: Value) -> Vec<String> {
    let found = faults(json!([{"name": "disks", "storage": spec}]));
    found
        .into_iter()
        .map(|(path, _)| path.strip_prefix(AT).unwrap_or(&path).trim_start_matches('.').to_owned())
        .collect()
}

/// A layout whose one disk has these partitions.
fn one(partitions: Value) -> Value {
    json!({"disks": [{"partitions": partitions}]})
}

/// Two disks with an EFI system partition and one for everything else.
fn two() -> Value {
    json!({
        "keys": {"disk": "{{ secrets.disk.passphrase }}"},
        "disks": [{"select": [{"serial": "A"}, {"serial": "B"}],
            "partitions": [{"role": "esp"}, {"name": "pv"}]}],
        "raids": [{"name": "esp-mirror", "level": 1, "from": ["esp"]},
            {"name": "system", "level": 1, "from": ["pv"], "encrypt": {"key": "disk"}}],
        "volumeGroups": [{"name": "vg0", "from": ["system"], "volumes": [
            {"name": "root", "size": "20GiB", "mount": "/"}, {"name": "swap", "size": "10%", "format": "swap"},
            {"name": "data", "format": "btrfs", "subvolumes": [{"name": "@srv", "mount": "/srv"}]}]}],
    })
}

fn changed(mut spec: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match spec.pointer_mut(parent).unwrap() {
        Value::Array(items) => items.insert(field.parse().unwrap(), value),
        map => map[field] = value,
    }
    spec
}

#[test]
fn a_disk_has_at_most_127_partitions() {
    assert_eq!(of(one(json!(vec![json!({"name": "p"}); 128])))[0], "disks[0].partitions");
}

#[test]
fn each_fault_between_devices_is_named_at_its_field() {
    for (pointer, value, field) in [
        ("/disks/0/select/2", json!({"colour": "red"}), "disks[0].select[2].colour"),
        (
            "/disks/0/partitions/2",
            json!({"role": "root", "size": "1GiB", "mount": "/x"}),
            "disks[0].partitions[2].mount",
        ),
        ("/disks/0/table", json!("mbr"), ""),
        ("/keys/disk", json!("geheim"), "keys.disk"),
        ("/raids/0/level", json!(0), "raids[0].level"),
        ("/raids/1/level", json!(3), "raids[1].level"),
        ("/raids/1/level", json!(6), "raids[1].from"),
        ("/raids/1/from", json!([]), "raids[1].from"),
        ("/raids/1/from", json!(["pw"]), "raids[1].from[0]"),
        ("/raids/1/from", json!(["pv", "pv"]), "raids[1].from[1]"),
        ("/raids/1/from", json!(["esp-mirror"]), "raids[1].from[0]"),
        ("/raids/1/from/1", json!("esp"), "raids[1].from"),
        ("/raids/1/name", json!("pv"), "raids[1].name"),
        ("/raids/1/name", json!("127"), "raids[1].name"),
        ("/raids/1/name", json!("md_d0"), "raids[1].name"),
        ("/raids/1/mount", json!("/opt"), "raids[1]"),
        ("/raids/0/encrypt", json!({"key": "disk"}), "raids[0].encrypt"),
        ("/volumeGroups/0/name", json!("snapshots"), "volumeGroups[0].name"),
        ("/volumeGroups/0/name", json!("mapper"), "volumeGroups[0].name"),
        ("/volumeGroups/0/volumes/1", json!({"name": "a_cvol", "size": "1GiB"}), "volumeGroups[0].volumes[1].name"),
        ("/volumeGroups/0/from", json!(["esp"]), "volumeGroups[0].from[0]"),
        ("/volumeGroups/0/volumes", json!([]), "volumeGroups[0].volumes"),
        ("/volumeGroups/0/volumes/1", json!({"name": "root", "size": "1GiB"}), "volumeGroups[0].volumes[1].name"),
        ("/volumeGroups/0/volumes/0/size", json!("rest"), "volumeGroups[0].volumes[2].size"),
        ("/volumeGroups/0/volumes/0/mount", json!("/srv"), "volumeGroups[0].volumes[2].subvolumes[0].mount"),
        ("/disks/0/partitions/1/format", json!("ext4"), "disks[0].partitions[1]"),
        ("/disks/0/partitions/1/preserve", json!(true), "raids[1].from[0]"),
    ] {
        let found = of(changed(two(), pointer, value.clone()));
        if field.is_empty() {
            assert!(found.is_empty(), "{pointer} {value}: {found:?}");
        } else {
            assert!(found.iter().any(|at| at == field), "{pointer} {value}: {found:?}");
        }
    }
}

#[test]
fn roles_say_what_is_not_stated() {
    let spec: StorageSpec = serde_json::from_value(two()).unwrap();
    let content = |n: usize| spec.of_partition(&spec.disks[0].partitions[n]);
    assert_eq!((content(0).format, content(0).mount), (None, None), "members have nothing of their own");
    let esp = spec.of_raid(&spec.raids[0]);
    assert_eq!((esp.format, esp.mount), (Some(FileSystem::Vfat), Some("/boot/efi")));
    let volume = |n: usize| spec.volume_groups[0].volumes[n].content();
    assert_eq!((volume(0).format, volume(1).mount), (Some(FileSystem::Ext4), None));
    assert_eq!((volume(2).format, volume(2).mount), (Some(FileSystem::Btrfs), None));
    let simple: StorageSpec =
        serde_json::from_value(one(json!([{"role": "esp"}, {"role": "root", "mount": "none"}, {"role": "biosBoot"}])))
            .unwrap();
    let part = |n: usize| &simple.disks[0].partitions[n];
    assert_eq!((part(0).name(), part(0).size()), ("esp", SizeSpec::Bytes(512 << 20)));
    assert_eq!(
        (simple.of_partition(part(1)).format, simple.of_partition(part(1)).mount),
        (Some(FileSystem::Ext4), None)
    );
    assert_eq!((part(2).size(), simple.of_partition(part(2)).format), (SizeSpec::Bytes(1 << 20), None));
}

#[test]
fn passphrases_leave_the_layout_and_never_show() {
    let spec: StorageSpec = serde_json::from_value(changed(two(), "/keys/disk", json!("geheim"))).unwrap();
    let sent = spec.resolved();
    assert_eq!((sent.keys["disk"].expose(), sent.layout.keys["disk"].as_str()), ("geheim", ""));
    assert!(!format!("{sent:?}").contains("geheim"));
    assert!(sent.layout.faults().is_empty(), "the names of the keys are still known");
}
