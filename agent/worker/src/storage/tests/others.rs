//! What the layout's disks have in common with disks that it does not take.

use landfall_api::ErrorCode;
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
