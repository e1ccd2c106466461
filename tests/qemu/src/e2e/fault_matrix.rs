//! m, in the full set: each way a disk can fail, on one bus, in one boot of the agent: a disk and a workflow for each. A cell ends
//! in an error that names disk and step, or with the image's bytes on the disk although the disk answered an error; no disk
//! that failed boots, and none keeps the next workflow from its end.
//! `cargo test -p landfall-disk --test all fault_matrix` has the whole matrix without a guest's driver.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{ActionState, ErrorCode, Workflow, WorkflowPhase};
use landfall_lab::artefacts::OsImage;
use landfall_lab::faulty::Notice;
use landfall_lab::{DhcpMode, DiskBus, DiskFault, FaultyHttp, FileFault, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, INSTALL, RECEIPT_AT, Scene};
use super::tools::{run, text};

const NAME: &str = "small.img";
/// Bytes of each disk, and of the image; its one partition covers all between the first and the last MiB.
const DISK: u64 = 64 << 20;
const IMAGE: u64 = 24 << 20;
const PARTITION: std::ops::Range<u64> = 1 << 20..IMAGE - (1 << 20);
/// A sector of the partition's data; behind [`DATA_ENDS`] it is all zeroes.
const BODY: u64 = 3 << 20;
const DATA_ENDS: u64 = 12 << 20;
/// Where the download pauses, so that a fault can begin after the old content is gone.
const HALF: u64 = 8 << 20;
/// The receipt of the finished install lies behind the one of the intent.
const DONE_AT: u64 = RECEIPT_AT + 2048;
/// From the end of a workflow to QEMU's notice of the error that the disk answered before, under KVM.
const NOTICED: Duration = Duration::from_secs(10);
/// The timeout of the install whose disk hangs: less than the 30 s after which Linux' NVMe driver complains. The agent then waits
/// 180 s for it to stop.
const HANGS_FOR: &str = "25s";
/// What that driver says then.
const COMPLAINS: &str = "timeout, aborting";

/// The step that a cell's fault is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Metadata,
    Body,
    Commit,
    Receipt,
    Reread,
}

/// When a fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// Before the first write.
    Start,
    /// In the middle of the body: what fails then is the rest of the body, or the commit.
    Middle,
}

/// What happens to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Fault(DiskFault),
    /// It answers nothing any more.
    Hangs,
    /// It is unplugged.
    Disappears,
}

/// What becomes of the install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It must fail, and the reason must have this word.
    Failed(&'static str),
    /// It must succeed: the pipeline has another way.
    Succeeded,
    /// Either: a driver may repeat what failed once, as the kernel's NVMe driver does.
    Either(&'static str),
}

/// The cells: the step, what the fault is called, the fault, when it begins, and how the install ends. What hangs comes last:
/// its action never ends.
const CELLS: &[(Part, &str, Trouble, Begins, Ends)] = {
    use Begins::{Middle, Start};
    use Ends::{Either, Failed, Succeeded};
    use Part::{Body, Commit, Metadata, Receipt, Reread};
    use Trouble::{Disappears, Fault, Hangs};
    &[
        (Metadata, "write, EIO always", Fault(DiskFault::write(0)), Start, Failed("lba 0")),
        (Metadata, "write, EIO once", Fault(DiskFault::write(0).once()), Start, Either("lba 0")),
        (Metadata, "write, ENOSPC", Fault(DiskFault::write(0).no_space()), Start, Failed("lba 0")),
        (Metadata, "flush, EIO always", Fault(DiskFault::flush()), Start, Failed("flush")),
        (Metadata, "flush, EIO once", Fault(DiskFault::flush().once()), Start, Either("flush")),
        (Metadata, "read, EIO always", Fault(DiskFault::read(0)), Start, Failed("read")),
        (Receipt, "write of the intent, EIO always", Fault(DiskFault::write(RECEIPT_AT)), Start, Failed("receipt")),
        (Body, "write, EIO always", Fault(DiskFault::write(BODY)), Start, Failed("write")),
        (Body, "write, EIO once", Fault(DiskFault::write(BODY).once()), Start, Either("write")),
        (Body, "write, ENOSPC", Fault(DiskFault::write(BODY).no_space()), Start, Failed("write")),
        (Body, "read back, EIO always", Fault(DiskFault::read(BODY)), Start, Failed("read")),
        (Body, "flush, EIO once", Fault(DiskFault::flush().once()), Middle, Either("flush")),
        (Body, "discard, EIO always", Fault(DiskFault::discard()), Middle, Succeeded),
        (Body, "discard, EIO once", Fault(DiskFault::discard().once()), Middle, Succeeded),
        (Commit, "write, EIO always", Fault(DiskFault::write(0)), Middle, Failed("lba 0")),
        (Commit, "write, EIO once", Fault(DiskFault::write(0).once()), Middle, Either("lba 0")),
        (Commit, "write, ENOSPC", Fault(DiskFault::write(0).no_space()), Middle, Failed("lba 0")),
        (Receipt, "write, EIO always", Fault(DiskFault::write(DONE_AT)), Middle, Failed("receipt")),
        (Receipt, "write, EIO once", Fault(DiskFault::write(DONE_AT).once()), Middle, Either("receipt")),
        (Receipt, "write, ENOSPC", Fault(DiskFault::write(DONE_AT).no_space()), Middle, Failed("receipt")),
        (Receipt, "read, EIO always", Fault(DiskFault::read(DONE_AT)), Middle, Failed("receipt")),
        (Reread, "read, EIO always", Fault(DiskFault::read(0)), Middle, Succeeded),
        (Body, "the disk disappears", Disappears, Middle, Failed("the disk is gone")),
        (Body, "write, hang", Hangs, Middle, Failed("write")),
    ]
};

pub(super) async fn column(context: Context, bus: DiskBus) -> anyhow::Result<()> {
    let images = context.dir.join("images");
    let (directory, report) = (images.clone(), context.dir.join("matrix.txt"));
    let image = tokio::task::spawn_blocking(move || made(&directory)).await??;
    let network = Network::create()?;
    let mut server = FaultyHttp::start(&context.program, &network, &images, &context.dir).await?;
    let scene = Scene::start_with(context, network, DhcpMode::Full, images).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Bios).memory_mib(768);
    let builder = CELLS.iter().fold(builder, |builder, (_, _, trouble, ..)| {
        let builder = builder.disk(DISK, bus);
        if *trouble == Trouble::Disappears { builder.removable() } else { builder }
    });
    let mut machine = scene.described(builder).await?;
    let mut said = String::new();
    for (disk, (part, what, trouble, begins, ends)) in CELLS.iter().enumerate() {
        let cell = format!("{bus:?}, {part:?}: {what}");
        let pause = FileFault { pause_at: (*begins == Begins::Middle).then_some(HALF), ..FileFault::default() };
        server.set([(NAME.to_owned(), pause)]).await?;
        let mark = server.mark();
        let which = json!({ "serial": machine.spec().disks[disk].serial });
        let source = json!({ "url": server.url(NAME), "digest": image.digest });
        let mut write = json!({ "disk": which, "image": source });
        // What is read back of the table would fail before the kernel reads it.
        if *part != Part::Reread {
            write["verify"] = "readBack".into();
        }
        let mut write = json!({ "name": "write", "writeImage": write });
        if *trouble == Trouble::Hangs {
            write["timeout"] = HANGS_FOR.into();
            write["retry"] = json!({ "maxAttempts": 1 });
        }
        let template = format!("cell-{disk}");
        let hold = json!({ "name": "wait", "hold": { "message": "until the disk was judged" } });
        scene.actions(&template, json!([write, hold])).await?;
        // The agent of the cells before takes the workflow at once; in the first cell the machine has yet to netboot.
        if disk == 0 {
            machine.power_on().await?;
        }
        let (mut errors, console) = (machine.disk_errors()?, machine.serial().mark());
        if *begins == Begins::Start {
            strike(&mut machine, disk, *trouble).await?;
        }
        let run = scene.run(&machine, &template).await?;
        if *begins == Begins::Middle {
            server.wait(mark, &Notice::Paused { file: NAME.into(), at: HALF }, scene.limit(INSTALL)).await?;
            // What was sent may still be on its way. The stage is reported at once, when the old content is gone; counts are thinned,
            // and the last one before a pause may never be reported.
            let api = scene.coordinator.api();
            api.wait_workflow(&run, "in mid-write", scene.limit(INSTALL), is_writing).await?;
            strike(&mut machine, disk, *trouble).await?;
            server.set([]).await?;
        }
        if *trouble == Trouble::Hangs && bus == DiskBus::Nvme {
            // 30 s later the driver would reset the controller, at which QEMU stands still. So this disk answers again,
            // too late for the install.
            machine.wait_serial(console, COMPLAINS, BOOT).await?;
            machine.mend_disk(disk).await?;
        }
        let found =
            judged(&scene, &machine, disk, &run, (*part, *trouble, *ends)).await.with_context(|| cell.clone())?;
        if let Trouble::Fault(_) = trouble {
            let met = errors.next(scene.limit(NOTICED)).await;
            met.with_context(|| format!("{cell}: the disk answered no error, so nothing was tried: {found}"))?;
            machine.mend_disk(disk).await?;
        }
        said += &format!("{bus:?} {:<9} {what:<32} {found}\n", format!("{part:?}"));
        std::fs::write(&report, &said)?;
    }
    println!("{said}");
    Ok(())
}

async fn strike(machine: &mut Machine, disk: usize, trouble: Trouble) -> anyhow::Result<()> {
    match trouble {
        Trouble::Fault(fault) => machine.fail_disk(disk, fault).await?,
        Trouble::Hangs => machine.hang_disk(disk).await?,
        Trouble::Disappears => machine.unplug_disk(disk, BOOT).await?,
    }
    Ok(())
}

fn is_writing(workflow: &Workflow) -> bool {
    let action = workflow.status.as_ref().and_then(|s| s.actions.first());
    action.and_then(|a| a.progress.as_ref()).is_some_and(|p| p.stage == "write")
}

/// Waits for the end of the one action, judges the disk, and says how it ended.
async fn judged(
    scene: &Scene, machine: &Machine, disk: usize, run: &str, (part, trouble, ends): (Part, Trouble, Ends),
) -> anyhow::Result<String> {
    let api = scene.coordinator.api();
    let over = |w: &Workflow| {
        let Some(status) = &w.status else { return false };
        status.phase.is_terminal() || status.actions.first().is_some_and(|a| a.state == ActionState::Succeeded)
    };
    let workflow = api.wait_workflow(run, "over", scene.limit(INSTALL), over).await?;
    let status = workflow.status.context("a workflow without a status")?;
    let problem = status.problem.map(|problem| (problem.code, problem.to_string()));
    let (here, serial) = (machine.disk(disk), &machine.spec().disks[disk].serial);
    let tables = here.has_primary_gpt()? || here.has_backup_gpt()?;
    let outcome = match (ends, problem) {
        (Ends::Failed(word) | Ends::Either(word), Some((code, reason))) => {
            let wanted = if trouble == Trouble::Hangs { ErrorCode::Timeout } else { ErrorCode::DeviceIo };
            ensure!(status.phase == WorkflowPhase::Failed && code == wanted, "not the device: {reason}");
            ensure!(reason.to_lowercase().contains(word), "the reason does not name the step \"{word}\": {reason}");
            ensure!(reason.contains("/dev/"), "the reason does not name the disk {serial}: {reason}");
            ensure!(!here.has_boot_signature()?, "a disk that failed carries a boot signature: {reason}");
            // A commit places the tables, of a verified image, before the receipt and LBA 0.
            let committing = matches!(part, Part::Commit | Part::Receipt);
            ensure!(committing || !tables, "a disk that failed carries a partition table: {reason}");
            reason.lines().next().unwrap_or_default().to_owned()
        }
        (Ends::Succeeded | Ends::Either(_), None) => {
            let wanted = content();
            let length = usize::try_from(PARTITION.end - PARTITION.start)?;
            ensure!(here.read(PARTITION.start, length)? == wanted, "the disk has other bytes than the image");
            ensure!(here.has_boot_signature()? && here.has_primary_gpt()?, "an installed disk does not boot");
            // The workflow holds here, so that the agent stays; its end is not waited for.
            scene.landfall(&["cancel", run]).await?;
            "installed".to_owned()
        }
        (ends, found) => anyhow::bail!("not {ends:?} but {:?}: {found:?}", status.phase),
    };
    let ended = |w: &Workflow| w.status.as_ref().is_some_and(|s| s.phase.is_terminal());
    api.wait_workflow(run, "ended", scene.limit(BOOT), ended).await?;
    Ok(outcome)
}

/// What the partition holds: bytes that differ from sector to sector, and zeroes.
fn content() -> Vec<u8> {
    let data = usize::try_from(DATA_ENDS - PARTITION.start).unwrap_or_default();
    let mut bytes: Vec<u8> = (0..data).map(|at| (at / 512 % 251) as u8 | 1).collect();
    bytes.resize(usize::try_from(PARTITION.end - PARTITION.start).unwrap_or_default(), 0);
    bytes
}

fn made(directory: &Path) -> anyhow::Result<OsImage> {
    std::fs::create_dir_all(directory)?;
    let path = directory.join(NAME);
    let mut image = vec![0; usize::try_from(PARTITION.start)?];
    image.extend(content());
    image.resize(usize::try_from(IMAGE)?, 0);
    std::fs::write(&path, image)?;
    let place = format!("--new=1:{}:{}", PARTITION.start / 512, PARTITION.end / 512 - 1);
    run("sgdisk", &[&place, "--change-name=1:root", &text(&path)])?;
    Ok(OsImage::measure(&path)?)
}
