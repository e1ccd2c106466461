//! What the layout's disks have in common with disks that it does not take.

use std::collections::BTreeMap;

use landfall_api::ErrorCode;
use landfall_plan::{Device, GroupMember, Step};
use nix::mount::{MsFlags, mount, umount};

use super::*;

/// A person who wants this disk whatever is on it.
fn person(run: &mut Assignment) {
    (run.person_authorised, run.force) = (true, true);
}

#[test]
fn btrfs_that_also_stands_on_another_disk_stays_mounted() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "root"}]}]}));
    let (Some(taken), Some(other)) = (device(128 * MIB, 512), device(129 * MIB, 512)) else { return };
    for (one, two) in [(&taken, &other), (&other, &taken)] {
        let made = process::Command::new("mkfs.btrfs")
            .args(["-q", "-f", "-d", "raid1", "-m", "raid1"])
            .args([&one.path, &two.path])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let at = tempfile::tempdir().unwrap();
        let devices = format!("device={},device={}", one.path.display(), two.path.display());
        mount(Some(&one.path), at.path(), Some("btrfs"), MsFlags::empty(), Some(devices.as_str())).unwrap();
        fs::write(at.path().join("file"), "x").unwrap();
        let refused = perform(&storage, &[taken.facts()], 9, person).map(|_| ());
        let (taken_name, other_name) = (taken.facts().id.name, other.facts().id.name);
        let read = fs::read_to_string(at.path().join("file"));
        umount(at.path()).unwrap();
        let problem = refused.unwrap_err().problem;
        assert_eq!(problem.code, ErrorCode::DiskInUse);
        let words = format!(" stands on {taken_name} and on {other_name}, which this action does not take");
        assert!(problem.message.starts_with("btrfs ") && problem.message.ends_with(&words), "{problem}");
        assert_eq!(read.unwrap(), "x", "it is mounted");
    }
}

fn with_group(name: &str) -> Storage {
    storage(json!({"disks": [{"partitions": [{"name": "pv"}]}],
        "volumeGroups": [{"name": name, "from": ["pv"], "volumes": [{"name": "root", "mount": "/"}]}]}))
}

/// Answers for LVM that a group `vg0` is on this device.
struct HasGroup(PathBuf);

impl Tools for HasGroup {
    fn read(&self, command: &Command, each: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        assert_eq!((command.program, command.arguments[0].as_str()), ("lvm", "pvs"), "a disk was changed");
        each(&format!("LVM2_PV_NAME='{}' LVM2_VG_NAME='vg0'", self.0.display()));
        Ok(())
    }
}

#[test]
fn a_group_name_of_another_disk_changes_nothing() {
    let (Some(taken), Some(other)) = (device(64 * MIB, 512), device(65 * MIB, 512)) else { return };
    let refused = perform_with(&HasGroup(other.path.clone()), &with_group("vg0"), &[taken.facts()], |_| {});
    let problem = refused.unwrap_err().problem;
    assert_eq!(problem.code, ErrorCode::DiskInUse);
    let words = format!(
        "volume group vg0: one of this name is on {0} of disk {1}, ",
        other.path.display(),
        other.facts().id.name
    );
    assert!(problem.message.contains(&words), "{problem}");
    assert!(fs::read(&taken.path).unwrap().iter().all(|byte| *byte == 0));
}

/// Makes a volume group of this device alone, as a storage action does.
fn make_group(group: &str, at: &Path) -> Result<(), Failure> {
    let device = Device::Partition { disk: 0, number: 1 };
    let members = vec![GroupMember { device, uuid: Uuid::new_v4(), start: MIB }];
    let step = Step::Group { name: group.into(), members };
    let report = Reporter::new(std::io::sink());
    let (path, keys) = (|_: &Device| at.into(), BTreeMap::new());
    let means = commands::Means::new(std::slice::from_ref(&step), &path, &keys);
    let made = commands::make(&step, &means).unwrap();
    made.iter().try_for_each(|command| Installed { report: &report }.run(command))
}

#[test]
fn lvm_itself_says_which_groups_are_elsewhere() {
    let (Some(taken), Some(other)) = (device(64 * MIB, 512), device(65 * MIB, 512)) else { return };
    let (ours, theirs) = (format!("ours{}", process::id()), format!("theirs{}", process::id()));
    if let Err(failed) = make_group(&theirs, &other.path) {
        return eprintln!("SKIPPED: no volume group: {}", failed.problem);
    }
    // As an earlier attempt left it.
    make_group(&ours, &taken.path).unwrap();
    // LVM is asked, and no program runs after it.
    let asked = |group: &str| perform(&with_group(group), &[taken.facts()], 1, person).unwrap_err().problem;
    let problem = asked(&theirs);
    let words = format!("is on {} of disk ", other.path.display());
    assert!(problem.code == ErrorCode::DiskInUse && problem.message.contains(&words), "{problem}");
    assert_eq!(asked(&ours).message, "the power was cut");
}

#[test]
fn a_group_on_a_kept_partition_stops_the_layout() {
    let Some(device) = device(160 * MIB, 512) else { return };
    let first = storage(json!({"disks": [{"partitions": [{"name": "kept", "size": "64MiB"}, {"role": "root"}]}]}));
    assert!(perform(&first, &[device.facts()], 9, |_| {}).unwrap());
    let group = format!("kept{}", process::id());
    if let Err(failed) = make_group(&group, &device.partition(1)) {
        return eprintln!("SKIPPED: no volume group: {}", failed.problem);
    }
    let second = |name: &str| {
        storage(json!({"disks": [{"partitions": [{"name": "kept", "preserve": true}, {"name": "pv"}]}],
            "volumeGroups": [{"name": name, "from": ["pv"], "volumes": [{"name": "root", "mount": "/"}]}]}))
    };
    let later = |run: &mut Assignment| {
        run.workflow_uid = workflow(2);
        person(run);
    };
    let before = fs::read(&device.path).unwrap();
    let problem = perform(&second(&group), &[device.facts()], 9, later).unwrap_err().problem;
    let words = format!("volume group {group}: one of this name is on {} of disk ", device.partition(1).display());
    assert!(problem.code == ErrorCode::DiskInUse && problem.message.contains(&words), "{problem}");
    assert!(fs::read(&device.path).unwrap() == before, "the disk was changed");
    // Of another name there may be one: only then the disk is written.
    assert_eq!(
        perform(&second("other"), &[device.facts()], 1, later).unwrap_err().problem.message,
        "the power was cut"
    );
    assert!(fs::read(&device.path).unwrap() != before);
}
