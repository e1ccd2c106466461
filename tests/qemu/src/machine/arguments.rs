//! QEMU's command line.

use std::path::Path;

use super::chips;
use super::spec::seed;
use super::{Board, Cable, Card, DiskBus, MachineSpec, Medium, Plug, Processors};
use crate::{Accel, Firmware, LabError, firmware};

const fn board(board: Board) -> &'static str {
    match board {
        Board::Q35 => "q35",
        Board::Pc => "pc",
        Board::Virt => "virt",
    }
}

/// QEMU's program.
pub(super) const fn program(board: Board) -> &'static str {
    match board {
        Board::Q35 | Board::Pc => "qemu-system-x86_64",
        Board::Virt => "qemu-system-aarch64",
    }
}

/// A card's device, with QEMU's own boot ROM where it is needed: OVMF has a driver for virtio alone, and finds the others' in the ROM. BIOS
/// machines get theirs as described in `firmware`.
fn card(card: Card, firmware: Firmware) -> String {
    let device = match card {
        Card::Virtio => "virtio-net-pci",
        Card::E1000 => "e1000",
        Card::E1000e => "e1000e",
        Card::Vmxnet3 => "vmxnet3",
        Card::Rtl8139 => "rtl8139",
        Card::Usb => return "usb-net,bus=xhci.0".to_owned(),
    };
    let needs_rom = firmware == Firmware::Uefi && card != Card::Virtio;
    format!("{device}{}", if needs_rom { "" } else { ",romfile=" })
}

/// The slot of a port that is plugged in.
pub(super) const PORT_SLOT: &str = "port-slot";

const fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// ACPI's table SPCR without its header (Microsoft's revision 2): a 16550 at the ports from 0x3f8 on, interrupt 4, 115200 baud.
const SPCR: [u8; 44] = {
    let mut table = [0; 44];
    // A register of 8 bits among the ports.
    (table[4], table[5], table[8], table[9]) = (1, 8, 0xf8, 0x03);
    (table[16], table[17], table[22], table[24]) = (1, 4, 7, 1);
    // No PCI device.
    (table[28], table[29], table[30], table[31]) = (0xff, 0xff, 0xff, 0xff);
    table
};

/// Everything after the program's name.
pub(super) fn qemu(spec: &MachineSpec, dir: &Path, taps: &[String], accel: Accel) -> Result<Vec<String>, LabError> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    let mut machine = format!("{},graphics={}", board(spec.board), on(spec.screen));
    if spec.board == Board::Virt {
        add(&["-accel", "tcg,thread=multi", "-cpu", "cortex-a57"]);
    } else {
        machine += &format!(",smm={}", on(spec.secure_boot.is_some()));
        add(&accel.qemu_args());
    }
    add(&["-name", &spec.name, "-machine", &machine, "-nodefaults", "-no-user-config", "-display", "none"]);
    let Processors { sockets, cores, threads } = spec.processors;
    add(&["-m", &spec.memory_mib.to_string()]);
    add(&["-smp", &format!("sockets={sockets},cores={cores},threads={threads}")]);
    for node in (0..sockets).filter(|_| sockets > 1) {
        let rest = if node == 0 { spec.memory_mib % sockets } else { 0 };
        add(&["-object", &format!("memory-backend-ram,id=node{node},size={}M", spec.memory_mib / sockets + rest)]);
        add(&["-numa", &format!("node,nodeid={node},memdev=node{node}")]);
        add(&["-numa", &format!("cpu,node-id={node},socket-id={node}")]);
    }
    add(&["-uuid", &spec.uuid]);
    add(&["-smbios", &format!("type=1,manufacturer=Landfall,product=Lab,uuid={},serial={}", spec.uuid, spec.serial)]);
    add(&["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    add(&["-qmp", &format!("unix:{},server=on,wait=off", dir.join("qmp").display())]);
    // Server hardware has a source of entropy; without one the guest's first keys wait for it.
    add(&["-device", "virtio-rng-pci"]);
    if spec.names_console {
        let table = dir.join("spcr");
        std::fs::write(&table, SPCR).map_err(LabError::file("cannot write", &table))?;
        add(&["-acpitable", &format!("sig=SPCR,data={}", table.display())]);
    }
    if spec.screen {
        add(&["-device", "VGA"]);
    }
    if spec.watchdog {
        add(&["-device", "i6300esb", "-action", "watchdog=reset"]);
    }
    if let Some(shows) = spec.clock {
        add(&["-rtc", &format!("base={shows}")]);
    }
    if spec.tpm {
        add(&["-chardev", &format!("socket,id=tpm,path={}", chips::tpm_socket(dir).display())]);
        add(&["-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0"]);
    }
    if spec.bmc {
        // It may listen a little later than QEMU starts.
        let port = chips::bmc_port(spec);
        add(&["-chardev", &format!("socket,id=ipmi,host=127.0.0.1,port={port},reconnect=1")]);
        add(&["-device", "ipmi-bmc-extern,id=bmc,chardev=ipmi", "-device", "isa-ipmi-kcs,bmc=bmc"]);
    }
    match spec.firmware {
        Firmware::Uefi => {
            let (code, vars) = firmware::edk2(dir, spec.board == Board::Virt, spec.secure_boot)?;
            if spec.secure_boot.is_some() {
                // Only the firmware itself, in SMM, writes its variables.
                add(&["-global", "driver=cfi.pflash01,property=secure,value=on"]);
            }
            add(&["-drive", &format!("if=pflash,format=raw,unit=0,readonly=on,file={}", code.display())]);
            add(&["-drive", &format!("if=pflash,format=raw,unit=1,file={}", vars.display())]);
            // OVMF would try the version of IP that is not served for a minute before it goes on.
            for (version, is_tried) in [(4, !spec.ipv6), (6, spec.ipv6)] {
                if spec.http_boot || !spec.netboot || !is_tried {
                    add(&["-fw_cfg", &format!("name=opt/org.tianocore/IPv{version}PXESupport,string=n")]);
                }
            }
        }
        Firmware::Bios if spec.netboot && spec.direct_kernel.is_none() && spec.medium.is_none() => {
            let (rom, script) = firmware::rom_script(dir)?;
            add(&["-kernel", &rom.display().to_string(), "-initrd", &script.display().to_string()]);
        }
        Firmware::Bios => {}
    }
    if let Some((kernel, initramfs, command_line)) = &spec.direct_kernel {
        add(&["-kernel", &kernel.display().to_string(), "-initrd", &initramfs.display().to_string()]);
        add(&["-append", command_line]);
    }
    let mut order = 0;
    let mut boot_index = || {
        order += 1;
        order
    };
    let has = |bus: DiskBus| spec.disks.iter().any(|disk| disk.bus == bus);
    if has(DiskBus::Usb) || matches!(spec.medium, Some((_, Medium::Usb))) || spec.has_card(Card::Usb) {
        add(&["-device", "qemu-xhci,id=xhci"]);
    }
    if spec.board == Board::Virt && spec.medium.is_some() {
        add(&["-device", "virtio-scsi-pci,id=cd"]);
    }
    if let Some((file, kind)) = &spec.medium {
        let file = format!("driver=file,node-name=medium,filename={},read-only=on", file.display());
        let device = match kind {
            Medium::Cd if spec.board == Board::Pc => "ide-cd,bus=ide.1",
            Medium::Cd if spec.board == Board::Virt => "scsi-cd,bus=cd.0",
            Medium::Cd => "ide-cd,bus=ide.5",
            Medium::Usb => "usb-storage,bus=xhci.0",
        };
        add(&["-blockdev", &file, "-device", &format!("{device},id=medium,drive=medium,bootindex={}", boot_index())]);
    }
    for (i, (nic, tap)) in spec.nics.iter().zip(taps).enumerate() {
        match &nic.plug {
            Plug::Lab | Plug::Island | Plug::Nothing => {
                add(&["-netdev", &format!("tap,id=net{i},ifname={tap},script=no,downscript=no")])
            }
            Plug::Cable(Cable { own, other }) => {
                let (own, other) = (own.display(), other.display());
                let ends = format!("local.type=unix,local.path={own},remote.type=unix,remote.path={other}");
                add(&["-netdev", &format!("dgram,id=net{i},{ends}")]);
            }
        }
        // A port without a speed joins no LACP group.
        let speed = if matches!(nic.plug, Plug::Cable(_)) { ",speed=10000,duplex=full" } else { "" };
        let index = match spec.firmware {
            Firmware::Uefi if spec.qemu_orders && spec.netboot => format!(",bootindex={}", boot_index()),
            Firmware::Uefi | Firmware::Bios => String::new(),
        };
        let device = card(nic.card.unwrap_or(spec.card), spec.firmware);
        add(&["-device", &format!("{device},netdev=net{i},mac={}{speed}{index}", nic.mac)]);
    }
    if spec.port_slot.is_some() {
        add(&["-device", &format!("pcie-root-port,id={PORT_SLOT},chassis=255")]);
    }
    for (bus, controller) in [
        (DiskBus::Scsi, "virtio-scsi-pci,id=scsi"),
        (DiskBus::MptSas, "mptsas1068,id=mpt"),
        (DiskBus::MegaSas, "megasas,id=mega"),
    ] {
        if has(bus) {
            add(&["-device", controller]);
        }
    }
    // Q35 has one.
    if has(DiskBus::Ahci) && spec.board == Board::Pc {
        add(&["-device", "ich9-ahci,id=ahci"]);
    }
    // QEMU has no event for the errors that an NVMe disk answers; it notes them in its log.
    if has(DiskBus::Nvme) {
        add(&["-trace", super::fault::NVME_ERROR]);
    }
    let mut sata_ports = 0;
    let mut disks: Vec<_> = spec.disks.iter().enumerate().filter(|(_, disk)| !disk.pulled).collect();
    disks.sort_by_key(|(_, disk)| !disk.first);
    for (i, disk) in disks {
        let file = dir.join(format!("disk{i}.raw"));
        let file = file.display();
        // A second path uses the node of the first.
        let node = disk.path_to.unwrap_or(i);
        // `discard=unmap`: what the guest punches out takes no room here either.
        if node != i {
        } else if disk.recorded {
            let log = dir.join(format!("disk{i}.writes"));
            std::fs::File::create(&log).map_err(LabError::file("cannot make", &log))?;
            // The recorder notes a request when it is done. A flush of the host's would take its time, and writes that
            // came after it would be noted before it, as if it had made them durable. Only the recording counts, and it
            // survives QEMU without a flush.
            add(&[
                "-blockdev",
                &format!("driver=file,node-name=file{i},filename={file},discard=unmap,cache.no-flush=on"),
            ]);
            add(&["-blockdev", &format!("driver=file,node-name=log{i},filename={},cache.no-flush=on", log.display())]);
            add(&["-blockdev", &format!("driver=blklogwrites,node-name=disk{i},file=file{i},log=log{i}")]);
        } else {
            add(&["-blockdev", &format!("driver=file,node-name=file{i},filename={file},discard=unmap")]);
            add(&["-blockdev", &format!("driver=raw,node-name=disk{i},file=file{i},discard=unmap")]);
        }
        let mut common = format!("id=dev{i},drive=disk{node},serial={}", disk.serial);
        if spec.qemu_orders {
            common += &format!(",bootindex={}", boot_index());
        }
        if disk.sector != 512 {
            common += &format!(",logical_block_size={0},physical_block_size={0}", disk.sector);
        }
        if spec.disks.iter().any(|other| other.path_to == Some(node)) {
            common += ",share-rw=on";
        }
        // By default QEMU stops the whole machine where its host's disk is full. NVMe has no such choice, and stops nothing.
        if disk.bus != DiskBus::Nvme {
            common += ",werror=report,rerror=report";
        }
        if disk.removable {
            add(&["-device", &format!("pcie-root-port,id=slot{i},chassis={}", i + 1)]);
            common += &format!(",bus=slot{i}");
        }
        let device = match disk.bus {
            DiskBus::Virtio => format!("virtio-blk-pci,{common}"),
            // Bit 2 of Critical Warning: the medium is degraded.
            DiskBus::Nvme if disk.failing => format!("nvme,{common},smart_critical_warning=4"),
            DiskBus::Nvme => format!("nvme,{common}"),
            // The target's number is the disk's own, so that it is known before the machine runs.
            DiskBus::Scsi => format!("scsi-hd,bus=scsi.0,channel=0,scsi-id={i},lun=0,{common}"),
            // Linux attaches no disk whose address is zero, and its address is the world-wide name. The first digits are a vendor's.
            DiskBus::MptSas => {
                let address = 0x5000_c500_0000_0000 | (seed(&disk.serial) & 0xffff_ffff);
                format!("scsi-hd,bus=mpt.0,scsi-id={i},wwn={address:#x},{common}")
            }
            DiskBus::MegaSas => format!("scsi-hd,bus=mega.0,scsi-id={i},{common}"),
            DiskBus::Ahci => {
                sata_ports += 1;
                let controller = if spec.board == Board::Pc { "ahci" } else { "ide" };
                format!("ide-hd,bus={controller}.{},{common}", sata_ports - 1)
            }
            DiskBus::Usb => format!("usb-storage,bus=xhci.0,removable=on,{common}"),
        };
        add(&["-device", &device]);
    }
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::super::MachineBuilder;
    use super::*;
    use crate::Machine;

    fn line(builder: MachineBuilder) -> String {
        let dir = tempfile::tempdir().unwrap();
        let network = "tap0".to_owned();
        qemu(builder.spec(), dir.path(), &[network], Accel::Tcg).unwrap().join(" ")
    }

    #[test]
    fn a_server_boots_from_the_network_before_its_disks() {
        let line = line(Machine::builder("a").disk(1 << 20, DiskBus::Virtio).disk(1 << 20, DiskBus::Nvme));
        let at = |what: &str| line.find(what).unwrap_or_else(|| panic!("{what} not in {line}"));
        assert!(at("bootindex=1") < at("virtio-blk-pci") && at("bootindex=2") < at("nvme,id=dev1,drive=disk1"));
        assert!(line.contains("bootindex=3"));
    }

    #[test]
    fn disks_have_512_byte_sectors_by_default() {
        let builder = Machine::builder("a").disk(1 << 20, DiskBus::Virtio).disk(1 << 20, DiskBus::Scsi);
        let line = line(builder.disk(1 << 20, DiskBus::Nvme).sectors_of(4096));
        assert!(line.contains("scsi-id=1,lun=0,id=dev1,"), "{line}");
        assert_eq!(line.matches("logical_block_size").count(), 1, "{line}");
        assert!(line.contains("bootindex=4,logical_block_size=4096,physical_block_size=4096"), "{line}");
    }

    #[test]
    fn each_of_several_sockets_has_its_share_of_the_memory() {
        let line =
            line(Machine::builder("a").memory_mib(513).processors(Processors { sockets: 2, cores: 3, threads: 1 }));
        assert!(line.contains("-m 513 -smp sockets=2,cores=3,threads=1 "), "{line}");
        for node in
            ["id=node0,size=257M", "cpu,node-id=0,socket-id=0", "id=node1,size=256M", "cpu,node-id=1,socket-id=1"]
        {
            assert!(line.contains(node), "{line}");
        }
    }

    #[test]
    fn qemu_gives_no_order_where_the_firmware_decides() {
        let line = line(Machine::builder("a").disk(1 << 20, DiskBus::Virtio).firmware_orders());
        assert_eq!(line.matches("bootindex").count(), 0, "{line}");
    }

    #[test]
    fn a_second_path_leads_to_the_same_disk() {
        let builder = Machine::builder("a").disk(1 << 20, DiskBus::Scsi).another_path().disk(1 << 20, DiskBus::Usb);
        let line = line(builder);
        assert_eq!(line.matches("drive=disk0,").count(), 2, "{line}");
        assert_eq!((line.matches("share-rw=on").count(), line.matches("node-name=disk").count()), (2, 2), "{line}");
        assert!(line.contains("usb-storage,bus=xhci.0,removable=on,id=dev2,drive=disk2"), "{line}");
    }

    #[test]
    fn a_removable_disk_has_a_slot_of_its_own() {
        let builder = Machine::builder("a").disk(1 << 20, DiskBus::Virtio).disk(1 << 20, DiskBus::Nvme).removable();
        let line = line(builder);
        assert!(line.contains("-device pcie-root-port,id=slot1,chassis=2 -device nvme,id=dev1,"), "{line}");
        assert_eq!(line.matches(",bus=slot").count(), 1, "{line}");
    }

    #[test]
    fn a_recorded_disk_is_seen_through_the_recorder() {
        let line = line(Machine::builder("a").disk(1 << 20, DiskBus::Virtio).recorded());
        assert!(line.contains("driver=blklogwrites,node-name=disk0,file=file0,log=log0"), "{line}");
    }
}
