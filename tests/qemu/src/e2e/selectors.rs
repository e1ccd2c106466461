//! h: a selector that matches two disks is refused, and neither is touched.

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_lab::DiskBus;

use super::Context;
use super::scene::{DISK_BYTES, Scene};

pub(super) async fn two_disks(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut machine = scene.described(scene.ordinary("m1").disk(DISK_BYTES, DiskBus::Virtio)).await?;
    scene.template(&scene.image_url()).await?;
    let workflow = scene.provision(&machine).await?;
    machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let problem = workflow.status.and_then(|s| s.problem).context("the workflow failed without a reason")?;
    ensure!(problem.code == ErrorCode::AmbiguousDisk, "the reason is not the ambiguous disk: {problem}");
    let text = serde_json::to_string(&problem)?;
    for disk in &machine.spec().disks {
        ensure!(text.contains(&disk.serial), "the candidate {} is not listed: {problem}", disk.serial);
    }
    for index in 0..2 {
        ensure!(machine.disk(index).is_untouched()?, "disk {index} was touched");
    }
    Ok(())
}
