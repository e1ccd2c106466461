//! e: an image cut in half fails with a reason, also on the machine's own console, and never gives a bootable disk; a
//! correct image is enough to succeed.

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_lab::FileFault;

use super::Context;
use super::scene::{BOOT, BOOTED, Scene, require_installed};

/// The agent's last line about a workflow that failed.
const FAILED: &str = "the workflow failed: ";
/// What the kernel writes where it drops lines of a program that writes many.
const DROPPED: &str = "output lines suppressed due to ratelimiting";

pub(super) async fn cut_in_half(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut server = scene.faulty().await?;
    let file = scene.image().file_name();
    let half = FileFault { cut_at: Some(scene.image().stored_bytes / 2), ..FileFault::default() };
    server.set([(file.clone(), half)]).await?;
    let mut machine = scene.described(scene.ordinary("m1")).await?;
    scene.template(&server.url(&file)).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;

    let workflow = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let status = workflow.status.context("a workflow without a status")?;
    let problem = status.problem.context("the workflow failed without a reason")?;
    ensure!(
        matches!(problem.code, ErrorCode::Truncated | ErrorCode::SourceUnreachable),
        "the reason is not the cut image: {problem}"
    );
    ensure!(problem.to_string().contains(&file), "the reason does not name the image: {problem}");
    let shown = machine.wait_serial_line(power_on, FAILED, BOOT).await?.text;
    ensure!(shown.contains(&file), "the reason on the machine's console does not name the image: {shown}");
    let dropped = machine.serial().lines_since(power_on).into_iter().find(|line| line.text.contains(DROPPED));
    ensure!(dropped.is_none(), "the kernel drops lines of the agent: {dropped:?}");
    ensure!(!machine.disk(0).has_boot_signature()?, "a disk with half an image carries a boot signature");
    ensure!(!machine.disk(0).has_backup_gpt()?, "a disk with half an image carries a partition table at its end");

    // The agent waits for what a person says, and looks at its machine again when it is asked: after what was written, nothing has changed.
    scene.landfall(&["inspect", "m1"]).await?;
    let (_, said) = scene.landfall_prints(&["inspect", "m1"]).await?;
    ensure!(said.contains("The hardware of the machine is as it was."), "landfall inspect says: {said}");

    server.set([]).await?;
    machine.power_cut().await;
    let (again, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    require_installed(&machine, &again)
}
