//! a, b: power-on to phone-home, on either firmware.

use anyhow::ensure;
use landfall_api::{MachineFacts, MachinePhase};
use landfall_lab::{Firmware, MachineSpec, Mark};

use super::Context;
use super::matrix::compare_board;
use super::scene::{BOOT, BOOTED, Scene, require_installed};

/// The loader each firmware fetches by TFTP.
pub(super) const fn loader(firmware: Firmware) -> &'static str {
    match firmware {
        Firmware::Bios => "undionly.kpxe",
        Firmware::Uefi => "snponly.efi",
    }
}

pub(super) async fn to_phone_home(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(firmware)).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;

    let mac = machine.mac().to_owned();
    let begin = Mark::default();
    scene.logged(begin, &["service=dhcp", &mac])?;
    scene.logged(begin, &["service=tftp", loader(firmware)])?;
    scene.logged(begin, &["service=http", "/boot/ipxe", &mac])?;
    scene.logged(begin, &["service=http", "/boot/kernel"])?;
    scene.logged(begin, &["service=http", "/boot/initramfs"])?;
    scene.logged(begin, &["service=http", "/images/"])?;
    require_installed(&machine, &workflow)?;
    ensure!(workflow.status.is_some_and(|s| s.phoned_home_at.is_some()), "it succeeded without a phone-home");
    // The machine's own document follows its workflow's.
    let provisioned =
        |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|s| s.phase == MachinePhase::Provisioned);
    let api = scene.coordinator.api();
    let seen = api.wait_machine(machine.name(), "Provisioned", scene.limit(BOOT), provisioned).await?;
    let status = seen.status.ok_or_else(|| anyhow::anyhow!("the machine has no status"))?;
    let facts = status.facts.ok_or_else(|| anyhow::anyhow!("the machine has no facts"))?;
    compare_board(&facts, &machine)?;
    hardware_is_reported(&facts, machine.spec())
}

/// The other parts that QEMU was given are in the facts.
fn hardware_is_reported(facts: &MachineFacts, spec: &MachineSpec) -> anyhow::Result<()> {
    let modules: u64 = facts.memory.modules.iter().map(|module| module.size_bytes >> 20).sum();
    ensure!(modules == u64::from(spec.memory_mib), "the agent saw memory modules of {modules} MiB: {:?}", facts.memory);
    ensure!(!facts.cpu.flags.is_empty(), "the agent saw no flags of the processor");
    let port = facts.nics.first().map(|nic| nic.address.as_str()).unwrap_or_default();
    let of_port = facts.devices.iter().find(|device| device.address == port);
    let seen = of_port.map(|device| [&device.bus, &device.class, &device.vendor, &device.driver].map(String::as_str));
    ensure!(seen == Some(["pci", "network", "1af4", "virtio-pci"]), "at {port:?} the agent saw {seen:?}");
    Ok(())
}
