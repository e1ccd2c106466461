//! s: a second disk that matches is plugged in while the first boot's buses are being scanned: neither is written. The image
//! does not come before the machine has seen the disk, so that the first write cannot either, however late it is plugged in.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_lab::{DiskBus, FileFault, Firmware, Machine};

use super::Context;
use super::scene::{BOOT, DISK_BYTES, Scene};

/// After the agent's start.
const LATE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

pub(super) async fn plugged_in(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut server = scene.faulty().await?;
    let file = scene.image().file_name();
    scene.template(&server.url(&file)).await?;
    for (at, late) in LATE.into_iter().enumerate() {
        let builder = Machine::builder(&format!("m{at}")).firmware(Firmware::Bios);
        let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Scsi)).await?;
        server.set([(file.clone(), FileFault { pause_at: Some(0), ..FileFault::default() })]).await?;
        let (workflow, power_on) = scene.begin(&mut machine).await?;
        machine.wait_serial(power_on, "is PID 1", BOOT).await?;
        // The delay is what is tested, not a wait for something.
        tokio::time::sleep(late).await;
        machine.plug_disk(DISK_BYTES).await?;
        // Where the agent had chosen before, it chooses again.
        let attached = |line: &str| line.contains(":0:1:0: [sd") && line.contains("Attached SCSI disk");
        machine.serial().wait_line(power_on, "the late disk", scene.limit(BOOT), attached).await?;
        server.set([]).await?;
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
