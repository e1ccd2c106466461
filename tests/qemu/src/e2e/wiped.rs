//! l: disks on three buses are wiped, each to another level, and read from outside. A disk that does not support the level is
//! refused, and no disk is touched then. What each disk was wiped by stays with the machine.

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WipeLevel, WipeReport, WorkflowPhase};
use landfall_lab::{DiskBus, Machine};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, Scene};

const VIRTIO: usize = 0;
const SCSI: usize = 1;
const NVME: usize = 2;
const DISK: u64 = 512 << 20;
const MIB: usize = 1 << 20;
/// Where each disk has a MiB of data: both ends, and places between.
const DATA: [u64; 4] = [0, 5 << 20, DISK / 2, DISK - (1 << 20)];

pub(super) async fn to_each_level(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let buses = [DiskBus::Virtio, DiskBus::Scsi, DiskBus::Nvme];
    let builder = buses.iter().fold(Machine::builder("m1"), |builder, bus| builder.disk(DISK, *bus));
    let mut machine = scene.described(builder).await?;
    for disk in 0..buses.len() {
        for at in DATA {
            machine.disk(disk).write(at, &vec![0xA5; MIB])?;
        }
    }

    // A virtio disk cannot erase itself: neither it nor the NVMe disk, which can, is wiped.
    let all = json!({ "disks": [{ "transport": "nvme" }, { "transport": "virtio" }], "level": "secure" });
    scene.actions("refused", json!([{ "name": "erase", "wipe": all }])).await?;
    let workflow = scene.run(&machine, "refused").await?;
    machine.power_on().await?;
    machine.off_at_reboot().await?;
    let refused = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let problem = refused.status.and_then(|s| s.problem).context("the workflow failed without a reason")?;
    ensure!(problem.code == ErrorCode::LevelUnsupported, "the reason is not the level: {problem}");
    ensure!(problem.message.contains("it supports signatures, discard, zero"), "{problem}");
    for disk in 0..buses.len() {
        ensure!(holds(&machine, disk, 0xA5)?, "disk {disk} was touched by a wipe that was refused");
    }

    // The agent is still there.
    let nvme = json!({ "disks": [{ "transport": "nvme" }], "level": "secure" });
    let scsi = json!({ "disks": [{ "transport": "scsi" }], "level": "discard" });
    let actions = json!([{ "name": "nvme", "wipe": nvme }, { "name": "scsi", "wipe": scsi }]);
    scene.actions("two", actions).await?;
    let workflow = scene.run(&machine, "two").await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    let serial = format!("serial={}", machine.spec().disks[VIRTIO].serial);
    let words = ["deprovision", "m1", "--disk", &serial, "--level", "secure", "--fallback", "zero", "--wait"];
    let (printed, shown) = scene.landfall_prints(&words).await?;
    ensure!(shown.contains("(level secure, else zero)"), "the person is not shown the levels: {shown}");
    machine.wait_off(BOOT).await?;

    for disk in [VIRTIO, NVME] {
        ensure!(holds(&machine, disk, 0)?, "disk {disk} still has data: {printed}");
    }
    // The data is discarded, which QEMU passes on to the file; both ends are zero.
    let left = machine.disk(SCSI).allocated()?;
    ensure!(left <= 3 << 20, "{left} bytes of the discarded disk take room");
    ensure!(
        machine.disk(SCSI).read(0, MIB)?.iter().all(|byte| *byte == 0),
        "the start of the discarded disk is not zero"
    );

    let status = scene.coordinator.api().machine("m1").await?.status.context("no status")?;
    let of = |disk: usize| {
        let serial = &machine.spec().disks[disk].serial;
        status
            .wiped
            .iter()
            .find(|report| report.disk.serial == *serial)
            .with_context(|| format!("no report of disk {disk}"))
    };
    let WipeReport { level, method, samples, .. } = of(NVME)?;
    ensure!(*level == WipeLevel::Secure && method.starts_with("NVMe format") && *samples > 30, "{:?}", of(NVME)?);
    ensure!(of(SCSI)?.level == WipeLevel::Discard && of(SCSI)?.samples == 0, "{:?}", of(SCSI)?);
    let WipeReport { asked, level, limits, samples, .. } = of(VIRTIO)?;
    ensure!((*asked, *level) == (WipeLevel::Secure, WipeLevel::Zero) && *samples > 30, "{:?}", of(VIRTIO)?);
    ensure!(limits.iter().any(|why| why.contains("behind virtio")), "{limits:?}");
    ensure!(status.receipts.is_empty(), "a receipt is believed to be on a disk: {:?}", status.receipts);
    Ok(())
}

/// Whether all places of data hold nothing but this byte.
fn holds(machine: &Machine, disk: usize, byte: u8) -> anyhow::Result<bool> {
    for at in DATA {
        if machine.disk(disk).read(at, MIB)?.iter().any(|it| *it != byte) {
            return Ok(false);
        }
    }
    Ok(true)
}
