//! s, in the full set: USB disks, with the boot image for servers. A stick beside an empty bay is not chosen without
//! `transport`, and a USB disk whose bus is scanned late is waited for; the facts name the TPM's key and the BMC. h: two paths to
//! one disk.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{BmcFacts, Digest, ErrorCode, Machine as Known, Problem, WorkflowPhase};
use landfall_lab::{
    BMC_ADDRESS, BMC_MAC, CoordinatorOptions, DiskBus, Extra, Firmware, Machine, Network, endorsement_key,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Context;
use super::scene::{BOOT, DISK_BYTES, Scene, require_installed};

/// After a USB storage device was found, the kernel waits this long before it looks for disks on it. The agent's quiet time,
/// in which a fast bus announces everything, is 3 s.
const DELAY: Duration = Duration::from_secs(8);
const OPTIONS: &str = "console=tty0 console=ttyS0,115200 usb_storage.delay_use=8";

pub(super) async fn beside_an_empty_bay(mut context: Context) -> anyhow::Result<()> {
    let mut artefacts = (*context.artefacts).clone();
    (artefacts.kernel, artefacts.initramfs) = artefacts.boot_image(true)?;
    context.artefacts = Arc::new(artefacts);
    let network = Network::create()?;
    let options = CoordinatorOptions { kernel_args: OPTIONS.into(), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, network, options).await?;
    for (name, disk) in [
        ("any", json!({})),
        ("either", json!({ "transport": "in virtio,usb" })),
        ("stick", json!({ "transport": "usb" })),
    ] {
        scene.actions(name, actions(&scene, &disk)).await?;
    }

    // An empty bay and a stick.
    let builder = Machine::builder("bay").firmware(Firmware::Uefi).memory_mib(1024).disk(DISK_BYTES, DiskBus::Usb);
    let mut machine = scene.described(builder.with(Extra::TpmAndBmc)).await?;
    let workflow = scene.run(&machine, "any").await?;
    let power_on = machine.power_on().await?;
    let seen = machine.wait_serial(power_on, "is not probed yet", BOOT).await;
    seen.context("the agent did not wait for the USB disk")?;
    let problem = failed(&scene, &workflow).await?;
    ensure!(problem.code == ErrorCode::NoDiskMatches, "not the missing disk: {problem}");
    ensure!(problem.to_string().contains("transport: usb"), "it does not say how a stick is chosen: {problem}");
    ensure!(problem.to_string().contains(&machine.spec().disks[0].serial), "the stick is not listed: {problem}");
    ensure!(machine.disk(0).is_untouched()?, "the stick was touched");
    names_tpm_and_bmc(&scene, &machine).await?;

    // The same machine, and a person means the stick.
    let workflow = scene.run(&machine, "stick").await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    require_installed(&machine, &workflow)?;

    // A disk that is there at once, and one that is not: both match, and the first is not taken for the only one.
    let builder = Machine::builder("late").firmware(Firmware::Bios).memory_mib(1024).disk(DISK_BYTES, DiskBus::Virtio);
    let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Usb)).await?;
    let workflow = scene.run(&machine, "either").await?;
    machine.power_on().await?;
    let problem = failed(&scene, &workflow).await?;
    ensure!(problem.code == ErrorCode::AmbiguousDisk, "after {DELAY:?}: not the ambiguous disk: {problem}");
    for (index, disk) in machine.spec().disks.iter().enumerate() {
        ensure!(problem.to_string().contains(&disk.serial), "{} is not listed: {problem}", disk.serial);
        ensure!(machine.disk(index).is_untouched()?, "disk {index} was touched");
    }
    Ok(())
}

/// A machine that waits after its workflow failed: what answers slowly was sent after the other facts.
async fn names_tpm_and_bmc(scene: &Scene, machine: &Machine) -> anyhow::Result<()> {
    let facts = |known: &Known| known.status.as_ref().and_then(|status| status.facts.clone());
    let has_both = |known: &Known| {
        facts(known).is_some_and(|f| f.bmc.is_some() && f.tpm.as_ref().is_some_and(|tpm| tpm.endorsement_key.is_some()))
    };
    let known =
        scene.coordinator.api().wait_machine(machine.name(), "TPM and BMC", scene.limit(BOOT), has_both).await?;
    let facts = facts(&known).context("a machine without facts")?;
    let key = Digest::from_sha256(Sha256::digest(endorsement_key(machine)?).into());
    let tpm = facts.tpm.clone().unwrap_or_default();
    ensure!((tpm.version, tpm.endorsement_key) == (2, Some(key)), "not the key {key}: {tpm:?}");
    let bmc = BmcFacts {
        address: Some(BMC_ADDRESS),
        address_source: "dhcp".into(),
        mac: Some(BMC_MAC.parse()?),
        firmware: "9.08".into(),
        manufacturer: 674,
        product: 256,
        ..BmcFacts::default()
    };
    ensure!(facts.bmc.as_ref() == Some(&bmc), "not {bmc:?}: {:?}", facts.bmc);
    Ok(())
}

/// Two paths to one unit that has no world-wide name: neither is written, however the selector names it.
pub(super) async fn two_paths(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Bios).disk(DISK_BYTES, DiskBus::Scsi).another_path();
    let mut machine = scene.described(builder).await?;
    let serial = machine.spec().disks[0].serial.clone();
    let mut on = false;
    for (name, disk, says) in [
        ("serial", json!({ "serial": serial }), "more than one disk matches"),
        ("name", json!({ "name": "sda" }), "no wwn"),
    ] {
        scene.actions(name, actions(&scene, &disk)).await?;
        let workflow = scene.run(&machine, name).await?;
        if !on {
            machine.power_on().await?;
            on = true;
        }
        let problem = failed(&scene, &workflow).await?;
        ensure!(problem.code == ErrorCode::AmbiguousDisk, "{name}: not the ambiguous disk: {problem}");
        ensure!(problem.to_string().contains(says), "{name}: it does not say \"{says}\": {problem}");
        ensure!(machine.disk(0).is_untouched()?, "{name}: the disk was touched");
    }
    Ok(())
}

fn actions(scene: &Scene, disk: &Value) -> Value {
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    json!([{ "name": "write", "writeImage": { "disk": disk, "image": image } }, { "name": "off", "powerOff": {} }])
}

async fn failed(scene: &Scene, workflow: &str) -> anyhow::Result<Problem> {
    let workflow = scene.wait_end(workflow, WorkflowPhase::Failed).await?;
    workflow.status.and_then(|s| s.problem).context("the workflow failed without a reason")
}
