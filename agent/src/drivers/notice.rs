//! What the kernel's notices of devices say. Pure.

/// The modalias in a notice of a device added.
pub(crate) fn added(message: &[u8]) -> Option<String> {
    let notice = Notice::parse(message)?;
    (notice.action == b"add").then(|| notice.field(b"MODALIAS=")).flatten().map(lossy)
}

/// Whether a notice announces a device of this subsystem.
pub(crate) fn announces(message: &[u8], subsystem: &str) -> Option<()> {
    let notice = Notice::parse(message)?;
    (notice.action == b"add" && notice.field(b"SUBSYSTEM=") == Some(subsystem.as_bytes())).then_some(())
}

/// What a notice means for the set of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// A disk, or something through which disks are reached, appeared or went: more may follow.
    Opens,
    /// A disk says something else of itself: its size, or its table was read again.
    Changes,
}

/// What a notice means for the set of disks; `None`: nothing. `is_disk` says of a block device's name whether it may be a disk
/// of the machine.
pub(crate) fn storage(message: &[u8], is_disk: impl Fn(&str) -> bool) -> Option<Storage> {
    let notice = Notice::parse(message)?;
    let moves = [b"add".as_slice(), b"remove", b"bind", b"online", b"offline"].contains(&notice.action);
    match notice.field(b"SUBSYSTEM=")? {
        b"block" => {
            let name = lossy(notice.field(b"DEVNAME=")?);
            // A partition comes and goes with its disk's table, which this agent itself writes.
            let disk = notice.field(b"DEVTYPE=") == Some(b"disk") && is_disk(&name);
            disk.then_some(if moves { Storage::Opens } else { Storage::Changes })
        }
        b"scsi" | b"scsi_host" | b"nvme" | b"nvme-subsystem" | b"mmc" | b"mmc_host" | b"virtio" | b"ata_port"
        | b"pci" | b"fc_remote_ports" | b"sas_end_device" => moves.then_some(Storage::Opens),
        // Mass storage (class 08) and hubs (09). A keyboard that a BMC unplugs again and again is no disk.
        b"usb" => {
            let alias = notice.field(b"MODALIAS=")?;
            let class = |class: &[u8]| alias.windows(class.len()).any(|part| part == class);
            (moves && (class(b"ic08") || class(b"ic09"))).then_some(Storage::Opens)
        }
        _ => None,
    }
}

/// Whether disks may be behind a device with this modalias. Of PCI's classes (PCI Code and ID Assignment Specification, section 1)
/// these have none: network, display, multimedia, communication, input, processors, wireless, encryption, signal processing,
/// accelerators.
pub(crate) fn leads_to_disks(alias: &str) -> bool {
    const NONE: [&str; 11] = ["02", "03", "04", "07", "09", "0B", "0D", "10", "11", "12", "40"];
    match alias.split_once(':') {
        Some(("pci", of)) => !NONE.iter().any(|class| of.contains(&format!("bc{class}sc"))),
        // Block devices, SCSI hosts and shared file systems (Virtual I/O Device specification, section 5).
        Some(("virtio", of)) => ["d00000002v", "d00000008v", "d0000001Av"].iter().any(|id| of.starts_with(id)),
        // Mass storage, and what has a class of its vendor's own, as readers of memory cards.
        Some(("usb", of)) => of.contains("ic08") || of.contains("icFF"),
        Some(("cpu" | "dmi" | "hid" | "input" | "wmi" | "snd" | "hdaudio", _)) => false,
        _ => true,
    }
}

/// A message is `ACTION@PATH`, then `KEY=VALUE`, each ended by a NUL.
struct Notice<'a> {
    action: &'a [u8],
    fields: &'a [u8],
}

impl<'a> Notice<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let end = message.iter().position(|&b| b == 0)?;
        let action = message[..end].split(|&b| b == b'@').next()?;
        Some(Self { action, fields: &message[end + 1..] })
    }

    fn field(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.fields.split(|&b| b == 0).find_map(|field| field.strip_prefix(key))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use landfall_disk::is_disk_name;

    use super::*;

    #[test]
    fn only_added_devices_with_a_modalias_request_a_driver() {
        let message = b"add@/devices/pci0000:00/0000:00:03.0\0ACTION=add\0MODALIAS=pci:v00001AF4\0SEQNUM=7\0";
        assert_eq!(added(message).as_deref(), Some("pci:v00001AF4"));
        assert_eq!(added(b"remove@/devices/x\0ACTION=remove\0MODALIAS=pci:v00001AF4\0"), None);
        assert_eq!(added(b"add@/module/virtio_net\0ACTION=add\0SUBSYSTEM=module\0"), None);
        assert_eq!(added(b""), None);
        let ipmi = b"add@/devices/virtual/ipmi/ipmi0\0ACTION=add\0SUBSYSTEM=ipmi\0";
        assert_eq!((announces(ipmi, "ipmi"), announces(ipmi, "tpmrm")), (Some(()), None));
        assert_eq!(announces(b"remove@/devices/virtual/ipmi/ipmi0\0ACTION=remove\0SUBSYSTEM=ipmi\0", "ipmi"), None);
        for broken in [b"".as_slice(), b"\0", b"add@"] {
            assert_eq!(storage(broken, is_disk_name), None);
        }
    }

    #[test]
    fn only_some_drivers_may_lead_to_disks() {
        for (alias, leads) in [
            ("pci:v00001000d00000072sv00001000sd00003020bc01sc07i00", true),
            ("pci:v00008086d00009A0Bsv00000000sd00000000bc08sc80i00", true),
            ("pci:v00001B36d0000000Dsv00001AF4sd00001100bc0Csc03i30", true),
            ("pci:v00008086d0000100Esv00001AF4sd00001100bc02sc00i00", false),
            ("pci:v000010DEd00002684sv000010DEsd000016A1bc03sc00i00", false),
            ("virtio:d00000002v00001AF4", true),
            ("virtio:d00000008v00001AF4", true),
            ("virtio:d00000001v00001AF4", false),
            ("usb:v0781p5567d0100dc00dsc00dp00ic08isc06ip50in00", true),
            ("usb:v0557p2419d0100dc00dsc00dp00ic03isc01ip01in00", false),
            ("acpi:80860F14:", true),
            ("cpu:type:x86,ven0000fam0006mod0055:feature:,0000", false),
            ("mmc:block", true),
        ] {
            assert_eq!(leads_to_disks(alias), leads, "{alias}");
        }
    }

    #[test]
    fn disks_and_the_buses_they_come_by_open_the_set() {
        let of = |action: &str, fields: &str| {
            let message = format!("{action}@/devices/x\0ACTION={action}\0{}\0", fields.replace(' ', "\0"));
            storage(message.as_bytes(), is_disk_name)
        };
        let disk = "SUBSYSTEM=block DEVNAME=sdb DEVTYPE=disk";
        assert_eq!((of("add", disk), of("remove", disk)), (Some(Storage::Opens), Some(Storage::Opens)));
        assert_eq!(of("change", disk), Some(Storage::Changes));
        for bus in ["scsi", "scsi_host", "nvme", "virtio", "pci", "mmc"] {
            assert_eq!(of("add", &format!("SUBSYSTEM={bus}")), Some(Storage::Opens), "{bus}");
        }
        assert_eq!(of("change", "SUBSYSTEM=scsi"), None);
        for other in [
            "SUBSYSTEM=block DEVNAME=sdb1 DEVTYPE=partition",
            "SUBSYSTEM=block DEVNAME=loop0 DEVTYPE=disk",
            "SUBSYSTEM=block DEVNAME=sr0 DEVTYPE=disk",
            "SUBSYSTEM=net INTERFACE=eth0",
            "SUBSYSTEM=usb MODALIAS=usb:v0557p2419d0100dc00dsc00dp00ic03isc01ip01in00",
            "SUBSYSTEM=usb DEVTYPE=usb_device",
        ] {
            assert_eq!(of("add", other), None, "{other}");
        }
        let stick = "SUBSYSTEM=usb MODALIAS=usb:v0781p5567d0100dc00dsc00dp00ic08isc06ip50in00";
        assert_eq!(of("add", stick), Some(Storage::Opens));
    }
}
