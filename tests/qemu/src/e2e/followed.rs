//! n: what a person sees of a running workflow. Its log lines arrive live; a stop interrupts the write, leaves a disk
//! that does not boot, and names the person; `landfall describe` shows a failure within seconds of the disk's error.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, Workflow, WorkflowPhase};
use landfall_lab::faulty::Notice;
use landfall_lab::{DiskFault, FileFault, Firmware, Mark};

use super::Context;
use super::raw::{decode, sector_of_data};
use super::scene::{INSTALL, Scene};

/// From the disk's error to the reason in `landfall describe`, under KVM.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// From a person's stop to the machine's, under KVM.
const STOPPED: Duration = Duration::from_secs(10);

pub(super) async fn as_it_happens(context: Context) -> anyhow::Result<()> {
    let raw = context.dir.join("image.raw");
    let (stored, to) = (context.artefacts.image.path.clone(), raw.clone());
    tokio::task::spawn_blocking(move || decode(&stored, &to)).await??;
    let bad = sector_of_data(&raw)?;
    let scene = Scene::start(context).await?;
    let mut server = scene.faulty().await?;
    let file = scene.image().file_name();
    let half = scene.image().stored_bytes / 2;
    server.set([(file.clone(), FileFault { pause_at: Some(half), ..FileFault::default() })]).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Bios)).await?;
    scene.template(&server.url(&file)).await?;
    let run = scene.provision(&machine).await?;
    let mark = server.mark();
    machine.power_on().await?;

    // Its lines come while it runs: the write stands still at the image's middle, and cannot have ended.
    let (mut following, lines) = scene.landfall_follows(&["logs", "-f", &run], "logs")?;
    server.wait(mark, &Notice::Paused { file: file.clone(), at: half }, scene.limit(INSTALL)).await?;
    let of_the_write = |line: &str| line.contains("write");
    lines.wait_until(Mark::default(), "a line of the write", scene.limit(STOPPED), of_the_write).await?;
    let status = scene.coordinator.api().workflow(&run).await?.status.context("a workflow without a status")?;
    ensure!(status.phase == WorkflowPhase::Running, "the workflow is {:?} while its lines are followed", status.phase);

    // A person stops it.
    scene.landfall(&["cancel", &run]).await?;
    let ended = scene.wait_end(&run, WorkflowPhase::Cancelled).await?;
    let problem = ended.status.and_then(|s| s.problem).context("it was cancelled without a reason")?;
    ensure!(problem.code == ErrorCode::Cancelled, "the reason is not the person's: {problem}");
    let shown = scene.describe_workflow(&run).await?;
    for words in ["Cancelled", "cancelled by root"] {
        ensure!(shown.contains(words), "landfall describe does not say \"{words}\":\n{shown}");
    }
    following.wait(scene.limit(STOPPED)).await.context("landfall logs -f does not end with the workflow")?;
    // The server would send the rest of the image, but the machine does not request it.
    let mark = server.mark();
    server.set([]).await?;
    unbootable(&machine)?;
    let written = machine.disk(0).allocated()?;

    // The next workflow begins without a restart, and its disk fails.
    machine.fail_disk(0, DiskFault::write(bad)).await?;
    let mut errors = machine.disk_errors()?;
    let asked = server.notices(mark).into_iter().any(|notice| matches!(notice, Notice::Request { .. }));
    ensure!(!asked, "the machine requested more of the image after it was stopped");
    ensure!(machine.disk(0).allocated()? == written, "the machine continued to write after it was stopped");
    let again = scene.provision(&machine).await?;
    errors.next(scene.limit(INSTALL)).await?;
    let begun = Instant::now();
    let failed = |w: &Workflow| w.status.as_ref().is_some_and(|s| s.phase == WorkflowPhase::Failed);
    scene.coordinator.api().wait_workflow(&again, "failed within seconds", scene.limit(SHOWN_WITHIN), failed).await?;
    let shown = scene.describe_workflow(&again).await?;
    let took = begun.elapsed();
    for words in ["Failed", "DeviceIo", "write"] {
        ensure!(shown.contains(words), "landfall describe does not say \"{words}\":\n{shown}");
    }
    ensure!(took <= scene.limit(SHOWN_WITHIN), "landfall describe showed the failure {took:?} after the disk's error");
    println!("     n: landfall describe shows a failure {} ms after the disk's error", took.as_millis());
    let workflow = scene.coordinator.api().workflow(&again).await?;
    let problem = workflow.status.and_then(|s| s.problem).context("it failed without a reason")?;
    ensure!(!problem.last_log_lines.is_empty(), "the failure comes without the action's last log lines");
    unbootable(&machine)
}

fn unbootable(machine: &landfall_lab::Machine) -> anyhow::Result<()> {
    let disk = machine.disk(0);
    ensure!(!disk.has_boot_signature()?, "the disk carries a boot signature");
    ensure!(!disk.has_primary_gpt()?, "the disk carries a partition table");
    ensure!(!disk.has_backup_gpt()?, "the disk carries a partition table at its end");
    Ok(())
}
