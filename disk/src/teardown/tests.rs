//! What is stopped, in which order, and what is not.

use proptest::prelude::*;

use super::parse::{mounts, swaps};
use super::stops::{idle, stops};
use super::{Active, ActiveDevice, ActivePool, Stop, StopError};

fn device(name: &str, under: &[&str]) -> ActiveDevice {
    let under = under.iter().map(|name| (*name).to_owned()).collect();
    ActiveDevice { name: name.into(), number: format!("9:{name}"), under, ..ActiveDevice::default() }
}

fn partition(name: &str, disk: &str) -> ActiveDevice {
    ActiveDevice { partition: true, ..device(name, &[disk]) }
}

fn mapped(name: &str, mapper: &str, uuid: &str, under: &[&str]) -> ActiveDevice {
    ActiveDevice { mapper: Some(mapper.into()), mapper_uuid: uuid.into(), ..device(name, under) }
}

/// Two disks with a mirror, LVM on it, LUKS on a volume; and a third disk with a file system.
fn layered() -> Active {
    Active {
        devices: vec![
            mapped("dm-1", "crypt-home", "CRYPT-LUKS2-x", &["dm-0"]),
            mapped("dm-0", "vg0-home", "LVM-x", &["md127"]),
            mapped("dm-2", "vg0-swap", "LVM-y", &["md127"]),
            device("md127", &["sda2", "sdb2"]),
            partition("sda2", "sda"),
            partition("sdb2", "sdb"),
            partition("sda1", "sda"),
            device("sda", &[]),
            device("sdb", &[]),
            device("sdc", &[]),
        ],
        mounts: mounts(
            "20 1 9:sdc / / rw - ext4 /dev/sdc rw\n21 20 0:31 / /mnt rw - btrfs /dev/mapper/crypt-home rw\n\
             22 21 9:sda1 / /mnt/a\\040b rw shared:1 - vfat /dev/sda1 rw\n",
        ),
        swaps: swaps("Filename Type Size Used Priority\n/dev/sdc9 partition 1 0 -2\n"),
        pools: Vec::new(),
    }
}

#[test]
fn an_old_system_is_stopped_from_the_top_down() {
    let found = stops(&layered(), &["sda", "sdb"]).unwrap();
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "unmount /mnt/a b", "unmount /mnt", "close crypt-home", "close vg0-swap", "close vg0-home",
            "stop array md127",
        ]
    );
}

#[test]
fn what_also_stands_on_another_disk_is_not_stopped() {
    let refused = stops(&layered(), &["sda"]).unwrap_err().to_string();
    assert_eq!(refused, "md127 stands on sda and on sdb, which this action does not take");
}

#[test]
fn btrfs_that_also_stands_on_another_disk_is_not_unmounted() {
    let mut active = layered();
    let on = |devices: &[&str]| {
        let devices = devices.iter().map(|name| (*name).to_owned()).collect();
        vec![ActivePool { name: "btrfs 1".into(), devices }]
    };
    let whole = stops(&active, &["sda", "sdb"]).unwrap();
    for devices in [&["dm-1", "sda1"][..], &["sdb"], &["sdc", "sdd"]] {
        active.pools = on(devices);
        assert_eq!(stops(&active, &["sda", "sdb"]).unwrap(), whole, "{devices:?}");
    }
    // Whichever of them its mount names; and a partition of a disk stands for the disk.
    active.devices.push(partition("sdc2", "sdc"));
    for devices in [["dm-1", "sdc2"], ["sdc2", "sda1"]] {
        active.pools = on(&devices);
        let refused = stops(&active, &["sda", "sdb"]).unwrap_err().to_string();
        assert_eq!(refused, "btrfs 1 stands on sda and on sdc, which this action does not take");
    }
}

#[test]
fn what_cannot_be_stopped_is_refused() {
    assert!(matches!(stops(&layered(), &["sdc"]), Err(StopError::RunningSystem { .. })));
    let mut active = layered();
    active.swaps = swaps("Filename Type Size Used Priority\n/dev/dm-2 partition 1 0 -2\n");
    let refused = stops(&active, &["sda", "sdb"]).unwrap_err().to_string();
    assert_eq!(refused, "vg0-swap stands on sda, and stopping swap space is not supported");
    let mut active = layered();
    active.devices.push(mapped("dm-9", "mpatha", "mpath-1", &["sdd"]));
    active.devices.push(device("sdd", &[]));
    assert!(matches!(stops(&active, &["sdd"]), Err(StopError::Unsupported { .. })));
    active.devices.push(device("bcache0", &["sde"]));
    assert!(matches!(stops(&active, &["sde"]), Err(StopError::Unsupported { .. })));
}

#[test]
fn a_free_disk_needs_no_stop() {
    assert_eq!(stops(&Active::default(), &["sda"]).unwrap(), []);
}

#[test]
fn what_nothing_uses_is_closed_whatever_it_spans() {
    let mut active = layered();
    // Something of it is mounted.
    assert_eq!(idle(&active, "sda"), []);
    active.mounts.clear();
    let shown: Vec<String> = idle(&active, "sda").iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["close crypt-home", "close vg0-swap", "close vg0-home", "stop array md127"]);
    assert_eq!(idle(&active, "sdc"), []);
    active.swaps = swaps("Filename Type Size Used Priority\n/dev/dm-2 partition 1 0 -2\n");
    assert_eq!(idle(&active, "sdb"), []);
}

proptest! {
    #[test]
    fn nothing_is_stopped_before_what_stands_on_it(links in prop::collection::vec((0_usize..8, 0_usize..8), 0..20)) {
        // Devices 0 and 1 are disks; each other one stands on earlier ones.
        let mut devices: Vec<ActiveDevice> = (0..10).map(|n| device(&format!("md{n}"), &[])).collect();
        for (high, low) in links {
            let (high, low) = (high + 2, low.min(high + 1));
            let under = format!("md{low}");
            if !devices[high].under.contains(&under) {
                devices[high].under.push(under);
            }
        }
        let names: Vec<String> = devices.iter().filter(|d| d.under.is_empty()).map(|d| d.name.clone()).collect();
        let disks: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = stops(&Active { devices: devices.clone(), ..Active::default() }, &disks).unwrap();
        prop_assert_eq!(found.len(), devices.len() - disks.len());
        let at = |name: &str| found.iter().position(|stop| *stop == Stop::Array(name.into()));
        for device in &devices {
            for under in device.under.iter().filter(|under| at(under).is_some()) {
                prop_assert!(at(&device.name) < at(under));
            }
        }
    }

    #[test]
    fn wild_descriptions_end_and_never_panic(links in prop::collection::vec((0_usize..6, 0_usize..6), 0..20), text in ".*") {
        let mut devices: Vec<ActiveDevice> = (0..6).map(|n| device(&format!("md{n}"), &[])).collect();
        for (a, b) in links {
            devices[a].under.push(format!("md{b}"));
        }
        let pools = vec![ActivePool { name: "pool".into(), devices: vec!["md1".into(), "md2".into()] }];
        // Only a panic or a loop without an end fails this test.
        let _ = stops(&Active { devices, pools, mounts: mounts(&text), swaps: swaps(&text) }, &["md0"]);
    }
}
