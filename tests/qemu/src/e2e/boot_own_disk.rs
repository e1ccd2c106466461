//! d: an installed machine boots its own disk, with the coordinator up and with it stopped, and nothing is installed.

use anyhow::ensure;
use landfall_lab::Firmware;

use super::Context;
use super::scene::{BOOTED, INSTALL, Scene, receipt, require_installed};

pub(super) async fn second_power_on(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let mut scene = Scene::start(context).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(firmware)).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, _) = scene.install(&mut machine).await?;
    require_installed(&machine, &workflow)?;
    let before = receipt(&machine)?;

    // The coordinator is up: it sends the machine to its own disk.
    machine.power_cut().await;
    let asked = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    scene.logged(asked, &["service=http", "/boot/ipxe", machine.mac()])?;
    ensure!(!scene.has_logged(asked, &["/boot/kernel"]), "the second power-on fetched the boot image");
    ensure!(!scene.has_logged(asked, &["/images/"]), "the second power-on fetched the OS image");

    // The coordinator is gone: the machine finds its disk by itself.
    machine.power_cut().await;
    ensure!(scene.coordinator.stop().await, "the coordinator did not drain on SIGTERM");
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;

    scene.coordinator.restart().await?;
    ensure!(receipt(&machine)? == before, "the receipt on the disk has changed");
    let workflows = scene.coordinator.api().workflow_names().await?;
    ensure!(workflows == [workflow.metadata.name], "there are more workflows than were requested: {workflows:?}");
    Ok(())
}
