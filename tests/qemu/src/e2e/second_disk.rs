//! u: a BIOS machine whose first disk looks bootable and is not the system: after the install, and after each power-on, the
//! second disk starts.

use anyhow::ensure;
use landfall_api::WorkflowPhase;
use landfall_lab::{DiskBus, Firmware};
use serde_json::json;

use super::Context;
use super::scene::{BOOTED, DISK_BYTES, INSTALL, Scene};

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
    let workflow = scene.provision(&machine).await?;
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    ensure!(machine.disk(0).read(0, 512)? == dead_end(), "the first disk was touched");

    machine.power_cut().await;
    let asked = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    scene.logged(asked, &["service=http", "/boot/find-disk"])
}
