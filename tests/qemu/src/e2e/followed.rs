//! n: what a person sees of a workflow. Before the request: what is on the disk that it will destroy. Then its log lines arrive live; a stop interrupts the write, leaves a disk
//! that does not boot, and names the person; `landfall describe` shows a failure within seconds of the disk's error.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, Workflow, WorkflowPhase};
use landfall_lab::faulty::Notice;
use landfall_lab::{DiskFault, Firmware, Machine, Mark};
use serde_json::json;

use super::Context;
use super::paused::Paused;
use super::raw::{decode, sector_of_data};
use super::scene::{INSTALL, Scene};
use super::tools::{run, text};

/// The old system on the disk: where its partition is, bytes, and the label of its file system (xfs_format.h: `sb_fname`).
const OLD_AT: u64 = 1 << 20;
const OLD_BYTES: u64 = 64 << 20;
const XFS_LABEL: u64 = 108;
const LABEL: &str = "Ablage";
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
    let Paused { mut server, url, waits } = Paused::midway(&scene).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Bios)).await?;
    scene.template(&url).await?;
    old_system(&machine)?;
    let hold = json!([{ "name": "wait", "hold": { "message": "until a person has looked" } }]);
    scene.actions("look", hold).await?;
    let look = scene.run(&machine, "look").await?;
    let power_on = machine.power_on().await?;
    let held = |w: &Workflow| w.status.as_ref().is_some_and(|s| s.phase == WorkflowPhase::Running);
    scene.coordinator.api().wait_workflow(&look, "running", scene.limit(INSTALL), held).await?;
    // An agent that knew its disks when it said hello is sent its list before it sends what is on them.
    let seen = |m: &landfall_api::Machine| {
        let disks = m.status.as_ref().and_then(|s| s.facts.as_ref()).map(|facts| facts.disks.as_slice());
        disks.is_some_and(|disks| disks.iter().any(|disk| disk.contents.is_some()))
    };
    let api = scene.coordinator.api();
    api.wait_machine(machine.name(), "what is on its disk", scene.limit(INSTALL), seen).await?;

    // A person looks at the machine's disk, and requests an install.
    let shown = scene.landfall(&["describe", "machine", machine.name()]).await?;
    shows_the_old_system("landfall describe", &shown)?;
    scene.landfall(&["cancel", &look]).await?;
    scene.wait_end(&look, WorkflowPhase::Cancelled).await?;
    let mark = server.mark();
    let name = machine.name().to_owned();
    let request = ["provision", &name, "--template", "install"];
    let (run, said) = scene.landfall_prints(&request).await?;
    let run = created(&run)?;
    shows_the_old_system("landfall provision", &said)?;
    let serial = &machine.spec().disks[0].serial;
    ensure!(said.contains("This destroys data") && said.contains(serial), "the disk is not named:\n{said}");

    // Its lines come while it runs: the write stands still at the image's middle, and cannot have ended.
    let (mut following, lines) = scene.landfall_follows(&["logs", "-f", &run], "logs")?;
    server.wait(mark, &waits, scene.limit(INSTALL)).await?;
    // What was sent may still be on its way; the first of it is taken in once the old content is gone.
    let writing = |w: &Workflow| {
        let action = w.status.as_ref().and_then(|s| s.actions.first());
        action.and_then(|a| a.progress.as_ref()).is_some_and(|p| p.stage == "write")
    };
    scene.coordinator.api().wait_workflow(&run, "in mid-write", scene.limit(INSTALL), writing).await?;
    let of_the_write = |line: &str| line.contains("write");
    lines.wait_line(Mark::default(), "a line of the write", scene.limit(STOPPED), of_the_write).await?;
    let status = scene.coordinator.api().workflow(&run).await?.status.context("a workflow without a status")?;
    ensure!(status.phase == WorkflowPhase::Running, "the workflow is {:?} while its lines are followed", status.phase);

    scene.wait_began(&machine, &run).await?;
    // What the console says of the workflow before is in its log now.
    machine.wait_serial(power_on, "the receipt with state intent", STOPPED).await?;

    // A person stops it.
    let stop = machine.serial().mark();
    scene.landfall(&["cancel", &run]).await?;
    let ended = scene.wait_end(&run, WorkflowPhase::Cancelled).await?;
    let problem = ended.status.and_then(|s| s.problem).context("it was cancelled without a reason")?;
    ensure!(problem.code == ErrorCode::Cancelled, "the reason is not the person's: {problem}");
    let shown = scene.describe_workflow(&run).await?;
    for words in ["Cancelled", "cancelled by root"] {
        ensure!(shown.contains(words), "landfall describe does not say \"{words}\":\n{shown}");
    }
    following.wait(scene.limit(STOPPED)).await.context("landfall logs -f does not end with the workflow")?;
    // The workflow ends at the person's word; the machine stops when it has heard of it.
    machine.wait_serial(stop, "the workflow stopped", STOPPED).await?;
    // The server would send the rest of the image, but the machine does not request it.
    let mark = server.mark();
    server.set([]).await?;
    unbootable(&machine)?;
    let written = written(&mut machine).await?;

    // The next workflow begins without a restart, and its disk fails. What began to be installed is named before.
    machine.fail_disk(0, DiskFault::write(bad)).await?;
    let mut errors = machine.disk_errors()?;
    let asked = server.notices(mark).into_iter().any(|notice| matches!(notice, Notice::Request { .. }));
    ensure!(!asked, "the machine requested more of the image after it was stopped");
    ensure!(self::written(&mut machine).await? == written, "the machine continued to write after it was stopped");
    let (again, said) = scene.landfall_prints(&[&request[..], &["--force"]].concat()).await?;
    let again = created(&again)?;
    let began = format!("an install that began: workflow {run}");
    ensure!(said.contains(&began), "landfall provision --force does not say \"{began}\":\n{said}");
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

/// An old system: a partition with a file system, both with a name.
fn old_system(machine: &Machine) -> anyhow::Result<()> {
    let disk = machine.disk(0);
    let place = format!("--new=1:{}:{}", OLD_AT / 512, (OLD_AT + OLD_BYTES) / 512 - 1);
    run("sgdisk", &[&place, "--change-name=1:old data", &text(disk.path())])?;
    disk.write(OLD_AT, b"XFSB")?;
    disk.write(OLD_AT + XFS_LABEL, LABEL.as_bytes())?;
    Ok(())
}

/// The workflow's name in "workflow/… created".
fn created(line: &str) -> anyhow::Result<String> {
    let name = line.trim().strip_prefix("workflow/").and_then(|line| line.strip_suffix(" created"));
    Ok(name.with_context(|| format!("no workflow was created: {line}"))?.to_owned())
}

fn shows_the_old_system(what: &str, shown: &str) -> anyhow::Result<()> {
    let volume = format!("XFS file system \"{LABEL}\"");
    let line = shown.lines().find(|line| line.contains(&volume));
    let line = line.with_context(|| format!("{what} does not say {volume}:\n{shown}"))?;
    for words in ["vda", " 1 ", "64.0 MiB", "old data"] {
        ensure!(line.contains(words), "{what} does not say \"{words}\": {line}");
    }
    Ok(())
}

/// What the machine has written to its disk, bytes.
async fn written(machine: &mut Machine) -> anyhow::Result<u64> {
    Ok(machine.qmp().context("the machine is off")?.written_bytes(0).await?)
}

fn unbootable(machine: &Machine) -> anyhow::Result<()> {
    let disk = machine.disk(0);
    ensure!(!disk.has_boot_signature()?, "the disk carries a boot signature");
    ensure!(!disk.has_primary_gpt()?, "the disk carries a partition table");
    ensure!(!disk.has_backup_gpt()?, "the disk carries a partition table at its end");
    Ok(())
}
