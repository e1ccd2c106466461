//! u: which of two disks boots. A BIOS machine whose first disk looks bootable and is not the system: after the install, and after each power-on, the
//! second disk starts. A UEFI machine with the network first in its own boot order, and an old system on its first disk: the
//! firmware starts that one until the second disk is installed, and from then on the second.

use std::path::Path;

use anyhow::ensure;
use landfall_api::WorkflowPhase;
use landfall_image::disk::{self, filesystem::RootFs, layout::Sector, seed::Seed};
use landfall_lab::{DhcpMode, DiskBus, Firmware, Network, efi_order};
use serde_json::{Value, json};

use super::Context;
use super::scene::{BOOT, BOOTED, DISK_BYTES, INSTALL, Scene};

/// What the old system says, for ever: it begins as what the new one says, so that one wait ends by either.
const OLD: &str = "mini: booted long ago";

/// A boot sector that jumps to itself for ever: what a data disk with a leftover boot sector does to a machine.
fn dead_end() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[..2].copy_from_slice(&[0xeb, 0xfe]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

pub(super) async fn boots(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let builder = scene.ordinary("m1").disk(DISK_BYTES, DiskBus::Virtio).firmware(Firmware::Bios);
    let mut machine = scene.described(builder).await?;
    machine.disk(0).write(0, &dead_end())?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let second = json!({ "serial": machine.spec().disks[1].serial });
    let actions = json!([
        { "name": "write", "writeImage": { "disk": second, "image": image } },
        { "name": "seed", "cloudInit": {} },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    ensure!(machine.disk(0).read(0, 512)? == dead_end(), "the first disk was touched");

    machine.power_cut().await;
    let asked = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    scene.logged(asked, &["service=http", "/boot/find-disk"])
}

/// The same where the first disk is of the same list: it carries a receipt of the workflow too, and the image of a system.
pub(super) async fn boots_beside_data(context: Context) -> anyhow::Result<()> {
    let (scene, old, new) = with_old_system(context).await?;
    let builder = scene.ordinary("m1").disk(DISK_BYTES, DiskBus::Virtio).firmware(Firmware::Bios);
    let mut machine = scene.described(builder).await?;
    let on = |disk: usize| json!({ "serial": machine.spec().disks[disk].serial });
    let actions = json!([
        { "name": "data", "writeImage": { "disk": on(0), "image": old } },
        { "name": "system", "writeImage": { "disk": on(1), "image": new } },
        { "name": "seed", "cloudInit": { "disk": on(1) } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let workflow = scene.provision(&machine).await?;
    for turn in ["after the install", "after another power-on"] {
        let power_on = machine.power_on().await?;
        let booted = machine.wait_serial_line(power_on, BOOTED, INSTALL).await?;
        ensure!(!booted.text.contains(OLD), "the disk for data started {turn}");
        scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
        machine.power_cut().await;
    }
    Ok(())
}

/// A coordinator that serves the image of an old system and the new one's; both as an action names them.
async fn with_old_system(context: Context) -> anyhow::Result<(Scene, Value, Value)> {
    let images = context.dir.join("images");
    let (image, directory) = (context.artefacts.image.clone(), images.clone());
    let old = tokio::task::spawn_blocking(move || {
        let digest = old_system(&directory)?;
        std::fs::copy(&image.path, directory.join("new.img.zst"))?;
        Ok::<_, anyhow::Error>(digest)
    });
    let old = old.await??;
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let old = json!({ "url": scene.url(disk::assemble::STORED), "digest": old });
    let new = json!({ "url": scene.url("new.img.zst"), "digest": scene.image().digest });
    Ok((scene, old, new))
}

pub(super) async fn boots_on_uefi(context: Context) -> anyhow::Result<()> {
    let (scene, old, new) = with_old_system(context).await?;
    let builder = scene.ordinary("m1").disk(DISK_BYTES, DiskBus::Virtio).firmware(Firmware::Uefi);
    let mut machine = scene.described(builder.firmware_orders()).await?;
    let on = |disk: usize| json!({ "serial": machine.spec().disks[disk].serial });
    let first = json!([
        { "name": "write", "writeImage": { "disk": on(0), "image": old } },
        { "name": "off", "powerOff": {} },
    ]);
    let second = json!([
        { "name": "write", "writeImage": { "disk": on(1), "image": new } },
        { "name": "seed", "cloudInit": {} },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("first", first).await?;
    scene.actions("second", second).await?;

    let workflow = scene.run(&machine, "first").await?;
    machine.power_on().await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    efi_order::network_first(&machine.efi_variables()?)?;
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, OLD, BOOT).await?;
    machine.power_cut().await;

    let workflow = scene.run(&machine, "second").await?;
    for turn in ["after the install", "after another power-on"] {
        let power_on = machine.power_on().await?;
        let booted = machine.wait_serial_line(power_on, BOOTED, INSTALL).await?;
        ensure!(!booted.text.contains(OLD), "the old system started {turn}");
        scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
        machine.power_cut().await;
    }
    Ok(())
}

/// Makes the image of a system that starts and does nothing; its digest.
fn old_system(directory: &Path) -> anyhow::Result<String> {
    let root = directory.with_file_name("old");
    std::fs::create_dir_all(directory)?;
    std::fs::create_dir_all(root.join("boot/grub"))?;
    std::fs::write(root.join("boot/grub/grub.cfg"), format!("while true; do echo {OLD}; sleep 2; done\n"))?;
    let recipe = disk::Recipe {
        root: &root,
        label: "old",
        seed: Seed::new("landfall old system"),
        sector: Sector::Bytes512,
        root_fs: RootFs::Ext4,
        root_mib: 16,
        var: None,
        esp_mib: 16,
        grub: Path::new("/usr/lib/grub"),
        level: 1,
        keep_raw: false,
    };
    Ok(disk::assemble(&recipe, directory)?.digest)
}
