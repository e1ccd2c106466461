//! s: a second disk that matches is plugged in while the first boot's buses are being scanned: neither is written.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_lab::{DiskBus, Firmware, Machine};

use super::Context;
use super::scene::{BOOT, DISK_BYTES, Scene};

/// After the agent's start.
const LATE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

pub(super) async fn plugged_in(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    scene.template(&scene.image_url()).await?;
    for (at, late) in LATE.into_iter().enumerate() {
        let builder = Machine::builder(&format!("m{at}")).firmware(Firmware::Bios);
        let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Scsi)).await?;
        let workflow = scene.provision(&machine).await?;
        let power_on = machine.power_on().await?;
        machine.wait_serial(power_on, "is PID 1", BOOT).await?;
        // The delay is what is tested, not a wait for something.
        tokio::time::sleep(late).await;
        machine.plug_disk(DISK_BYTES).await?;
        let workflow = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
        let problem = workflow.status.and_then(|s| s.problem).context("the workflow failed without a reason")?;
        ensure!(problem.code == ErrorCode::AmbiguousDisk, "{late:?}: not the ambiguous disk: {problem}");
        for (index, disk) in machine.spec().disks.iter().enumerate() {
            ensure!(problem.to_string().contains(&disk.serial), "{late:?}: {} is not listed: {problem}", disk.serial);
            ensure!(machine.disk(index).is_untouched()?, "{late:?}: disk {index} was touched");
        }
        machine.power_cut().await;
    }
    Ok(())
}
