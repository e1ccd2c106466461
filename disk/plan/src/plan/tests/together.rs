//! What devices of one layout mean for each other: names, sectors, alignment.

use super::*;

#[test]
fn options_of_swap_are_in_fstab() {
    let tree = json!({"disks": [{"partitions": [{"role": "swap", "options": "pri=5,discard"}]}]});
    let plan = planned(tree, &[disk("sda", 8 * GIB, 512)]).unwrap();
    assert!(plan.texts.fstab.ends_with(" none swap pri=5,discard 0 0\n"), "{}", plan.texts.fstab);
}

#[test]
fn two_devices_of_one_name_are_refused() {
    let mut disks = [disk("sda", 8 * GIB, 512), disk("sdb", 8 * GIB, 512)];
    let (kind, guid) = (Uuid::from_u128(5), Uuid::from_u128(6));
    disks[0].kept = vec![KeptPartition { name: "data-1".into(), number: 1, kind, guid, first: 1 << 20, last: 1 << 21 }];
    disks[1].kept = disks[0].kept.clone();
    let both = json!([{"serial": "A"}, {"serial": "B"}]);
    let volumes = |one: serde_json::Value, other: serde_json::Value| {
        json!({"keys": {"k": ""}, "disks": [{"partitions": [{"name": "pv", "size": "2GiB"}, {"name": "pw"}]}],
            "volumeGroups": [{"name": "a", "from": ["pv"], "volumes": [one]}, {"name": "a-b", "from": ["pw"], "volumes": [other]}]})
    };
    let key = json!({"key": "k"});
    for (tree, name) in [
        // By the first a partition that stays would be found again; it is one of two then.
        (
            json!({"disks": [{"select": both, "partitions": [{"name": "data", "size": "1GiB"}, {"name": "data-1", "preserve": true}]}]}),
            "data-1",
        ),
        (
            json!({"keys": {"k": ""}, "disks": [{"select": both, "partitions": [{"name": "data", "encrypt": key}]},
                {"select": [{"serial": "C"}], "partitions": [{"name": "data-2", "encrypt": key}]}]}),
            "crypt-data-2",
        ),
        (volumes(json!({"name": "b-c", "encrypt": key}), json!({"name": "c", "encrypt": key})), "crypt-a-b-c"),
        (volumes(json!({"name": "v", "encrypt": {"key": "k", "name": "a--b-w"}}), json!({"name": "w"})), "a--b-w"),
    ] {
        let count = layout(tree.clone()).disks.iter().map(|disk| disk.select.len()).sum::<usize>();
        let mut disks = disks.to_vec();
        disks.push(disk("sdc", 8 * GIB, 512));
        let refused = planned(tree, &disks[..count]).unwrap_err();
        assert!(matches!(&refused, PlanError::SameName { name: same, .. } if same == name), "{name}: {refused}");
    }
    assert!(planned(volumes(json!({"name": "b-c"}), json!({"name": "c"})), &disks[..1]).is_ok(), "a-b--c and a--b-c");
}

#[test]
fn mixed_sectors_make_no_group_and_no_system_partition() {
    let disks = [disk("sda", 8 * GIB, 512), disk("sdb", 8 * GIB, 4096)];
    let select = json!([{"serial": "A"}, {"serial": "B"}]);
    let group = json!({"disks": [{"select": select, "partitions": [{"name": "pv"}]}],
        "volumeGroups": [{"name": "vg", "from": ["pv"], "volumes": [{"name": "v"}]}]});
    let mirror = |role: &str| {
        json!({"disks": [{"select": select, "partitions": [{"role": role, "size": "1GiB"}]}],
            "raids": [{"name": "m", "level": 1, "from": [role]}]})
    };
    for tree in [group, mirror("esp")] {
        assert_eq!(planned(tree, &disks).unwrap_err().code(), ErrorCode::WrongSectorSize);
    }
    assert!(planned(mirror("data"), &disks).is_ok());
}

#[test]
fn what_stands_on_an_array_is_aligned_to_its_stripes() {
    let disks: Vec<PlanDisk> = ["sda", "sdb", "sdc", "sdd"].map(|name| disk(name, 8 * GIB, 512)).into();
    let select: Vec<_> = disks.iter().map(|disk| json!({"name": disk.disk.id.name})).collect();
    for (level, offset, start) in
        [(5, 33 << 19, 3 << 19), (0, 16 * MIB, 2 * MIB), (10, 16 * MIB, MIB), (1, 16 * MIB, MIB)]
    {
        let tree = json!({"keys": {"k": ""}, "disks": [{"select": select, "partitions": [{"name": "p"}]}],
            "raids": [{"name": "r", "level": level, "from": ["p"], "encrypt": {"key": "k"}}],
            "volumeGroups": [{"name": "vg", "from": ["r"], "volumes": [{"name": "v"}]}]});
        let plan = planned(tree, &disks).unwrap();
        let found = plan
            .steps
            .iter()
            .find_map(|step| if let Step::Encrypt { offset, .. } = step { Some(*offset) } else { None });
        let first = plan
            .steps
            .iter()
            .find_map(|step| if let Step::Group { members, .. } = step { Some(members[0].start) } else { None });
        assert_eq!((found, first), (Some(offset), Some(start)), "RAID {level}");
    }
}
