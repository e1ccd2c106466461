//! i: power cut after the commit and before the report: nothing is installed a second time.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_lab::Machine;
use landfall_lab::faulty::Notice;

use super::Context;
use super::paused::Paused;
use super::scene::{BOOT, BOOTED, INSTALL, Scene, require_installed};

pub(super) async fn before_the_ack(context: Context) -> anyhow::Result<()> {
    let mut scene = Scene::start(context).await?;
    let Paused { mut server, url, waits } = Paused::at(&scene, scene.image().stored_bytes - 1).await?;
    let mut machine = scene.described(scene.ordinary("m1")).await?;
    scene.template(&url).await?;
    let workflow = scene.provision(&machine).await?;
    let mark = server.mark();
    machine.power_on().await?;
    server.wait(mark, &waits, scene.limit(INSTALL)).await?;
    scene.wait_began(&machine, &workflow).await?;

    // The coordinator is down when the last byte arrives and the agent commits on its lease.
    scene.coordinator.sigkill().await;
    server.set([]).await?;
    committed(&machine, scene.limit(BOOT)).await?;
    machine.power_cut().await;

    let mark = server.mark();
    scene.coordinator.restart().await?;
    let power_on = machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    let fetched = server.notices(mark).into_iter().any(|notice| matches!(notice, Notice::Request { .. }));
    ensure!(!fetched, "the image was fetched again after it had been committed");
    require_installed(&machine, &workflow)
}

/// Waits for the commit: the boot signature in LBA 0. A file gives no notice of a write, so it is read at short
/// intervals.
async fn committed(machine: &Machine, limit: Duration) -> anyhow::Result<()> {
    let signed = async {
        while !machine.disk(0).has_boot_signature()? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(limit, signed).await.context("the disk was never committed")?
}
