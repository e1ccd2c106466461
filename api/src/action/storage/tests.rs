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
fn simple_and_layered_layouts_are_taken() {
    for spec in [
        one(json!([{"role": "root"}])),
        one(json!([{"role": "esp"}, {"role": "swap", "size": "4GiB"}, {"role": "root"}])),
        one(json!([{"role": "biosBoot"}, {"role": "root", "format": "btrfs",
            "subvolumes": [{"name": "@", "mount": "/"}, {"name": "@home", "mount": "/home", "options": "noatime"}]}])),
        one(json!([{"name": "My Data", "preserve": true, "mount": "/srv", "format": "xfs"}, {"role": "root"}])),
        json!({"disks": [{"table": "mbr", "partitions": [{"role": "root", "size": "50%"}]}]}),
        two(),
    ] {
        assert_eq!(of(spec.clone()), [""; 0], "{spec}");
    }
}

#[test]
fn each_fault_of_a_partition_is_named_at_its_field() {
    let many = vec![json!({"name": "p"}); 128];
    for (partitions, fields) in [
        (json!([]), vec!["disks[0].partitions"]),
        (json!([{"role": "root"}, {"role": "home"}]), vec!["disks[0].partitions[1].size"]),
        (
            json!([{"role": "root", "size": "60%"}, {"role": "home", "size": "41%"}]),
            vec!["disks[0].partitions[1].size"],
        ),
        (json!([{"role": "root", "size": "big"}]), vec!["disks[0].partitions[0].size"]),
        (json!([{"role": "root", "size": 500}]), vec!["disks[0].partitions[0].size"]),
        (json!([{"role": "rood"}]), vec!["disks[0].partitions[0].role"]),
        (json!([{"name": "a b"}]), vec!["disks[0].partitions[0].name"]),
        (json!([{"name": "{{ params.release }}"}]), vec!["disks[0].partitions[0].name"]),
        (json!([{"size": "1GiB"}, {}]), vec!["disks[0].partitions[1].name"]),
        (json!([{"role": "esp", "format": "ext4"}]), vec!["disks[0].partitions[0].format"]),
        (json!([{"role": "biosBoot", "format": "ext4"}]), vec!["disks[0].partitions[0]"]),
        (json!([{"role": "root", "format": "swap", "mount": "/"}]), vec!["disks[0].partitions[0].mount"]),
        (json!([{"role": "root", "mount": "srv"}]), vec!["disks[0].partitions[0].mount"]),
        (json!([{"role": "root", "mount": "/a/../b"}]), vec!["disks[0].partitions[0].mount"]),
        (json!([{"role": "root", "size": "1GiB"}, {"mount": "/"}]), vec!["disks[0].partitions[1].mount"]),
        (json!([{"role": "root", "options": "noatime nodev"}]), vec!["disks[0].partitions[0].options"]),
        (json!([{"options": "noatime"}]), vec!["disks[0].partitions[0].options"]),
        (json!([{"label": "x"}]), vec!["disks[0].partitions[0].label"]),
        (json!([{"role": "esp", "label": "twelve-bytes"}]), vec!["disks[0].partitions[0].label"]),
        (json!([{"role": "esp", "label": "a.b"}]), vec!["disks[0].partitions[0].label"]),
        (json!([{"role": "esp", "label": "größe"}]), vec!["disks[0].partitions[0].label"]),
        (json!([{"role": "esp", "label": " x"}]), vec!["disks[0].partitions[0].label"]),
        (
            json!([{"role": "root", "format": "xfs", "subvolumes": [{"name": "@"}]}]),
            vec!["disks[0].partitions[0].subvolumes"],
        ),
        (
            json!([{"role": "root", "subvolumes": [{"name": "../a"}]}]),
            vec!["disks[0].partitions[0].subvolumes[0].name"],
        ),
        (json!([{"role": "root", "encrypt": {"key": "k"}}]), vec!["disks[0].partitions[0].encrypt.key"]),
        (json!([{"preserve": true}]), vec!["disks[0].partitions[0].name"]),
        (json!([{"name": "d", "preserve": true, "size": "1GiB"}]), vec!["disks[0].partitions[0].size"]),
        (json!([{"name": "d", "preserve": true, "format": "xfs", "label": "x"}]), vec!["disks[0].partitions[0].label"]),
        (json!(many), vec!["disks[0].partitions"]),
    ] {
        let found = of(one(partitions.clone()));
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>()[..fields.len()], fields, "{partitions}");
    }
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
fn an_expression_contradicts_nothing_before_it_has_a_value() {
    let some = "{{ params.release }}";
    for spec in [
        one(
            json!([{"role": "esp", "size": some}, {"role": "root", "size": some, "format": some, "mount": some, "label": some}]),
        ),
        one(json!(some)),
        json!({"disks": [{"select": some, "partitions": [{"name": "md"}]}],
            "raids": [{"name": "r", "level": 1, "from": ["md"]}]}),
        changed(two(), "/raids/1/level", json!(some)),
        changed(two(), "/raids", json!(some)),
        changed(two(), "/disks/0/select/0", json!({"serial": some})),
    ] {
        assert_eq!(of(spec.clone()), [""; 0], "{spec}");
    }
    assert_eq!(of(one(json!([{"role": "root", "encrypt": {"key": some}}]))), ["disks[0].partitions[0].encrypt.key"]);
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
