//! Where the firmware fetched the kernel image from.

use std::path::Path;

use super::{VARIABLES, data, mount_variables};

/// The device path that the image was loaded from, as text in UTF-16: systemd's stub in a unified kernel image says it
/// (systemd-stub(7)), and so do boot loaders of the boot loader interface before it.
const LOADED_FROM: &str = "LoaderImageIdentifier-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// The URL of UEFI HTTP Boot, if the firmware started a unified kernel image by it. Blocking.
pub(crate) fn boot_url() -> Option<String> {
    mount_variables();
    url_in(&data(&Path::new(VARIABLES).join(LOADED_FROM)).ok()?)
}

/// The last URL of a device path: `…/IPv4(…)/Uri(http://10.77.0.1/a.efi)` (UEFI 2.10, 10.6.1.6).
fn url_in(utf16: &[u8]) -> Option<String> {
    let units: Vec<u16> = utf16.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let text = String::from_utf16_lossy(&units);
    let (url, _) = text.rsplit_once("Uri(")?.1.split_once(')')?;
    Some(url.to_owned()).filter(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_read_from_the_device_path() {
        for (text, url) in [
            (
                "MAC(525400000001,0x1)/IPv4(0.0.0.0)/Uri(http://10.77.0.1/boot/a.efi)\0",
                Some("http://10.77.0.1/boot/a.efi"),
            ),
            (
                "MAC(525400000001,0x1)/IPv6(0:0)/Uri()/Uri(http://[fd77::1]:8080/a.efi)",
                Some("http://[fd77::1]:8080/a.efi"),
            ),
            ("Uri(http://h/a.efi)", Some("http://h/a.efi")),
            ("Uri()", None),
            ("Uri(http://h", None),
            ("PciRoot(0x0)/Pci(0x3,0x0)/\\EFI\\BOOT\\BOOTX64.EFI", None),
            ("", None),
        ] {
            let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            assert_eq!(url_in(&bytes).as_deref(), url, "{text}");
        }
        assert_eq!(url_in(&[0x55]), None);
    }
}
