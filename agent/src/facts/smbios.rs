//! The machine's identity from the firmware, without placeholder values.

use std::{fs, path::Path};

use landfall_api::{SmbiosFacts, smbios_text, smbios_uuid};

/// Reads `/sys/class/dmi/id`.
pub(super) fn read() -> SmbiosFacts {
    read_from(Path::new("/sys/class/dmi/id"))
}

fn read_from(directory: &Path) -> SmbiosFacts {
    // A field may be missing (no SMBIOS) or readable by root only; in both cases it is left out.
    let field = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    SmbiosFacts {
        // The kernel prints the UUID in the byte order of the SMBIOS version the firmware states (since 4.20 or
        // so, drivers/firmware/dmi_scan.c `dmi_save_uuid`): the same as the firmware's own setup pages.
        uuid: smbios_uuid(&field("product_uuid")).map(|u| u.to_string()).unwrap_or_default(),
        serial: smbios_text(&field("product_serial")),
        manufacturer: smbios_text(&field("sys_vendor")),
        product: smbios_text(&field("product_name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_smbios_has_no_identity_of_it() {
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(read_from(nothing.path()), SmbiosFacts::default());
    }
}
