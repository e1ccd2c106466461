//! s, in the full set: of thirty disks on three buses the one that the selector names by its serial number is written, and the facts
//! list each as QEMU was given it.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use landfall_lab::{DiskBus, Extra, Firmware, Machine, Processors};
use serde_json::json;

use super::Context;
use super::matrix::{compare_board, is_as_made, transport};
use super::scene::{BOOT, BOOTED, DISK_BYTES, Scene, require_installed_on};

const DISKS: usize = 30;
/// The capacity of the disks that are not meant.
const SMALL: u64 = 64 << 20;

/// Two sockets, each with a NUMA node of its own.
const TWO_NODES: Processors = Processors { sockets: 2, cores: 2, threads: 1 };

/// The bus of a disk: so many are on one SCSI bus that their names go beyond `sdz`.
const fn bus(index: usize) -> DiskBus {
    match index {
        0 => DiskBus::Virtio,
        20 | 29 => DiskBus::Nvme,
        _ => DiskBus::Scsi,
    }
}

pub(super) async fn one_of_thirty(context: Context, firmware: Firmware, meant: usize) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let builder = Machine::builder("m1").firmware(firmware).processors(TWO_NODES).memory_mib(1024).with(Extra::Screen);
    let capacity = |index| if index == meant { DISK_BYTES } else { SMALL };
    let builder = (0..DISKS).fold(builder, |builder, index| builder.disk(capacity(index), bus(index)));
    let mut machine = scene.described(builder).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let actions = json!([
        { "name": "write", "writeImage": { "disk": { "serial": machine.spec().disks[meant].serial }, "image": image } },
        { "name": "seed", "cloudInit": {} },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    require_installed_on(&machine, meant, &workflow)?;
    for index in (0..DISKS).filter(|index| *index != meant) {
        ensure!(machine.disk(index).is_untouched()?, "disk {index} was touched");
    }
    facts_are_right(&scene, &machine).await
}

async fn facts_are_right(scene: &Scene, machine: &Machine) -> anyhow::Result<()> {
    let known = scene.coordinator.api().machine(machine.name()).await?;
    let facts = known.status.and_then(|status| status.facts).context("a machine without facts")?;
    compare_board(&facts, machine)?;
    let ports: Vec<_> = facts.nics.iter().map(|nic| (nic.mac.to_string(), nic.carrier)).collect();
    ensure!(ports == [(machine.mac().to_owned(), true)], "ports {ports:?}");
    let given = machine.spec().disks.iter().map(|disk| (disk.serial.as_str(), disk.bytes, 512, transport(disk.bus)));
    let seen = facts
        .disks
        .iter()
        .map(|disk| (disk.id.serial.as_str(), disk.id.size_bytes, disk.logical_sector_bytes, disk.transport.as_str()));
    let (mut given, mut seen): (Vec<_>, Vec<_>) = (given.collect(), seen.collect());
    given.sort_unstable();
    seen.sort_unstable();
    ensure!(seen == given, "the machine has {given:?}, and its facts {seen:?}");
    for disk in &facts.disks {
        let made = machine.spec().disks.iter().find(|made| made.serial == disk.id.serial);
        is_as_made(made.context("a disk that the machine does not have")?.bus, disk)?;
    }
    let paths: BTreeSet<_> = facts.disks.iter().map(|disk| &disk.id.path).collect();
    ensure!(paths.len() == DISKS, "two disks are at one place: {paths:?}");
    let screens = facts.devices.iter().filter(|device| device.class == "display");
    let screens: Vec<_> = screens.map(|device| [&device.vendor, &device.device].map(String::as_str)).collect();
    ensure!(screens == [["1234", "1111"]], "screens {screens:?}");
    let cpus = facts.memory.nodes.iter().map(|node| node.cpus.as_str());
    ensure!(cpus.eq(["0-1", "2-3"]), "{:?}", facts.memory);
    Ok(())
}
