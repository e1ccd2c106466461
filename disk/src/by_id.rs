//! Names that udev gives a disk in `/dev/disk/by-id`, made from sysfs as its rules make them (those of Debian's systemd 252.39,
//! `60-persistent-storage.rules`, `ata_id`, `scsi_id`, `usb_id`): people copy them from an installed system. Not all of them: those
//! without a serial number or a wwn are left out, for other disks of the same model have them too.

use std::path::Path;

use landfall_api::DiskFacts;

use crate::sysfs::{attribute, read_bounded, usb_serial, vital_page};

/// Code sets of a designator (SPC-4, 7.8.6).
const BINARY: u8 = 1;
const ASCII: u8 = 2;
/// Designators of a SCSI disk: the type, of which each scheme has one.
const VENDOR_SPECIFIC: u8 = 0;
const T10_VENDOR: u8 = 1;
const EUI_64: u8 = 2;
const NAA: u8 = 3;
/// The order in which `scsi_id` takes them. Of several NAA names it prefers the longest format, IEEE Registered Extended.
const PREFERRED: [u8; 4] = [NAA, EUI_64, T10_VENDOR, VENDOR_SPECIFIC];
/// What the T10 designator of an ATA disk begins with (SAT-3, 10.3.3), and the length of the model that follows; the rest is the serial number.
const ATA: &str = "ATA";
const ATA_MODEL: usize = 40;

/// The names of the disk in `dir` (`/sys/block/NAME`), whose real path is `real`; the one that says most to people comes first.
pub(super) fn names(dir: &Path, real: &Path, disk: &DiskFacts) -> Vec<String> {
    let device = dir.join("device");
    let mut names = Vec::new();
    let mut name = |prefix: &str, parts: &[&str]| {
        // udev makes no name where a part of it is missing.
        if parts.iter().all(|part| !part.is_empty()) {
            names.push(format!("{prefix}-{}", parts.join("_")));
        }
    };
    match disk.transport.as_str() {
        "nvme" => {
            let (model, serial) = (plain(&attribute(&device, "model")), plain(&attribute(&device, "serial")));
            name("nvme", &[&model, &serial]);
            // The one above is the same for all namespaces of a disk.
            name("nvme", &[&model, &serial, &plain(&attribute(dir, "nsid"))]);
            name("nvme", &[&plain(&attribute(dir, "wwid"))]);
        }
        "virtio" => name("virtio", &[&plain(&attribute(dir, "serial"))]),
        "mmc" => name("mmc", &[&plain(&attribute(&device, "name")), &plain(&attribute(&device, "serial"))]),
        "usb" => {
            let (vendor, model) = (plain(&disk.vendor), plain(&disk.id.model));
            // `usb_id` takes no other serial number.
            let is_usable = |c: char| (' '..='\u{7e}').contains(&c) && c != ',';
            let serial = Some(usb_serial(real)).filter(|serial| serial.chars().all(is_usable)).unwrap_or_default();
            let serial = plain(&serial);
            let unit = disk.hctl.splitn(3, ':').nth(2).unwrap_or("0:0");
            if !serial.is_empty() {
                name("usb", &[&vendor, &model, &format!("{serial}-{unit}")]);
            }
        }
        _ if !disk.hctl.is_empty() => {
            let page = read_bounded(&device.join("vpd_pg83")).unwrap_or_default();
            let found = designators(&page);
            let serial = plain(&vital_page(&device.join("vpd_pg80")));
            match ata(&found).filter(|_| disk.vendor == ATA) {
                Some((model, serial)) => name("ata", &[&plain(&model), &plain(&serial)]),
                None if disk.vendor == ATA => name("ata", &[&plain(&disk.id.model), &serial]),
                None => name("scsi", &[&scsi(&found, disk, &serial)]),
            }
            if let Some(naa) = best(&found, NAA).filter(|naa| naa.is_binary) {
                name("wwn", &[&format!("0x{}", hex::encode(naa.value))]);
            }
        }
        _ => {}
    }
    names
}

/// A name that a SCSI disk has for itself.
struct Designator<'p> {
    kind: u8,
    is_binary: bool,
    value: &'p [u8],
}

/// What page 0x83 names the unit by; what it says of ports and targets is left out.
fn designators(page: &[u8]) -> Vec<Designator<'_>> {
    let mut found = Vec::new();
    let mut rest = page.get(4..).unwrap_or_default();
    while let [set, kind, _, length, after @ ..] = rest {
        let Some((value, next)) = after.split_at_checked(usize::from(*length)) else { break };
        let set = set & 0xf;
        if kind & 0x30 == 0 && !value.is_empty() && (set == BINARY || set == ASCII) {
            found.push(Designator { kind: kind & 0xf, is_binary: set == BINARY, value });
        }
        rest = next;
    }
    found
}

fn best<'d>(found: &'d [Designator<'_>], kind: u8) -> Option<&'d Designator<'d>> {
    // The first of the longest; of NAA names of eight bytes one in the format IEEE Registered.
    found.iter().rev().filter(|one| one.kind == kind).max_by_key(|one| (one.value.len(), one.value[0] >> 4 == 5))
}

/// Model and serial number of an ATA disk: the SCSI model is cut after 16 characters.
fn ata(found: &[Designator<'_>]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(best(found, T10_VENDOR)?.value).into_owned();
    let rest = text.strip_prefix(ATA)?.get(8 - ATA.len()..)?;
    let (model, serial) = rest.split_at_checked(ATA_MODEL)?;
    Some((model.to_owned(), serial.to_owned()))
}

/// As `scsi_id` writes it: the type of the designator, and its value.
fn scsi(found: &[Designator<'_>], disk: &DiskFacts, serial: &str) -> String {
    let (vendor, model) = (format!("{:8}", disk.vendor), format!("{:16}", disk.id.model));
    let Some(named) = PREFERRED.into_iter().find_map(|kind| best(found, kind)) else {
        return if serial.is_empty() { String::new() } else { plain(&format!("S{vendor}{model}{serial}")) };
    };
    let value =
        if named.is_binary { hex::encode(named.value) } else { String::from_utf8_lossy(named.value).into_owned() };
    match named.kind {
        VENDOR_SPECIFIC => plain(&format!("0{vendor}{model}{value}")),
        kind => plain(&format!("{kind}{value}")),
    }
}

/// A part of a name as udev writes it: runs of white space are one `_`, and so is each character that a name cannot have.
fn plain(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c == '\0').filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join("_");
    let may_stay = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii();
    joined.chars().map(|c| if may_stay(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use landfall_api::DiskId;

    use super::*;

    /// Page 0x83 with these designators: code set, type, value.
    fn page(designators: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut page = vec![0, 0x83, 0, 0];
        for (set, kind, value) in designators {
            page.extend([*set, *kind, 0, value.len() as u8]);
            page.extend_from_slice(value);
        }
        page
    }

    struct Case {
        transport: &'static str,
        vendor: &'static str,
        model: &'static str,
        attributes: Vec<(&'static str, Vec<u8>)>,
        names: &'static [&'static str],
    }

    fn ata_page(naa: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let t10 = format!("ATA     {:40}{:>20}", "Samsung SSD 870 EVO 1TB", "S5Y2NJ0R501234K");
        let mut all = vec![(2, VENDOR_SPECIFIC, &b"S5Y2NJ0R501234K     "[..]), (2, T10_VENDOR, t10.as_bytes())];
        all.extend_from_slice(naa);
        page(&all)
    }

    /// By the rules, read; not compared with a running udev.
    #[test]
    fn disks_have_the_names_that_udev_gives_them() {
        let naa = [0x50, 0x02, 0x53, 0x8f, 0x42, 0x12, 0x34, 0x56];
        let long = [0x60, 0x02, 0x53, 0x8f, 0x42, 0x12, 0x34, 0x56, 1, 2, 3, 4, 5, 6, 7, 8];
        let port = (1, 0x10 | NAA, &naa[..]);
        let text = |text: &str| text.as_bytes().to_vec();
        for Case { transport, vendor, model, attributes, names: wanted } in [
            Case {
                transport: "sata",
                vendor: "ATA",
                model: "Samsung SSD 870",
                attributes: vec![("device/vpd_pg83", ata_page(&[(1, NAA, &naa)]))],
                names: &["ata-Samsung_SSD_870_EVO_1TB_S5Y2NJ0R501234K", "wwn-0x5002538f42123456"],
            },
            Case {
                transport: "scsi",
                vendor: "ATA",
                model: "HARDDISK",
                attributes: vec![("device/vpd_pg80", text("\0\0\0\x07QM00001"))],
                names: &["ata-HARDDISK_QM00001"],
            },
            Case {
                transport: "scsi",
                vendor: "SEAGATE",
                model: "ST1000",
                attributes: vec![("device/vpd_pg83", page(&[port, (1, NAA, &naa), (1, NAA, &long)]))],
                names: &["scsi-36002538f421234560102030405060708", "wwn-0x6002538f421234560102030405060708"],
            },
            Case {
                transport: "scsi",
                vendor: "QEMU",
                model: "QEMU HARDDISK",
                attributes: vec![("device/vpd_pg83", page(&[(2, VENDOR_SPECIFIC, b"disk-2")]))],
                names: &["scsi-0QEMU_QEMU_HARDDISK_disk-2"],
            },
            Case {
                transport: "scsi",
                vendor: "OLD",
                model: "DISK",
                attributes: vec![("device/vpd_pg80", text("\0\0\0\x02s1"))],
                names: &["scsi-SOLD_DISK_s1"],
            },
            Case { transport: "scsi", vendor: "OLD", model: "DISK", attributes: vec![], names: &[] },
            Case {
                transport: "nvme",
                vendor: "",
                model: "",
                attributes: vec![
                    ("device/model", text("Samsung SSD 980 PRO 1TB                 \n")),
                    ("device/serial", text("S5GXNX0T123456      \n")),
                    ("wwid", text("eui.002538b421234567\n")),
                    ("nsid", text("1\n")),
                ],
                names: &[
                    "nvme-Samsung_SSD_980_PRO_1TB_S5GXNX0T123456", "nvme-Samsung_SSD_980_PRO_1TB_S5GXNX0T123456_1",
                    "nvme-eui.002538b421234567",
                ],
            },
            Case {
                transport: "virtio",
                vendor: "0x1af4",
                model: "",
                attributes: vec![("serial", text("a  b\n"))],
                names: &["virtio-a_b"],
            },
            Case { transport: "virtio", vendor: "0x1af4", model: "", attributes: vec![], names: &[] },
            Case {
                transport: "usb",
                vendor: "SanDisk",
                model: "Cruzer Blade",
                attributes: vec![("idVendor", text("0781")), ("../serial", text("no")), ("serial", text("4C53"))],
                names: &["usb-SanDisk_Cruzer_Blade_4C53-0:0"],
            },
            Case { transport: "usb", vendor: "SanDisk", model: "Cruzer", attributes: vec![], names: &[] },
            Case {
                transport: "mmc",
                vendor: "",
                model: "",
                attributes: vec![("device/name", text("DG4016")), ("device/serial", text("0x1a2b3c4d"))],
                names: &["mmc-DG4016_0x1a2b3c4d"],
            },
        ] {
            let sys = tempfile::tempdir().unwrap();
            let dir = sys.path().join("bus/disk");
            fs::create_dir_all(dir.join("device")).unwrap();
            for (file, bytes) in attributes {
                fs::write(dir.join(file), bytes).unwrap();
            }
            let disk = DiskFacts {
                id: DiskId { model: model.into(), ..DiskId::default() },
                vendor: vendor.into(),
                transport: transport.into(),
                hctl: if matches!(transport, "scsi" | "sata" | "usb") { "2:0:0:0".into() } else { String::new() },
                ..DiskFacts::default()
            };
            assert_eq!(names(&dir, &dir.join("block"), &disk), wanted, "{transport} {vendor} {model}");
        }
    }

    #[test]
    fn a_page_that_is_cut_off_ends_the_list() {
        let whole = page(&[(1, NAA, &[5; 8]), (1, EUI_64, &[6; 8])]);
        assert_eq!(designators(&whole).len(), 2);
        for cut in 0..whole.len() {
            assert!(designators(&whole[..cut]).len() < 2, "{cut}");
        }
    }
}
