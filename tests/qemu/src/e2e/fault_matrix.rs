//! m, in the full set: each way a disk can fail, on one bus, in one boot of the agent: a disk and a workflow for each. A cell ends
//! in an error that names disk and step, or with the image's bytes on the disk; no disk that failed boots, and none hangs.
//! `cargo test -p landfall-disk --test fault_matrix` has the whole matrix without a guest's driver.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use landfall_api::{ActionState, ErrorCode, Workflow, WorkflowPhase};
use landfall_lab::artefacts::OsImage;
use landfall_lab::faulty::Notice;
use landfall_lab::{DhcpMode, DiskBus, DiskFault, FaultyHttp, FileFault, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, INSTALL, Scene};

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

/// When a fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// Before the first write.
    Start,
    /// In the middle of the body: what fails then is the rest of the body, or the commit.
    Middle,
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

/// The cells: what they are called, the fault, when it begins, and how the install ends.
const CELLS: &[(&str, DiskFault, Begins, Ends)] = {
    use Begins::{Middle, Start};
    use Ends::{Either, Failed, Succeeded};
    &[
        ("metadata: write, EIO always", DiskFault::write(0), Start, Failed("lba 0")),
        ("metadata: write, EIO once", DiskFault::write(0).once(), Start, Either("lba 0")),
        ("metadata: write, ENOSPC", DiskFault::write(0).no_space(), Start, Failed("lba 0")),
        ("metadata: flush, EIO always", DiskFault::flush(), Start, Failed("flush")),
        ("metadata: flush, EIO once", DiskFault::flush().once(), Start, Either("flush")),
        ("metadata: read, EIO always", DiskFault::read(0), Start, Failed("read")),
        ("body: write, EIO always", DiskFault::write(BODY), Start, Failed("write")),
        ("body: write, EIO once", DiskFault::write(BODY).once(), Start, Either("write")),
        ("body: write, ENOSPC", DiskFault::write(BODY).no_space(), Start, Failed("write")),
        ("body: read back, EIO always", DiskFault::read(BODY), Start, Failed("read")),
        ("body: flush, EIO once", DiskFault::flush().once(), Middle, Either("flush")),
        ("commit: write, EIO always", DiskFault::write(0), Middle, Failed("lba 0")),
        ("commit: write, EIO once", DiskFault::write(0).once(), Middle, Either("lba 0")),
        ("commit: write, ENOSPC", DiskFault::write(0).no_space(), Middle, Failed("lba 0")),
        ("body: discard, EIO always", DiskFault::discard(), Middle, Succeeded),
        ("body: discard, EIO once", DiskFault::discard().once(), Middle, Succeeded),
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
    let mut machine = scene.described(CELLS.iter().fold(builder, |builder, _| builder.disk(DISK, bus))).await?;
    let mut said = String::new();
    for (disk, (cell, fault, from, ends)) in CELLS.iter().enumerate() {
        let pause = FileFault { pause_at: (*from == Begins::Middle).then_some(HALF), ..FileFault::default() };
        server.set([(NAME.to_owned(), pause)]).await?;
        let mark = server.mark();
        let which = json!({ "serial": machine.spec().disks[disk].serial });
        let source = json!({ "url": server.url(NAME), "digest": image.digest });
        let write = json!({ "disk": which, "image": source, "verify": "readBack" });
        let template = format!("cell-{disk}");
        scene
            .actions(&template, json!([{ "name": "write", "writeImage": write }, { "name": "wait", "hold": { "message": "until the disk was judged" } }]))
            .await?;
        // The agent of the cells before takes the workflow at once; in the first cell the machine has yet to netboot.
        if disk == 0 {
            machine.power_on().await?;
        }
        if *from == Begins::Start {
            machine.fail_disk(disk, *fault).await?;
        }
        let run = scene.run(&machine, &template).await?;
        if *from == Begins::Middle {
            server.wait(mark, &Notice::Paused { file: NAME.into(), at: HALF }, scene.limit(INSTALL)).await?;
            // What was sent may still be on its way; the first of it is taken in once the old content is gone.
            let api = scene.coordinator.api();
            api.wait_workflow(&run, "in mid-write", scene.limit(INSTALL), is_writing).await?;
            machine.fail_disk(disk, *fault).await?;
            server.set([]).await?;
        }
        let found = judged(&scene, &machine, disk, &run, *ends).await.with_context(|| format!("{bus:?}, {cell}"))?;
        machine.mend_disk(disk).await?;
        said += &format!("{bus:?} {cell:<32} {found}\n");
        std::fs::write(&report, &said)?;
    }
    println!("{said}");
    Ok(())
}

fn is_writing(workflow: &Workflow) -> bool {
    let action = workflow.status.as_ref().and_then(|s| s.actions.first());
    action.and_then(|a| a.progress.as_ref()).is_some_and(|p| p.stage == "write" && p.stored_bytes >= HALF)
}

/// Waits for the end of the one action, judges the disk, and says how it ended.
async fn judged(scene: &Scene, machine: &Machine, disk: usize, run: &str, ends: Ends) -> anyhow::Result<String> {
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
            ensure!(status.phase == WorkflowPhase::Failed && code == ErrorCode::DeviceIo, "not the device: {reason}");
            ensure!(reason.to_lowercase().contains(word), "the reason does not name the step \"{word}\": {reason}");
            ensure!(reason.contains("/dev/"), "the reason does not name the disk {serial}: {reason}");
            ensure!(!here.has_boot_signature()?, "a disk that failed carries a boot signature: {reason}");
            // LBA 0 is the last thing of a commit: when it fails, both tables are there, of a verified image.
            ensure!(word == "lba 0" || !tables, "a disk that failed carries a partition table: {reason}");
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
    let made = Command::new("sgdisk").args([&place, "--change-name=1:root"]).arg(&path).output();
    let made = made.context("cannot run sgdisk")?;
    ensure!(made.status.success(), "sgdisk: {}", String::from_utf8_lossy(&made.stderr));
    Ok(OsImage::measure(&path)?)
}
