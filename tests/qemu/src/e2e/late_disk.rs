//! s: a second disk that matches is plugged in while the first boot's buses are being scanned: neither is written. The image
//! does not come before the machine has seen the disk, so that the first write cannot either, however late it is plugged in.
//! In the full set: the only disk that matches comes late. A write without it fails at once, and a retry finds it; a `wait` before the
//! write gives it time.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_lab::{DiskBus, FileFault, Firmware, Machine, Mark};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, BOOTED, DISK_BYTES, Scene, require_installed_on};

/// After the agent's start.
const LATE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// The disk that is there from the start, and does not match.
const SMALL: u64 = 64 << 20;
/// After the begin of a `wait` of 30 s.
const LATER: Duration = Duration::from_secs(10);

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

pub(super) async fn found_by_retry_and_wait(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let wait = json!({ "name": "bay", "wait": { "for": "30s" } });
    let write = json!({ "name": "write", "writeImage": { "disk": { "size": ">= 1GiB" }, "image": image } });
    let (seed, reboot) = (json!({ "name": "seed", "cloudInit": {} }), json!({ "name": "reboot", "reboot": {} }));
    scene.actions("at-once", json!([write, seed, reboot])).await?;
    scene.actions("waits", json!([wait, write, seed, reboot])).await?;

    let builder = Machine::builder("retried").firmware(Firmware::Bios).disk(SMALL, DiskBus::Scsi);
    let mut machine = scene.described(builder).await?;
    let workflow = scene.run(&machine, "at-once").await?;
    let power_on = machine.power_on().await?;
    let failed = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let problem = failed.status.and_then(|s| s.problem).context("the workflow failed without a reason")?;
    ensure!(problem.code == ErrorCode::NoDiskMatches, "not the missing disk: {problem}");
    let late = machine.plug_disk(DISK_BYTES).await?;
    let created = scene.landfall(&["retry", &workflow]).await?;
    let retried = created.trim().strip_prefix("workflow/").and_then(|line| line.strip_suffix(" created"));
    is_installed(&scene, &mut machine, retried.with_context(|| format!("no workflow: {created}"))?, late).await?;
    ensure!(machine.serial().lines_since(power_on).iter().filter(|line| line.text.contains("is PID 1")).count() == 1);

    let builder = Machine::builder("waits").firmware(Firmware::Bios).disk(SMALL, DiskBus::Scsi);
    let mut machine = scene.described(builder).await?;
    let workflow = scene.run(&machine, "waits").await?;
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, "wait for 30 s", BOOT).await?;
    // The delay is what is tested, not a wait for something.
    tokio::time::sleep(LATER).await;
    let late = machine.plug_disk(DISK_BYTES).await?;
    is_installed(&scene, &mut machine, &workflow, late).await
}

/// The late disk is, and starts; the other is as it was.
async fn is_installed(scene: &Scene, machine: &mut Machine, workflow: &str, late: usize) -> anyhow::Result<()> {
    let workflow = scene.wait_end(workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_serial(Mark::default(), BOOTED, BOOT).await?;
    require_installed_on(machine, late, &workflow)?;
    ensure!(machine.disk(0).is_untouched()?, "the disk that does not match was touched");
    machine.power_cut().await;
    Ok(())
}
