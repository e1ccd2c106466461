//! Whether a device of a layout is open. No udev runs: mdadm makes the files below /dev by itself and leaves them there when an
//! array is stopped, and another array may get the number. So the kernel is asked what stands on what.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use nix::sys::stat::{major, minor};

/// Every active device by its number.
const DEVICES: &str = "/sys/dev/block";

/// Whether the device file `upper` is one that is active, and stands on `lower`.
pub(super) fn stands_on(upper: &Path, lower: &Path) -> bool {
    let (Some(upper), Some(lower)) = (number(upper), number(lower)) else { return false };
    listed(Path::new(DEVICES), &upper, &lower)
}

/// Whether the device file is one that is active.
pub(super) fn is_active(device: &Path) -> bool {
    number(device).is_some_and(|number| Path::new(DEVICES).join(number).exists())
}

/// Major and minor, `8:1`; `None`: it is no block device.
fn number(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    Some(format!("{}:{}", major(found.rdev()), minor(found.rdev())))
}

fn listed(devices: &Path, upper: &str, lower: &str) -> bool {
    let Ok(below) = fs::read_dir(devices.join(upper).join("slaves")) else { return false };
    below.flatten().any(|device| fs::read_to_string(device.path().join("dev")).is_ok_and(|dev| dev.trim() == lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_open_only_on_its_own_members() {
        let root = tempfile::tempdir().unwrap();
        let member = root.path().join("9:127/slaves/sda2");
        fs::create_dir_all(&member).unwrap();
        fs::write(member.join("dev"), "8:2\n").unwrap();
        assert!(listed(root.path(), "9:127", "8:2"));
        // The number of another array; and one that was stopped, whose file is still there.
        assert!(!listed(root.path(), "9:127", "8:3"));
        assert!(!listed(root.path(), "9:126", "8:2"));
    }

    #[test]
    fn what_is_no_device_is_not_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!stands_on(file.path(), file.path()) && !is_active(file.path()));
        assert!(!stands_on(Path::new("/nowhere/md/system"), file.path()));
    }
}
