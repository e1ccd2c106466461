//! What uses a disk: mounts, swap, and devices built on top of it.

use std::{collections::BTreeSet, fs, io, path::Path};

use landfall_api::DiskFacts;

use crate::{DiskError, device_path};

/// Every reason why the disk counts as in use, one sentence each; empty: it is free. Checks the disk and each of its
/// partitions.
///
/// # Errors [`DiskError::Read`] if the mounts or swaps cannot be read: then the answer is unknown, so the disk must not
/// be written.
pub fn holders_of(disk: &DiskFacts) -> Result<Vec<String>, DiskError> {
    if disk.id.name.starts_with('/') {
        // A regular file given by its path: nothing in the kernel holds it as a disk.
        return Ok(Vec::new());
    }
    holders_in(disk, Path::new("/sys/block"), Path::new("/proc"))
}

fn holders_in(disk: &DiskFacts, block: &Path, proc: &Path) -> Result<Vec<String>, DiskError> {
    let dir = block.join(&disk.id.name);
    let mut numbers = BTreeSet::new();
    let mut devices = BTreeSet::from([device_path(disk).to_string_lossy().into_owned()]);
    let mut reasons = Vec::new();
    let mut parts = vec![(disk.id.name.clone(), dir.clone())];
    for entry in entries(&dir)? {
        if dir.join(&entry).join("partition").exists() {
            devices.insert(format!("/dev/{entry}"));
            parts.push((entry.clone(), dir.join(entry)));
        }
    }
    for (name, part) in &parts {
        if let Ok(number) = fs::read_to_string(part.join("dev")) {
            numbers.insert(number.trim().to_owned());
        }
        for holder in entries(&part.join("holders"))? {
            reasons.push(format!("{holder} is built on {name}"));
        }
    }
    for line in text(&proc.join("self/mountinfo"))?.lines() {
        // 36 35 98:0 /root /mount/point options … - type source options
        let mut fields = line.split(' ');
        let (number, target) = (fields.nth(2).unwrap_or(""), fields.nth(1).unwrap_or(""));
        // btrfs shows a number of its own, so the source is compared as well.
        let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1)).unwrap_or("");
        if numbers.contains(number) || devices.contains(source) {
            reasons.push(format!("{source} is mounted at {target}"));
        }
    }
    for line in text(&proc.join("swaps"))?.lines().skip(1) {
        let device = line.split_whitespace().next().unwrap_or("");
        if devices.contains(device) {
            reasons.push(format!("{device} is swap space"));
        }
    }
    Ok(reasons)
}

/// Names in a folder of sysfs; none if it is not there.
fn entries(dir: &Path) -> Result<Vec<String>, DiskError> {
    let read = |source| DiskError::Read { path: dir.into(), source };
    let list = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(read)?,
    };
    list.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()).map_err(read)).collect()
}

fn text(path: &Path) -> Result<String, DiskError> {
    match fs::read_to_string(path) {
        // A kernel without swap has no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.ends_with("swaps") => Ok(String::new()),
        other => other.map_err(|source| DiskError::Read { path: path.into(), source }),
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::DiskId;

    use super::*;

    fn holders(mounts: &str, swaps: &str, held_by: Option<&str>) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let (block, proc) = (root.path().join("block"), root.path().join("proc"));
        let part = block.join("vda/vda1");
        fs::create_dir_all(part.join("holders")).unwrap();
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::write(block.join("vda/dev"), "254:0\n").unwrap();
        fs::write(part.join("dev"), "254:1\n").unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        fs::write(proc.join("self/mountinfo"), mounts).unwrap();
        fs::write(proc.join("swaps"), format!("Filename Type Size Used Priority\n{swaps}")).unwrap();
        if let Some(holder) = held_by {
            fs::write(part.join("holders").join(holder), "").unwrap();
        }
        let disk = DiskFacts { id: DiskId { name: "vda".into(), ..DiskId::default() }, ..DiskFacts::default() };
        holders_in(&disk, &block, &proc).unwrap()
    }

    #[test]
    fn mounts_swaps_and_holders_of_partitions_count() {
        assert_eq!(holders("22 1 254:1 / /data rw - ext4 /dev/vda1 rw\n", "", None), ["/dev/vda1 is mounted at /data"]);
        assert_eq!(holders("22 1 0:31 / /b rw - btrfs /dev/vda1 rw\n", "", None), ["/dev/vda1 is mounted at /b"]);
        assert_eq!(holders("22 1 254:0 / /w rw - xfs /dev/root rw\n", "", None), ["/dev/root is mounted at /w"]);
        assert_eq!(holders("", "/dev/vda1 partition 1 0 -2\n", None), ["/dev/vda1 is swap space"]);
        assert_eq!(holders("", "", Some("dm-0")), ["dm-0 is built on vda1"]);
    }

    #[test]
    fn another_disks_mounts_do_not_count() {
        assert!(holders("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "/dev/sda2 partition 1 0 -2\n", None).is_empty());
    }
}
