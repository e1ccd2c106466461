//! Names of devices under /dev, as selectors of disks.

use serde_json::{Value, json};

/// A disk's path under /dev without a partition's number, and that number.
pub(crate) fn split(path: &str) -> (String, Option<u32>) {
    let digits = path.len() - path.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = path.split_at(path.len() - digits);
    let number = number.parse().ok();
    let Some(name) = path.strip_prefix("/dev/") else { return (path.to_owned(), None) };
    if name.starts_with("disk/") {
        return match stem.strip_suffix("-part") {
            Some(disk) => (disk.to_owned(), number),
            None => (path.to_owned(), None),
        };
    }
    // /dev/nvme0n1p2, /dev/mmcblk0p1: a disk's name that ends in a digit has a p in front of the number.
    let numbered = ["nvme", "mmcblk", "loop", "md", "nbd"].iter().any(|kind| name.starts_with(kind));
    match stem.strip_suffix('p') {
        Some(disk) if numbered && disk.ends_with(|c: char| c.is_ascii_digit()) => (disk.to_owned(), number),
        _ if numbered || number.is_none() => (path.to_owned(), None),
        _ => (stem.to_owned(), number),
    }
}

/// The selector of the disk that a path names, and what a person should know of it.
pub(crate) fn selector(path: &str) -> (Value, Option<&'static str>) {
    let field = |name: &str, value: &str| json!({ name: value });
    if let Some(id) = path.strip_prefix("/dev/disk/by-id/") {
        // sysfs has `0x…` of SCSI and ATA, `eui.…` or `uuid.…` of NVMe.
        let wwn = id.strip_prefix("wwn-");
        let nvme = id.strip_prefix("nvme-").filter(|id| id.starts_with("eui.") || id.starts_with("uuid."));
        if let Some(wwn) = wwn.or(nvme) {
            return (field("wwn", wwn), None);
        }
        let serial = id.rsplit('_').next().unwrap_or(id);
        return (field("serial", serial), Some(SERIAL));
    }
    if let Some(place) = path.strip_prefix("/dev/disk/by-path/") {
        return (field("path", place), None);
    }
    (field("name", path.strip_prefix("/dev/").unwrap_or(path)), Some(MOVES))
}

const SERIAL: &str = "the serial number is taken from the end of the link's name; compare it with what landfall describe \
    machine shows";
const MOVES: &str = "the kernel's name of a disk may change from one start to the next; select by serial or wwn where \
    the machine has several disks";

/// Whether a path names a disk or a partition by the kernel's name, or by a link that udev keeps.
pub(crate) fn is_path(text: &str) -> bool {
    text.strip_prefix("/dev/").is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/+".contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_separated_from_its_disk() {
        for (path, disk, number) in [
            ("/dev/sda", "/dev/sda", None),
            ("/dev/sda15", "/dev/sda", Some(15)),
            ("/dev/vdb1", "/dev/vdb", Some(1)),
            ("/dev/nvme0n1", "/dev/nvme0n1", None),
            ("/dev/nvme0n1p2", "/dev/nvme0n1", Some(2)),
            ("/dev/mmcblk0p1", "/dev/mmcblk0", Some(1)),
            ("/dev/md0", "/dev/md0", None),
            ("/dev/disk/by-id/wwn-0x5000c500a0b1c2d3", "/dev/disk/by-id/wwn-0x5000c500a0b1c2d3", None),
            ("/dev/disk/by-id/wwn-0x5000c500a0b1c2d3-part3", "/dev/disk/by-id/wwn-0x5000c500a0b1c2d3", Some(3)),
        ] {
            assert_eq!(split(path), (disk.to_owned(), number), "{path}");
        }
    }

    #[test]
    fn a_link_selects_by_what_does_not_move() {
        assert_eq!(selector("/dev/disk/by-id/wwn-0x5000c5").0, json!({"wwn": "0x5000c5"}));
        assert_eq!(selector("/dev/disk/by-id/nvme-eui.0025").0, json!({"wwn": "eui.0025"}));
        assert_eq!(selector("/dev/disk/by-id/ata-QEMU_HARDDISK_QM00001").0, json!({"serial": "QM00001"}));
        assert_eq!(selector("/dev/disk/by-path/pci-0000:00:04.0").0, json!({"path": "pci-0000:00:04.0"}));
        let (moves, why) = selector("/dev/sda");
        assert_eq!((moves, why), (json!({"name": "sda"}), Some(MOVES)));
    }
}
