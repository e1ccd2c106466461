//! c: a machine whose only way to the coordinator is a VLAN on a bond of two ports, with a switch that speaks LACP at the other end.
//! Its first port netboots, and then leads nowhere. In another machine the firmware knows the VLAN: it netboots with the tag.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{MachineFacts, WorkflowPhase};
use landfall_lab::{Cable, CoordinatorOptions, DiskBus, Firmware, Machine, MachineBuilder, Mark, Network, efi_order};
use serde_json::json;
use tokio::net::UnixDatagram;

use super::Context;
use super::scene::{BOOT, DISK_BYTES, Scene, require_installed};

const ADDRESS: &str = "10.77.0.50/24";
/// What the switch takes, and what the machines tag with.
const VLAN: u16 = 20;

pub(super) async fn over_a_switch(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let dir = scene.context.dir.clone();
    let ([first, at_switch_1], [second, at_switch_2]) = (Cable::ends(&dir, "cable1"), Cable::ends(&dir, "cable2"));
    let at_machine = [first.own.clone(), second.own.clone()];
    let ports = Machine::builder("switch").without_nics().cabled(at_switch_1).cabled(at_switch_2).nic();
    let (mut switch, switch_on) = start_switch(&scene, ports, "").await?;

    let builder = scene.ordinary("m1").firmware(Firmware::Bios).cabled(first).cabled(second);
    let mut machine = builder.build(&scene.network, &dir, scene.context.accel)?;
    let spec = machine.spec().clone();
    let macs: Vec<&str> = spec.nics.iter().map(|nic| nic.mac.as_str()).collect();
    let identity = json!({ "macs": macs, "smbiosUuid": spec.uuid, "serial": spec.serial });
    let network = json!([
        { "ports": macs[1..], "bond": "802.3ad", "vlan": VLAN, "mtu": 1400, "addresses": [ADDRESS] },
        { "ports": [macs[0]], "addresses": ["192.0.2.7/24"] },
    ]);
    scene.apply("Machine", &spec.name, json!({ "identity": identity, "network": network })).await?;
    scene.template(&scene.image_url()).await?;
    let announced = tokio::spawn(announce(at_machine));
    let (workflow, power_on) = scene.install(&mut machine).await?;
    require_installed(&machine, &workflow)?;
    announced.abort();

    machine.wait_serial(power_on, &format!("bond0.20: address {ADDRESS} from the command line"), BOOT).await?;
    machine.wait_serial(power_on, "is reached over bond0.20", BOOT).await?;
    switch.wait_serial(switch_on, "switch: both ports have one partner", BOOT).await?;
    // In a bond every port has the address of the first; the facts keep what is burned in.
    let seen = scene.coordinator.api().machine(machine.name()).await?;
    let facts = seen.status.and_then(|status| status.facts).context("a machine without facts")?;
    let mut reported: Vec<String> = facts.nics.iter().map(|nic| nic.mac.to_string()).collect();
    reported.sort();
    ensure!(reported == macs, "the machine has {macs:?} and reported {reported:?}");
    // Without PACKET_ORIGDEV the kernel names the bond, and not the port.
    let neighbours: Vec<_> = spec.nics[1..].iter().map(|port| neighbour(&facts, &port.mac)).collect();
    ensure!(neighbours == ["p1", "p2"], "at the other ends of the cables are {neighbours:?}");
    ensure!(
        !machine.serial().lines_since(power_on).iter().any(|line| line.text.contains("cannot make")),
        "an interface was not made"
    );
    Ok(())
}

/// From the firmware's first packet on, every one is tagged: the coordinator's UKI comes by HTTP, with the document's network on its
/// command line.
pub(super) async fn by_tagging_firmware(context: Context) -> anyhow::Result<()> {
    let uki = Some(context.artefacts.kernel.with_file_name("landfall.efi"));
    let options = CoordinatorOptions { uki, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let dir = scene.context.dir.clone();
    let [cable, at_switch] = Cable::ends(&dir, "cable");
    let ports = Machine::builder("switch").without_nics().cabled(at_switch).nic();
    let (_switch, _) = start_switch(&scene, ports, "switch=vlan").await?;

    let builder = Machine::builder("m1").firmware(Firmware::Uefi).http_boot().firmware_orders().without_nics();
    let builder = builder.cabled(cable).disk(DISK_BYTES, DiskBus::Virtio);
    let mut machine = builder.build(&scene.network, &dir, scene.context.accel)?;
    let (spec, mac) = (machine.spec().clone(), machine.mac().to_owned());
    let identity = json!({ "macs": [mac], "smbiosUuid": spec.uuid, "serial": spec.serial });
    let network = json!([{ "ports": [mac], "vlan": VLAN }]);
    scene.apply("Machine", &spec.name, json!({ "identity": identity, "network": network })).await?;
    // The image knows no VLAN, so what is installed could not phone home.
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let write = json!({ "name": "write", "writeImage": { "image": image } });
    scene.actions("write", json!([write, { "name": "off", "powerOff": {} }])).await?;
    // The firmware keeps its settings from when it is first on; then a person sets the VLAN. With it the firmware makes other entries,
    // behind all that it had; then a person puts the network first.
    let first = machine.power_on().await?;
    machine.wait_serial(first, ">>Start HTTP Boot", BOOT).await?;
    machine.power_cut().await;
    efi_order::set_vlan(&machine.efi_variables()?, &mac, VLAN)?;
    let second = machine.power_on().await?;
    machine.wait_serial(second, "starting Boot", BOOT).await?;
    machine.power_cut().await;
    efi_order::network_first(&machine.efi_variables()?)?;
    let begin = scene.coordinator.log().mark();
    let workflow = scene.run(&machine, "write").await?;
    let power_on = machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    require_installed(&machine, &workflow)?;
    scene.logged(begin, &["service=http", &format!("/boot/uki/{}.efi", mac.replace(':', "-"))])?;
    machine.wait_serial(power_on, &format!("is reached over eth0.{VLAN}"), BOOT).await?;
    Ok(())
}

/// Starts the switch with these ports; it forwards once this returns.
async fn start_switch(scene: &Scene, ports: MachineBuilder, word: &str) -> anyhow::Result<(Machine, Mark)> {
    let artefacts = &scene.context.artefacts;
    let initramfs = artefacts.switch.as_ref().context("no --switch was given; scripts/test makes its initramfs")?;
    let mut switch = ports
        .firmware(Firmware::Bios)
        .direct_kernel(&artefacts.kernel, initramfs, &format!("console=ttyS0,115200 panic=30 {word}"))
        .build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let on = switch.power_on().await?;
    switch.wait_serial(on, "switch: ready", BOOT).await?;
    Ok((switch, on))
}

/// Announces the ports `p1` and `p2` of a switch by LLDP to these sockets of cables, until it is stopped.
async fn announce(ports: [PathBuf; 2]) -> anyhow::Result<()> {
    let socket = UnixDatagram::unbound()?;
    loop {
        for (nth, port) in (1..).zip(&ports) {
            let head = [0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 9, 0x88, 0xcc];
            let payload = format!("\x02\x04\x07sw1\x04\x03\x05p{nth}\x06\x02\0\x78\0\0");
            // The machine is off, or slow.
            drop(socket.send_to(&[&head[..], payload.as_bytes()].concat(), port).await);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The switch's port at the other end of a port's cable.
fn neighbour(facts: &MachineFacts, mac: &str) -> String {
    let nic = facts.nics.iter().find(|nic| nic.mac.to_string() == mac);
    nic.and_then(|nic| nic.neighbour.as_ref()).map(|heard| heard.port.clone()).unwrap_or_default()
}
