//! What may be a name.

use crate::issue::has_expression;

/// mdadm's limit of an array's name, bytes (md_p.h, `set_name`); a GPT's limit is 36, and disks may add a number.
const MAX_NAME: usize = 32;
/// A GPT entry's name: 36 UTF-16 code units (UEFI 2.10, table 5.6).
const MAX_LABEL: usize = 36;
/// What LVM keeps to itself (lvm(8), VALID NAMES).
const RESERVED: [&str; 13] = [
    "snapshot", "pvmove", "_cdata", "_cmeta", "_corig", "_mlog", "_mimage", "_pmspare", "_rimage", "_rmeta", "_tdata",
    "_tmeta", "_vorigin",
];
const FIXED: &str = "write a plain name";
const HINT: &str = "use 1 to 32 letters, digits, \"-\", \"_\" and \".\", and begin with a letter or digit";

type Fault = Option<(String, &'static str)>;

/// Of a new partition or an array.
pub(super) fn name_fault(name: &str) -> Fault {
    if has_expression(name) {
        return Some(("the name of a device must be fixed text".into(), FIXED));
    }
    let fits = name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (!fits).then(|| (format!("{name:?} cannot be a device's name"), HINT))
}

/// Of a volume group or a volume.
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
