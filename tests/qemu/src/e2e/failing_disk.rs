//! m: disks that fail: a sector that takes no write, one that does not give back what was written, and a cache that
//! cannot be flushed. Each workflow fails within seconds, names the sector, and leaves a disk that does not boot; with
//! repaired disks a new workflow installs the machine.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, Workflow, WorkflowPhase, WorkflowStatus};
use landfall_lab::faulty::Notice;
use landfall_lab::{DiskBus, DiskErrors, DiskFault, FileFault, Firmware, Machine};
use serde_json::{Value, json};

use super::Context;
use super::raw::{decode, sector_of_data};
use super::scene::{BOOT, BOOTED, DISK_BYTES, INSTALL, Scene};
use super::whole_image::require_image;

/// From the disk's error to the failed workflow in the coordinator's status, under KVM. Usually it is a second.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// A disk for each way to fail.
const WRITE: usize = 0;
const READ_BACK: usize = 1;
const FLUSH: usize = 2;
const DISKS: [usize; 3] = [WRITE, READ_BACK, FLUSH];

pub(super) async fn each_way(context: Context) -> anyhow::Result<()> {
    let raw = context.dir.join("image.raw");
    let stored = context.artefacts.image.path.clone();
    let to = raw.clone();
    tokio::task::spawn_blocking(move || decode(&stored, &to)).await??;
    let at = sector_of_data(&raw)?;
    let scene = Scene::start(context).await?;
    let mut server = scene.faulty().await?;
    let file = scene.image().file_name();
    let builder = DISKS
        .iter()
        .fold(Machine::builder("m1").firmware(Firmware::Bios), |builder, _| builder.disk(DISK_BYTES, DiskBus::Virtio));
    let mut machine = scene.described(builder).await?;
    for disk in DISKS {
        scene.actions(&template(disk), json!([write(&scene, &machine, &server.url(&file), disk)])).await?;
    }

    let run = scene.run(&machine, &template(WRITE)).await?;
    machine.power_on().await?;
    machine.fail_disk(WRITE, DiskFault::write(at)).await?;
    machine.fail_disk(READ_BACK, DiskFault::read(at)).await?;
    machine.off_at_reboot().await?;
    let errors = machine.disk_errors()?;
    let sector = format!("sector {} (byte {at})", at / 512);
    failed(&scene, &machine, WRITE, &run, errors, &["write", &sector]).await?;

    let errors = machine.disk_errors()?;
    let run = scene.run(&machine, &template(READ_BACK)).await?;
    failed(&scene, &machine, READ_BACK, &run, errors, &["read back", &sector]).await?;

    // The old content is gone for good when this one begins to fail: what cannot be flushed is the new.
    let half = scene.image().stored_bytes / 2;
    server.set([(file.clone(), FileFault { pause_at: Some(half), ..FileFault::default() })]).await?;
    let mark = server.mark();
    let run = scene.run(&machine, &template(FLUSH)).await?;
    server.wait(mark, &Notice::Paused { file: file.clone(), at: half }, scene.limit(INSTALL)).await?;
    let writing = |w: &Workflow| {
        let action = w.status.as_ref().and_then(|s| s.actions.first());
        action.and_then(|a| a.progress.as_ref()).is_some_and(|progress| progress.stage == "write")
    };
    scene.coordinator.api().wait_workflow(&run, "in mid-write", scene.limit(INSTALL), writing).await?;
    // It flushes while it writes: an error may come at once.
    let errors = machine.disk_errors()?;
    machine.fail_disk(FLUSH, DiskFault::flush()).await?;
    server.set([]).await?;
    failed(&scene, &machine, FLUSH, &run, errors, &["flush"]).await?;

    for disk in DISKS {
        machine.mend_disk(disk).await?;
    }
    let mut actions: Vec<Value> = DISKS.iter().map(|disk| write(&scene, &machine, &server.url(&file), *disk)).collect();
    actions.push(json!({ "name": "reboot", "reboot": {} }));
    scene.actions("again", actions.into()).await?;
    let run = scene.run(&machine, "again").await?;
    let again = scene.wait_end(&run, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    for (disk, action) in DISKS.into_iter().zip(0..) {
        require_image(&machine, disk, &raw, &again, action).await?;
    }
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    Ok(())
}

fn template(disk: usize) -> String {
    format!("disk-{disk}")
}

/// An action that writes and reads back. A disk's failure is not retryable, so the second attempt that the policy
/// allows must not be made.
fn write(scene: &Scene, machine: &Machine, url: &str, disk: usize) -> Value {
    let image = json!({ "url": url, "digest": scene.image().digest });
    let which = json!({ "serial": machine.spec().disks[disk].serial });
    let spec = json!({ "disk": which, "image": image, "verify": "readBack" });
    json!({ "name": format!("write-{disk}"), "writeImage": spec, "retry": { "maxAttempts": 2, "initialBackoff": "1s" } })
}

/// Waits for the disk's error and, within seconds of it, for the failed workflow; requires that status and command line
/// say what it was, and that the disk does not boot.
async fn failed(
    scene: &Scene, machine: &Machine, disk: usize, run: &str, mut errors: DiskErrors, said: &[&str],
) -> anyhow::Result<()> {
    let api = scene.coordinator.api();
    let ended = |w: &Workflow| w.status.as_ref().is_some_and(|s| s.phase.is_terminal());
    tokio::select! {
        error = errors.next(scene.limit(INSTALL)) => error?,
        end = api.wait_workflow(run, "ended", scene.limit(INSTALL), ended) => {
            // The disk's error was reported before the workflow's end, but may be read after it.
            let phase = end?.status.map(|s| s.phase);
            errors.next(scene.limit(SHOWN_WITHIN)).await.with_context(|| format!("the workflow ended {phase:?} without an error of its \
                disk"))?;
        }
    }
    let workflow = api.wait_workflow(run, "failed within seconds", scene.limit(SHOWN_WITHIN), ended).await?;
    let status: WorkflowStatus = workflow.status.context("a workflow without a status")?;
    let problem = status.problem.context("the workflow failed without a reason")?;
    ensure!(status.phase == WorkflowPhase::Failed, "the workflow ended {:?}: {problem}", status.phase);
    ensure!(problem.code == ErrorCode::DeviceIo, "the reason is not the device: {problem}");
    let attempt = status.actions.first().context("a workflow without actions")?.attempt;
    ensure!(attempt == 1, "a disk's failure was tried {attempt} times");
    // The command line shows the same to a person.
    let shown = scene.describe_workflow(run).await?;
    for words in said.iter().chain(&["Failed", "DeviceIo"]) {
        ensure!(shown.contains(words), "landfall describe does not say \"{words}\":\n{shown}");
    }
    // The sector stands in the sentence or in its cause.
    let reason = problem.to_string();
    for words in said {
        ensure!(reason.contains(words), "the reason does not say \"{words}\": {problem}");
    }
    let disk = machine.disk(disk);
    ensure!(!disk.has_boot_signature()?, "a disk that failed carries a boot signature");
    ensure!(!disk.has_primary_gpt()?, "a disk that failed carries a partition table");
    ensure!(!disk.has_backup_gpt()?, "a disk that failed carries a partition table at its end");
    Ok(())
}
