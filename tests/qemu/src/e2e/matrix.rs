//! s: machines of every kind, each from power-on to enrolment, and its facts compared with what QEMU was given. Those that the system of
//! the tests can start on are installed, to phone-home.

mod pairs;

use std::path::Path;

use anyhow::{Context as _, ensure};
use landfall_api::{DiskFacts, DiskId, FirmwareMode, MachineFacts, WorkflowPhase};
use landfall_image::iso;
use landfall_lab::{Card, CoordinatorOptions, DiskBus, Firmware, Machine, MachineBuilder, Medium, Network, Processors};
use serde_json::json;

use self::pairs::Row;
use super::Context;
use super::scene::{BOOT, BOOTED, DISK_BYTES, Scene, command_line, require_installed};

/// How a machine gets to the boot image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    BiosPxe,
    UefiPxe,
    UefiHttp,
    /// BIOS.
    Cd,
    /// UEFI.
    Usb,
}

impl Way {
    const ALL: [Self; 5] = [Self::BiosPxe, Self::UefiPxe, Self::UefiHttp, Self::Cd, Self::Usb];

    const fn firmware(self) -> Firmware {
        match self {
            Self::BiosPxe | Self::Cd => Firmware::Bios,
            Self::UefiPxe | Self::UefiHttp | Self::Usb => Firmware::Uefi,
        }
    }
}

/// Every row of this way, one machine after another.
pub(super) async fn rows(context: Context, way: Way) -> anyhow::Result<()> {
    let rows: Vec<Row> = pairs::rows().into_iter().filter(|row| row.way == way).collect();
    // One coordinator serves one boot image.
    for server in [false, true] {
        let rows: Vec<_> = rows.iter().filter(|row| row.needs_server() == server).collect();
        if rows.is_empty() {
            continue;
        }
        let dir = context.dir.join(if server { "server" } else { "vm" });
        std::fs::create_dir_all(&dir)?;
        let scene = scene(Context { dir, ..context.clone() }, way, server).await?;
        for (number, row) in rows.iter().enumerate() {
            let installed = row.is_installed();
            let name = format!("m{number}");
            one(&scene, row, &name, installed).await.with_context(|| format!("{name}: {row:?}"))?;
            println!("     {row:?}{}", if installed { ", installed" } else { "" });
        }
    }
    Ok(())
}

/// A coordinator with the boot image for VMs, or the one for servers.
async fn scene(context: Context, way: Way, server: bool) -> anyhow::Result<Scene> {
    let (kernel, initramfs) = context.artefacts.boot_image(server)?;
    let uki = (way == Way::UefiHttp).then(|| kernel.with_file_name("landfall.efi"));
    let options = CoordinatorOptions { kernel, initramfs, uki, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    scene.template(&scene.image_url()).await?;
    scene.actions("look", json!([{ "name": "off", "powerOff": {} }])).await?;
    Ok(scene)
}

async fn one(scene: &Scene, row: &Row, name: &str, installed: bool) -> anyhow::Result<()> {
    let builder = Machine::builder(name).firmware(row.way.firmware()).board(row.board).card(row.card);
    let builder = builder.memory_mib(row.memory_mib).disk(DISK_BYTES, row.disk).sectors_of(row.sector);
    let builder = if fails(row) { builder.failing() } else { builder };
    let builder = match row.way {
        Way::BiosPxe | Way::UefiPxe => builder,
        Way::UefiHttp => builder.http_boot(),
        Way::Cd | Way::Usb => with_medium(scene, row, builder).await?,
    };
    let mut machine = scene.described(builder).await?;
    let workflow = scene.run(&machine, if installed { "install" } else { "look" }).await?;
    let power_on = machine.power_on().await?;
    if installed && row.way == Way::Cd {
        // It would start again after the install; the agent is in memory.
        scene.wait_began(&machine, &workflow).await?;
        let qmp = machine.qmp().context("the machine is off")?;
        qmp.command("eject", json!({ "id": "medium", "force": true })).await?;
    }
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    let known = scene.coordinator.api().machine(name).await?;
    let facts = known.status.and_then(|status| status.facts).context("a machine without facts")?;
    compare(&facts, row, &machine)?;
    if installed {
        machine.wait_serial(power_on, BOOTED, scene.limit(BOOT)).await?;
        require_installed(&machine, &workflow)?;
        machine.power_cut().await;
    } else {
        machine.wait_off(scene.limit(BOOT)).await?;
    }
    Ok(())
}

/// A boot medium of this scene's coordinator, made once.
async fn with_medium(scene: &Scene, row: &Row, builder: MachineBuilder) -> anyhow::Result<MachineBuilder> {
    let file = scene.context.dir.join("landfall.iso");
    if !file.exists() {
        let (line, (kernel, initramfs)) =
            (command_line(scene).await?, scene.context.artefacts.boot_image(row.needs_server())?);
        let output = file.clone();
        let made = move || {
            let grub = Path::new("/usr/lib/grub");
            iso::build(&iso::Recipe { kernel: &kernel, initramfs: &initramfs, command_line: &line, grub }, &output)
        };
        tokio::task::spawn_blocking(made).await??;
    }
    Ok(builder.medium(&file, if row.way == Way::Cd { Medium::Cd } else { Medium::Usb }))
}

/// Whether its disk says that it fails: some do, some do not.
fn fails(row: &Row) -> bool {
    row.disk == DiskBus::Nvme && row.sector == 4096
}

/// What the agent saw of the board is what QEMU was given.
pub(super) fn compare_board(facts: &MachineFacts, machine: &Machine) -> anyhow::Result<()> {
    let spec = machine.spec();
    let mode = if spec.firmware == Firmware::Uefi { FirmwareMode::Uefi } else { FirmwareMode::Bios };
    ensure!(facts.firmware.mode == mode, "firmware {:?}", facts.firmware);
    ensure!(facts.smbios.uuid == spec.uuid && facts.smbios.serial == spec.serial, "{:?}", facts.smbios);
    let cpu = &facts.cpu;
    let Processors { sockets, cores, threads } = spec.processors;
    let counted = [cpu.sockets, cpu.cores, cpu.logical];
    ensure!(counted == [sockets, sockets * cores, sockets * cores * threads], "{cpu:?}");
    let nodes = facts.memory.nodes.iter().map(|node| node.number);
    ensure!(nodes.eq(0..sockets), "{:?}", facts.memory);
    // The kernel and the firmware keep some of it.
    let mib = facts.memory_bytes >> 20;
    ensure!((mib..=mib + 128).contains(&spec.memory_mib.into()), "{mib} MiB of memory");
    Ok(())
}

/// The facts' word for how a disk is attached.
pub(super) const fn transport(bus: DiskBus) -> &'static str {
    match bus {
        DiskBus::Virtio => "virtio",
        DiskBus::Nvme => "nvme",
        DiskBus::Ahci => "sata",
        DiskBus::Usb => "usb",
        DiskBus::Scsi | DiskBus::MptSas | DiskBus::MegaSas => "scsi",
    }
}

/// The name that udev's rules give such a disk of QEMU's.
fn by_id(bus: DiskBus, DiskId { serial, wwn, .. }: &DiskId) -> String {
    match bus {
        DiskBus::Virtio => format!("virtio-{serial}"),
        DiskBus::Nvme => format!("nvme-QEMU_NVMe_Ctrl_{serial}"),
        DiskBus::Ahci => format!("ata-QEMU_HARDDISK_{serial}"),
        DiskBus::Usb => format!("usb-QEMU_QEMU_HARDDISK_{serial}-0:0"),
        DiskBus::MptSas => format!("scsi-3{}", wwn.trim_start_matches("0x")),
        DiskBus::Scsi | DiskBus::MegaSas => format!("scsi-0QEMU_QEMU_HARDDISK_{serial}"),
    }
}

/// What a disk is, as QEMU makes one for this bus.
pub(super) fn is_as_made(bus: DiskBus, disk: &DiskFacts) -> anyhow::Result<()> {
    let (model, spins) = match bus {
        DiskBus::Virtio => ("", true),
        DiskBus::Nvme => ("QEMU NVMe Ctrl", false),
        DiskBus::Ahci | DiskBus::Usb | DiskBus::Scsi | DiskBus::MptSas | DiskBus::MegaSas => ("QEMU HARDDISK", true),
    };
    ensure!((disk.id.model.as_str(), disk.rotational) == (model, spins), "disk {disk:?}");
    // QEMU makes none for the others.
    ensure!(disk.id.wwn.is_empty() == (bus != DiskBus::MptSas), "disk {disk:?}");
    let at = match bus {
        DiskBus::Virtio => "",
        DiskBus::Nvme => "-nvme-1",
        DiskBus::Ahci => "-ata-",
        DiskBus::Usb => "-usb-0:",
        DiskBus::Scsi | DiskBus::MegaSas | DiskBus::MptSas => "-scsi-0:",
    };
    let path = &disk.id.path;
    ensure!(path.starts_with("pci-0000:") && path.contains(at) && !disk.read_only, "disk {disk:?}");
    Ok(())
}

/// What the agent saw is what QEMU was given.
fn compare(facts: &MachineFacts, row: &Row, machine: &Machine) -> anyhow::Result<()> {
    compare_board(facts, machine)?;
    let nics: Vec<_> = facts.nics.iter().map(|nic| (nic.mac.to_string(), nic.driver.as_str(), nic.carrier)).collect();
    let drivers = match row.card {
        Card::Virtio => &["virtio_net"][..],
        Card::E1000 => &["e1000"],
        Card::E1000e => &["e1000e"],
        Card::Vmxnet3 => &["vmxnet3"],
        Card::Rtl8139 => &["8139cp", "8139too"],
        Card::Usb => &["rndis_host", "cdc_ether"],
    };
    let fits = |nic: &(String, &str, bool)| nic.0 == machine.mac() && drivers.contains(&nic.1) && nic.2;
    ensure!(nics.len() == 1 && fits(&nics[0]), "ports {nics:?}");
    // Of QEMU's cards this one has a version in its EEPROM; the adapter on USB names its protocol.
    let firmware = &facts.nics[0].firmware;
    ensure!(firmware.is_empty() == !matches!(row.card, Card::E1000e | Card::Usb), "the port's firmware {firmware:?}");
    let serial = &machine.spec().disks[0].serial;
    let disk = facts.disks.iter().find(|disk| disk.id.serial == *serial);
    let disk = disk.with_context(|| format!("no disk has the serial number {serial}: {:?}", facts.disks))?;
    let seen = (disk.id.size_bytes, disk.logical_sector_bytes, disk.transport.as_str());
    ensure!(seen == (DISK_BYTES, row.sector, transport(row.disk)), "disk {disk:?}");
    ensure!(disk.by_id.first() == Some(&by_id(row.disk, &disk.id)), "disk {disk:?}");
    is_as_made(row.disk, disk)?;
    // Of QEMU's disks these have SMART.
    let has_health = matches!(row.disk, DiskBus::Nvme | DiskBus::Ahci);
    let failing = disk.health.as_ref().map(|health| health.failing);
    ensure!(failing == has_health.then_some(fails(row)), "health {:?}", disk.health);
    Ok(())
}
