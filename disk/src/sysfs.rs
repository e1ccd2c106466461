//! What sysfs says of a disk, as text.

use std::io::{self, Read as _};
use std::{fs, path::Path};

/// A one-line attribute, trimmed; empty if it is not there.
pub(super) fn attribute(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The serial number of the USB device that holds a disk: the kernel asks such disks for none of their own. Above that device
/// are hubs, and what they call a serial number is not the disk's.
pub(super) fn usb_serial(real: &Path) -> String {
    let device = real.ancestors().skip(1).find(|dir| dir.join("idVendor").exists());
    device.map(|dir| attribute(dir, "serial")).unwrap_or_default()
}

/// The text of a SCSI vital product data page: four bytes of header, then ASCII.
pub(super) fn vital_page(path: &Path) -> String {
    let bytes = read_bounded(path).unwrap_or_default();
    let text = bytes.get(4..).unwrap_or_default();
    String::from_utf8_lossy(text).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
}

/// The beginning of a page; those that name a unit are some hundred bytes.
pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(4096).read_to_end(&mut bytes)?;
    Ok(bytes)
}
