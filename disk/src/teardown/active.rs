//! What the kernel has active, as it lists it.

use std::{fs, io, path::Path};

use super::{Active, ActiveDevice, ActivePool, mounts, swaps};

/// Everything that may stand on a disk.
///
/// # Errors
/// A list cannot be read: then nothing is known, and nothing may be stopped.
pub fn read() -> io::Result<Active> {
    read_in(Path::new("/sys"), Path::new("/proc"))
}

fn read_in(sys: &Path, proc: &Path) -> io::Result<Active> {
    let (block, btrfs) = (sys.join("block"), sys.join("fs/btrfs"));
    let mut devices = Vec::new();
    for name in names(&block)? {
        let folder = block.join(&name);
        for part in names(&folder)? {
            let part_folder = folder.join(&part);
            if part_folder.join("partition").exists() {
                let under = vec![name.clone()];
                let number = word(&part_folder.join("dev"));
                devices.push(ActiveDevice { name: part, number, under, partition: true, ..ActiveDevice::default() });
            }
        }
        let mapper = Some(word(&folder.join("dm/name"))).filter(|name| !name.is_empty());
        devices.push(ActiveDevice {
            number: word(&folder.join("dev")),
            under: names(&folder.join("slaves"))?,
            mapper,
            mapper_uuid: word(&folder.join("dm/uuid")),
            partition: false,
            name,
        });
    }
    let mut pools = Vec::new();
    for name in names(&btrfs)? {
        // Of a mounted one; the other folders there are of the module.
        let devices = names(&btrfs.join(&name).join("devices"))?;
        if !devices.is_empty() {
            pools.push(ActivePool { name: format!("btrfs {name}"), devices });
        }
    }
    let swaps = match fs::read_to_string(proc.join("swaps")) {
        // A kernel without swap has no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => swaps(&other?),
    };
    Ok(Active { devices, pools, mounts: mounts(&fs::read_to_string(proc.join("self/mountinfo"))?), swaps })
}

/// Names in a folder, in order; none if it is not there.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let list = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = list
        .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// A file's text in one line; empty if there is none.
fn word(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_stand_on_disks_and_others_on_their_slaves() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/block/sda/dev", "8:0\n"),
            ("sys/block/sda/sda1/dev", "8:1\n"),
            ("sys/block/sda/sda1/partition", "1\n"),
            ("sys/block/sda/queue/dev", "no partition"),
            ("sys/block/md127/dev", "9:127\n"),
            ("sys/block/md127/slaves/sda1", ""),
            ("sys/block/dm-0/slaves/md127", ""),
            ("sys/block/dm-0/dm/name", "vg-root\n"),
            ("sys/block/dm-0/dm/uuid", "LVM-x\n"),
            ("sys/fs/btrfs/2f1c/devices/sda1", ""),
            ("sys/fs/btrfs/2f1c/devices/sdb", ""),
            ("sys/fs/btrfs/features/raid1c34", "0\n"),
            ("proc/self/mountinfo", "22 1 253:0 / /mnt rw - ext4 /dev/mapper/vg-root rw\n"),
        ] {
            fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            fs::write(root.path().join(path), text).unwrap();
        }
        let found = read_in(&root.path().join("sys"), &root.path().join("proc")).unwrap();
        let shown: Vec<_> = found.devices.iter().map(|d| (d.name.as_str(), d.under.join(","), d.partition)).collect();
        let expected = [("dm-0", "md127", false), ("md127", "sda1", false), ("sda1", "sda", true), ("sda", "", false)];
        assert_eq!(shown, expected.map(|(name, under, partition)| (name, under.to_owned(), partition)));
        assert_eq!(found.devices[0].mapper.as_deref(), Some("vg-root"));
        assert_eq!((found.mounts.len(), found.swaps.len()), (1, 0));
        let devices = vec!["sda1".to_owned(), "sdb".to_owned()];
        assert_eq!(found.pools, [ActivePool { name: "btrfs 2f1c".into(), devices }]);
        let stops = super::super::stops(&found, &["sda", "sdb"]).unwrap();
        assert_eq!(stops.len(), 3, "{stops:?}");
    }
}
