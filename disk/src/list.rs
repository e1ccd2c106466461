//! Which disks this machine has, from sysfs alone: no udev runs in the boot image.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use landfall_api::{DiskFacts, DiskId};

use crate::sysfs::{attribute, usb_serial, vital_page};
use crate::{DiskError, by_id};

/// `size` in sysfs counts these, whatever the disk's own sectors are.
const SYSFS_SECTOR: u64 = 512;

/// Block devices that are no disks of the machine: memory, optical, floppy, and what is built on top of disks.
const NOT_DISKS: [&str; 9] = ["ram", "zram", "loop", "sr", "fd", "dm-", "md", "nbd", "mtdblock"];

/// Every whole disk, in the kernel's order of names. Empty drives (size 0) and hidden path devices are left out.
///
/// # Errors
/// [`DiskError::Read`] if `/sys/block` cannot be listed; a disk that vanishes meanwhile is left out.
pub fn list_disks() -> Result<Vec<DiskFacts>, DiskError> {
    list_in(Path::new("/sys"))
}

fn list_in(sys: &Path) -> Result<Vec<DiskFacts>, DiskError> {
    let block = sys.join("block");
    let read = |source| DiskError::Read { path: block.clone(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(&block).map_err(read)? {
        names.push(entry.map_err(read)?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| is_disk_name(name));
    // By length first, so that vdb comes before vdaa.
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let disks = names.iter().filter(|name| attribute(&block.join(name), "hidden") != "1").map(|n| facts(&block, n));
    Ok(disks.filter(|disk| disk.id.size_bytes > 0).collect())
}

/// Whether a block device of this name (below `/sys/block`, `vda`) may be a disk of the machine.
pub fn is_disk_name(name: &str) -> bool {
    let special = NOT_DISKS.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(rest_is_number));
    !special && !name.contains("boot") && !name.contains("rpmb")
}

fn rest_is_number(rest: &str) -> bool {
    // md devices may have names (md_d0, md127); everything else is numbered.
    rest.starts_with(|c: char| c.is_ascii_digit() || c == '_')
}

/// The disk behind a device's path, loop devices included; or, for trying things out, a regular file, which counts as a
/// disk of 512-byte sectors.
///
/// # Errors
/// [`DiskError::Read`] if there is no such file, [`DiskError::NoSuchDisk`] if it is a partition or no disk at all.
pub fn disk_at(path: &Path) -> Result<DiskFacts, DiskError> {
    let read = |source| DiskError::Read { path: path.into(), source };
    let real = fs::canonicalize(path).map_err(read)?;
    let metadata = fs::metadata(&real).map_err(read)?;
    if metadata.is_file() {
        return Ok(DiskFacts {
            id: DiskId {
                path: format!("file-{}-{}", metadata.st_dev(), metadata.st_ino()),
                name: real.to_string_lossy().into_owned(),
                size_bytes: metadata.len() / SYSFS_SECTOR * SYSFS_SECTOR,
                ..DiskId::default()
            },
            transport: "unknown".into(),
            logical_sector_bytes: 512,
            physical_sector_bytes: 512,
            ..DiskFacts::default()
        });
    }
    let missing = || DiskError::NoSuchDisk { path: path.into() };
    let name = real.file_name().ok_or_else(missing)?.to_string_lossy().into_owned();
    let block = Path::new("/sys/block");
    // Only whole disks have a folder right there; a partition's is inside its disk's.
    if !metadata.file_type().is_block_device() || !block.join(&name).exists() {
        return Err(missing());
    }
    Ok(facts(block, &name))
}

/// The device file of a disk: its name below `/dev`, or the name itself where it is a path.
pub fn device_path(disk: &DiskFacts) -> PathBuf {
    // `join` with an absolute path is that path. sysfs writes `/` in names as `!`.
    Path::new("/dev").join(disk.id.name.replace('!', "/"))
}

fn facts(block: &Path, name: &str) -> DiskFacts {
    let dir = block.join(name);
    let device = dir.join("device");
    let number = |attr: &str| attribute(&dir, attr).parse::<u64>().unwrap_or(0);
    let sector = |attr: &str| u32::try_from(number(attr)).ok().filter(|n| *n >= 512).unwrap_or(512);
    let real = fs::canonicalize(&dir).unwrap_or_else(|_| dir.clone());
    let hctl = fs::canonicalize(&device)
        .ok()
        .and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
        .filter(|n| n.split(':').count() == 4 && n.split(':').all(|p| p.parse::<u64>().is_ok()))
        .unwrap_or_default();
    let wwid = first([attribute(&dir, "wwid"), attribute(&device, "wwid")]);
    let serial = first([
        attribute(&dir, "serial"),
        attribute(&device, "serial"),
        vital_page(&device.join("vpd_pg80")),
        // ATA behind an old host adapter: "t10.ATA     MODEL     SERIAL".
        wwid.strip_prefix("t10.").and_then(|t| t.split_whitespace().next_back()).unwrap_or_default().to_owned(),
        usb_serial(&real),
    ]);
    let transport = transport(&real, name, &hctl);
    let mut disk = DiskFacts {
        id: DiskId {
            wwn: world_wide_name(&wwid),
            serial,
            path: bus_path(&real, name, &hctl),
            name: name.to_owned(),
            model: attribute(&device, "model"),
            size_bytes: number("size").saturating_mul(SYSFS_SECTOR),
        },
        vendor: attribute(&device, "vendor"),
        transport: transport.to_owned(),
        rotational: attribute(&dir.join("queue"), "rotational") == "1",
        hctl,
        by_id: Vec::new(),
        logical_sector_bytes: sector("queue/logical_block_size"),
        physical_sector_bytes: sector("queue/physical_block_size"),
        read_only: attribute(&dir, "ro") == "1",
        health: None,
        contents: None,
    };
    disk.by_id = by_id::names(&dir, &real, &disk);
    disk
}

fn first<const N: usize>(values: [String; N]) -> String {
    values.into_iter().find(|v| !v.is_empty()).unwrap_or_default()
}

/// sysfs has `naa.…`, `eui.…`, `uuid.…`, `nvme.…` or `t10.…`; people know the first as `0x…`, and the last two are made
/// of model and serial, so they are no world-wide names.
fn world_wide_name(wwid: &str) -> String {
    match wwid.split_once('.') {
        Some(("naa", hex)) => format!("0x{hex}"),
        Some(("eui" | "uuid", _)) => wwid.to_owned(),
        _ => String::new(),
    }
}

fn transport(real: &Path, name: &str, hctl: &str) -> &'static str {
    let path = real.to_string_lossy();
    let passes = |what: &str| {
        path.split('/').any(|part| part.strip_prefix(what).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit())))
    };
    match () {
        () if name.starts_with("nvme") => "nvme",
        () if name.starts_with("mmcblk") => "mmc",
        () if passes("usb") => "usb",
        () if passes("ata") => "sata",
        () if !hctl.is_empty() => "scsi",
        () if passes("virtio") => "virtio",
        () => "unknown",
    }
}

/// Where the disk hangs: the last PCI address on the way to it and what distinguishes it there, in udev's spelling.
fn bus_path(real: &Path, name: &str, hctl: &str) -> String {
    let parts: Vec<_> = real.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    let Some(at) = parts.iter().rposition(|part| is_pci_address(part)) else {
        // Platform and virtual devices: the folder that holds the disk is stable enough to tell two apart.
        return parts.iter().rev().nth(1).map(|dir| format!("{dir}-{name}")).unwrap_or_default();
    };
    let pci = format!("pci-{}", parts[at]);
    if name.starts_with("nvme") {
        let namespace = name.rsplit_once('n').map(|(_, n)| n).unwrap_or("1");
        return format!("{pci}-nvme-{namespace}");
    }
    let ata = parts[at..].iter().find(|p| p.strip_prefix("ata").is_some_and(|n| n.parse::<u32>().is_ok()));
    // `1-1:1.0`; SAS has `end_device-0:0`.
    let is_interface = |p: &&String| p.starts_with(|c: char| c.is_ascii_digit()) && p.contains(':') && p.contains('-');
    let usb = parts[at..].iter().rev().find(is_interface);
    match (ata, usb) {
        (Some(ata), _) => {
            // The kernel numbers ports through all controllers; only the one within its controller is stable.
            let upto: PathBuf = parts.iter().take_while(|p| *p != ata).chain([ata]).collect();
            let port = attribute(&upto.join("ata_port").join(ata), "port_no");
            let port = if port.is_empty() { ata.trim_start_matches("ata").to_owned() } else { port };
            format!("{pci}-ata-{port}")
        }
        (None, Some(usb)) => {
            let port = usb.split_once('-').map(|(_, p)| p).unwrap_or(usb);
            format!("{pci}-usb-0:{port}-scsi-{}", unit(hctl))
        }
        (None, None) if !hctl.is_empty() => format!("{pci}-scsi-{}", unit(hctl)),
        (None, None) => pci,
    }
}

/// Host numbers follow the order of probing: only channel, target and unit are stable.
fn unit(hctl: &str) -> String {
    hctl.split_once(':').map(|(_, rest)| format!("0:{rest}")).unwrap_or_default()
}

fn is_pci_address(part: &str) -> bool {
    // 0000:00:04.0
    let hex = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| b.is_ascii_hexdigit());
    let mut fields = part.split([':', '.']);
    let all = [4, 2, 2, 1].into_iter().all(|n| fields.next().is_some_and(|f| hex(f, n)));
    all && fields.next().is_none() && part.contains('.')
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Builds `/sys` with one disk at `device` (below `/sys/devices`) and gives its facts.
    fn tree(device: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Vec<DiskFacts>) {
        let sys = tempfile::tempdir().unwrap();
        let dir = sys.path().join("devices").join(device);
        fs::create_dir_all(dir.join("queue")).unwrap();
        for (file, text) in
            [("size", "2048\n"), ("ro", "0\n"), ("queue/logical_block_size", "4096\n")].iter().chain(files)
        {
            fs::write(dir.join(file), text).unwrap();
        }
        fs::create_dir_all(sys.path().join("block")).unwrap();
        // The disk's `device` link points at what its folder's `block` folder is in.
        symlink(dir.parent().unwrap().parent().unwrap(), dir.join("device")).unwrap();
        symlink(&dir, sys.path().join("block").join(dir.file_name().unwrap())).unwrap();
        let disks = list_in(sys.path()).unwrap();
        (sys, disks)
    }

    #[test]
    fn a_virtio_disk_is_identified_by_serial_and_pci_address() {
        let files = [("serial", "disk-1\n"), ("queue/rotational", "1\n"), ("ro", "1\n")];
        let (_sys, disks) = tree("pci0000:00/0000:00:04.0/virtio1/block/vda", &files);
        let [disk] = disks.as_slice() else { panic!("{disks:?}") };
        assert_eq!((disk.id.serial.as_str(), disk.id.path.as_str()), ("disk-1", "pci-0000:00:04.0"));
        assert_eq!((disk.transport.as_str(), disk.id.size_bytes), ("virtio", 1 << 20));
        assert!(disk.rotational && disk.read_only && disk.logical_sector_bytes == 4096);
    }

    #[test]
    fn a_scsi_disks_path_omits_its_host_number() {
        let (_sys, disks) = tree("pci0000:00/0000:00:05.0/virtio2/host6/target6:0:1/6:0:1:0/block/sda", &[]);
        assert_eq!(disks[0].hctl, "6:0:1:0");
        assert_eq!(disks[0].id.path, "pci-0000:00:05.0-scsi-0:0:1:0");
        assert_eq!(disks[0].transport, "scsi");
        let port = "pci0000:00/0000:00:03.0/host0/port-0:0/end_device-0:0";
        let (_sys, disks) = tree(&format!("{port}/target0:0:0/0:0:0:0/block/sda"), &[]);
        assert_eq!(disks[0].id.path, "pci-0000:00:03.0-scsi-0:0:0:0", "SAS");
    }

    #[test]
    fn a_usb_disk_has_the_serial_number_of_its_device() {
        let port = "pci0000:00/0000:00:03.0/usb1/1-1";
        let files = [("../../../../../../serial", "4C53\n"), ("../../../../../../idVendor", "0781\n")];
        let (_sys, disks) = tree(&format!("{port}/1-1:1.0/host6/target6:0:0/6:0:0:0/block/sda"), &files);
        let id = &disks[0].id;
        assert_eq!((disks[0].transport.as_str(), id.serial.as_str()), ("usb", "4C53"));
        assert_eq!(id.path, "pci-0000:00:03.0-usb-0:1:1.0-scsi-0:0:0:0");
    }

    #[test]
    fn a_usb_disk_never_has_a_hubs_serial_number() {
        let (device, hub) = ("../../../../../..", "../../../../../../..");
        let [vendor, hubs, serial] = [device, hub, hub].map(str::to_owned);
        let files =
            [(vendor + "/idVendor", "0781\n"), (hubs + "/idVendor", "1d6b\n"), (serial + "/serial", "0000:00:03.0\n")];
        let files = files.each_ref().map(|(name, text)| (name.as_str(), *text));
        let path = "pci0000:00/0000:00:03.0/usb1/1-1/1-1:1.0/host6/target6:0:0/6:0:0:0/block/sda";
        let (_sys, disks) = tree(path, &files);
        assert_eq!((disks[0].transport.as_str(), disks[0].id.serial.as_str()), ("usb", ""));
    }

    #[test]
    fn an_nvme_disk_is_identified_by_its_namespace() {
        let (_sys, disks) = tree("pci0000:00/0000:00:06.0/nvme/nvme0/x/nvme0n1", &[("wwid", "eui.0025\n")]);
        assert_eq!((disks[0].id.path.as_str(), disks[0].id.wwn.as_str()), ("pci-0000:00:06.0-nvme-1", "eui.0025"));
    }

    #[test]
    fn what_is_no_disk_of_the_machine_is_left_out() {
        for name in ["loop0", "ram1", "zram0", "sr0", "fd0", "dm-3", "md127", "mmcblk0boot0"] {
            assert!(tree(&format!("virtual/block/x/{name}"), &[]).1.is_empty(), "{name}");
        }
        assert!(tree("virtual/block/x/vdc", &[("size", "0")]).1.is_empty(), "an empty drive");
        assert!(tree("virtual/block/x/nvme0c0n1", &[("hidden", "1")]).1.is_empty(), "a hidden path");
    }

    #[test]
    fn world_wide_names_are_spelled_as_people_know_them() {
        assert_eq!(world_wide_name("naa.5000c500a1"), "0x5000c500a1");
        assert_eq!(world_wide_name("t10.ATA     QEMU HARDDISK   QM00001"), "");
    }
}
