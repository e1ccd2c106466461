//! What may be a name.

use crate::issue::has_expression;

/// mdadm's limit of an array's name, bytes (md_p.h, `set_name`); a GPT's limit is 36, and disks may add a number.
const MAX_NAME: usize = 32;
/// A GPT entry's name: 36 UTF-16 code units (UEFI 2.10, table 5.6).
const MAX_LABEL: usize = 36;
/// What LVM keeps to itself (lvm2, lib/misc/lvm-string.c).
const RESERVED: [&str; 19] = [
    "snapshot", "pvmove", "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_iorig", "_imeta", "_mlog", "_mimage",
    "_pmspare", "_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig",
];
/// Folders of /dev, where each group has one of its name.
const FOLDERS: [&str; 2] = ["md", "mapper"];
const FIXED: &str = "write a plain name";
const HINT: &str = "use 1 to 32 letters, digits, \"-\", \"_\" and \".\", and begin with a letter or digit";

type Fault = Option<(String, &'static str)>;

/// Of a new partition or an opened device.
pub(super) fn name_fault(name: &str) -> Fault {
    if has_expression(name) {
        return Some(("the name of a device must be fixed text".into(), FIXED));
    }
    let fits = name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (!fits).then(|| (format!("{name:?} cannot be a device's name"), HINT))
}

/// Of an array. mdadm reads some names as a number that the kernel gives (mdadm(8), DEVICE NAMES): `7`, `d7`, `md7`, `md_d7`.
pub(super) fn array_name_fault(name: &str) -> Fault {
    let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    let device = ["", "d", "md", "md_d"].iter().any(|start| name.strip_prefix(start).is_some_and(number));
    let message = || (format!("mdadm reads the name \"{name}\" as the number of a device"), "choose another name");
    name_fault(name).or_else(|| device.then(message))
}

/// Of a volume group.
pub(super) fn group_name_fault(name: &str) -> Fault {
    let message = || (format!("/dev/{name} is the place of other devices"), "choose another name");
    volume_name_fault(name).or_else(|| FOLDERS.contains(&name).then(message))
}

/// Of a volume.
pub(super) fn volume_name_fault(name: &str) -> Fault {
    let reserved = |word: &&str| if word.starts_with('_') { name.contains(*word) } else { name.starts_with(*word) };
    name_fault(name).or_else(|| {
        let word = RESERVED.iter().find(|word| reserved(word))?;
        Some((format!("LVM keeps names with \"{word}\" to itself"), "choose another name"))
    })
}

/// Of a partition that is there already.
pub(super) fn label_fault(label: &str) -> Fault {
    if has_expression(label) {
        return Some(("the name of a device must be fixed text".into(), FIXED));
    }
    let fits = !label.is_empty() && !label.contains(char::is_control) && label.encode_utf16().count() <= MAX_LABEL;
    let hint = "write the name that sgdisk -p or lsblk -o PARTLABEL shows, of 1 to 36 characters";
    (!fits).then(|| (format!("{label:?} is not a partition's name"), hint))
}
