//! k: the write is recorded and replayed at many points; each disk state a power cut could leave is old, unbootable, or
//! verified-new.
//!
//! The judge is landfall-disk's own, the same as in its crash tests: what would the firmwares make of this disk, and
//! is that the old system, nothing, or the new one, whole? A sample of the states is really booted.

mod replay;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::ensure;
use landfall_api::ActionState;
use landfall_lab::blklog::Recording;
use landfall_lab::{DiskBus, DiskImage, Firmware, Machine};

use super::Context;
use super::raw::{copy, decode};
use super::scene::{BOOTED, DISK_BYTES, INSTALL, Scene};

const SECTOR: u64 = 512;
/// What a firmware prints if it finds no bootable device.
const NOTHING_TO_BOOT: [&str; 4] =
    ["No bootable device", "No bootable option or device was found", "Shell>", "UEFI Interactive Shell"];

pub(super) async fn replayed(context: Context) -> anyhow::Result<()> {
    let dir = context.dir.clone();
    let scene = Scene::start(context).await?;
    let image = dir.join("image.raw");
    decode(&scene.image().path, &image)?;
    let mut machine = scene.described(Machine::builder("m1").disk(DISK_BYTES, DiskBus::Virtio).recorded()).await?;
    old_disk(machine.disk(0), &image)?;
    let old = dir.join("old.raw");
    copy(machine.disk(0).path(), &old)?;

    scene.template(&scene.image_url()).await?;
    let (workflow, _) = scene.begin(&mut machine).await?;
    let written = |w: &landfall_api::Workflow| {
        let first = w.status.as_ref().and_then(|s| s.actions.first());
        first.is_some_and(|action| matches!(action.state, ActionState::Succeeded | ActionState::Failed))
    };
    scene.coordinator.api().wait_workflow(&workflow, "image written", scene.limit(INSTALL), written).await?;
    machine.power_off().await?;

    let recording = Recording::open(&machine.recording(0))?;
    // The judge reads gigabytes, on a thread that serves no other test.
    let judged = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || replay::every_state(&recording, &old, &image, &dir)
    })
    .await??;
    println!("     k: states judged: {judged}");

    // Without a port, so that nothing but the disk can boot them.
    for firmware in Firmware::ALL {
        for (state, boots) in [("midway", false), ("committed", true)] {
            let builder = Machine::builder(&format!("{state}-{firmware}")).firmware(firmware).without_nics();
            let mut sample =
                builder.disk(DISK_BYTES, DiskBus::Virtio).build(&scene.network, &dir, scene.context.accel)?;
            copy(&dir.join(format!("{state}.raw")), sample.disk(0).path())?;
            let power_on = sample.power_on().await?;
            if boots {
                sample.wait_serial(power_on, BOOTED, INSTALL).await?;
            } else {
                let nothing = |line: &str| NOTHING_TO_BOOT.iter().any(|words| line.contains(words));
                let what = "the firmware's message that there is no bootable device";
                sample.serial().wait_line(power_on, what, scene.limit(INSTALL), nothing).await?;
                ensure!(!sample.serial().contains_since(power_on, BOOTED), "{firmware} booted a disk in mid-write");
            }
            sample.power_cut().await;
        }
    }
    Ok(())
}

/// A disk with another system: the image's own boot sectors and tables, so that firmware would boot it, over a body that
/// is not the image's.
fn old_disk(disk: &DiskImage, image: &Path) -> anyhow::Result<()> {
    let image = File::open(image)?;
    let mut head = vec![0; 1 << 20];
    image.read_exact_at(&mut head, 0)?;
    disk.write(0, &head)?;
    let body = vec![0xa5; 1 << 20];
    for mib in 1..image.metadata()?.len() >> 20 {
        disk.write(mib << 20, &body)?;
    }
    let mut backup_header = head[512..1024].to_vec();
    backup_header.resize(512, 0);
    Ok(disk.write(disk.size()? - SECTOR, &backup_header)?)
}
