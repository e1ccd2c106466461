//! l: one machine with a disk on every bus. Each is chosen by a fact that only it has, in four actions of one workflow,
//! and each ends as the image: through a plain file, with read-back, and by the index of a packed one. A disk whose
//! sectors the image was not made for is refused and untouched.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_image::pack::{self, Packed};
use landfall_lab::{DhcpMode, DiskBus, Firmware, Machine, Mark, Network};
use serde_json::json;

use super::Context;
use super::raw::{copy, decode};
use super::scene::{BOOT, BOOTED, DISK_BYTES, INSTALL, Scene};
use super::whole_image::require_image;

/// The disks that are written, in the order of the machine's disks and of the workflow's actions.
const WRITTEN: [DiskBus; 4] = [DiskBus::Virtio, DiskBus::Scsi, DiskBus::Nvme, DiskBus::Ahci];
/// The one that is refused comes after them.
const REFUSED: usize = WRITTEN.len();
/// The NVMe disk that is written is smaller than the other.
const SMALL: u64 = 2 << 30;
/// The packed image's name.
pub(super) const PACKED: &str = "packed.img.zst";

pub(super) async fn every_bus(context: Context, firmware: Firmware, boot_each: bool) -> anyhow::Result<()> {
    let images = context.dir.join("images");
    let raw = context.dir.join("image.raw");
    let packed = prepared(&context.artefacts.image.path, &images, &raw).await?;
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let builder = WRITTEN.iter().fold(Machine::builder("m1").firmware(firmware), |builder, bus| {
        builder.disk(if *bus == DiskBus::Nvme { SMALL } else { DISK_BYTES }, *bus)
    });
    let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Nvme).sectors_of(4096)).await?;
    templates(&scene, &machine, &packed).await?;

    let workflow = scene.run(&machine, "refused").await?;
    machine.power_on().await?;
    machine.off_at_reboot().await?;
    let refused = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let problem = refused.status.and_then(|s| s.problem).context("the workflow failed without a reason")?;
    ensure!(problem.code == ErrorCode::WrongSectorSize, "the reason is not the disk's sectors: {problem}");
    for words in ["512-byte sectors", "4096-byte sectors"] {
        ensure!(problem.message.contains(words), "the reason does not say {words}: {problem}");
    }
    for disk in 0..=REFUSED {
        ensure!(machine.disk(disk).is_untouched()?, "disk {disk} was touched by a write that was refused");
    }

    // The agent is still there: the next workflow needs no boot.
    let workflow = scene.run(&machine, "every-bus").await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    for (disk, action) in (0..REFUSED).zip(0..) {
        require_image(&machine, disk, &raw, &workflow, action).await?;
    }
    ensure!(machine.disk(REFUSED).is_untouched()?, "the disk that no action names was touched");
    for file in [scene.image().file_name(), format!("{PACKED}.index.json"), PACKED.to_owned()] {
        scene.logged(Mark::default(), &["service=http", &format!("/images/{file}"), "status=20"])?;
    }

    if boot_each {
        return alone(&scene, &machine, firmware).await;
    }
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    Ok(())
}

/// The image raw, for comparing, and a directory with it as it is and packed.
pub(super) async fn prepared(stored: &Path, images: &Path, raw: &Path) -> anyhow::Result<Packed> {
    let (stored, images, raw) = (stored.to_owned(), images.to_owned(), raw.to_owned());
    let work = move || {
        std::fs::create_dir_all(&images)?;
        std::fs::copy(&stored, images.join(stored.file_name().context("the image has no name")?))?;
        decode(&stored, &raw)?;
        let output: PathBuf = images.join(PACKED);
        // The quickest level: what it saves in bytes is of no use here.
        let threads = NonZeroUsize::MIN;
        let recipe = pack::Recipe { input: &raw, output: &output, index: None, level: 1, chunk: None, threads };
        Ok(pack::pack(&recipe)?)
    };
    tokio::task::spawn_blocking(work).await?
}

async fn templates(scene: &Scene, machine: &Machine, packed: &Packed) -> anyhow::Result<()> {
    let disks = &machine.spec().disks;
    let plain = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let index = json!({ "url": scene.url(&format!("{PACKED}.index.json")), "digest": packed.index_digest });
    let packed = json!({ "url": scene.url(PACKED), "index": index });
    let refused = json!({ "disk": { "serial": disks[REFUSED].serial }, "image": plain });
    scene.actions("refused", json!([{ "name": "write", "writeImage": refused }])).await?;
    let actions = json!([
        { "name": "virtio", "writeImage": { "disk": { "transport": "virtio" }, "image": plain } },
        { "name": "scsi", "writeImage": { "disk": { "hctl": "glob *:0:1:0" }, "image": packed } },
        { "name": "nvme", "writeImage": {
            "disk": { "transport": "nvme", "size": "<= 2GiB" }, "image": plain, "verify": "readBack",
        } },
        { "name": "sata", "writeImage": {
            "disk": { "byId": format!("/dev/disk/by-id/ata-QEMU_HARDDISK_{}", disks[3].serial) }, "image": packed, "verify": "readBack",
        } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("every-bus", actions).await
}

/// Every disk in a machine of its own, without a port, so that nothing but the disk can boot it.
async fn alone(scene: &Scene, machine: &Machine, firmware: Firmware) -> anyhow::Result<()> {
    for (disk, bus) in WRITTEN.into_iter().enumerate() {
        let builder = Machine::builder(&format!("alone-{disk}")).firmware(firmware).without_nics();
        let bytes = machine.disk(disk).size()?;
        let mut sample = builder.disk(bytes, bus).build(&scene.network, &scene.context.dir, scene.context.accel)?;
        copy(machine.disk(disk).path(), sample.disk(0).path())?;
        let power_on = sample.power_on().await?;
        sample.wait_serial(power_on, BOOTED, INSTALL).await.with_context(|| format!("a {bus:?} disk does not boot"))?;
        sample.power_cut().await;
    }
    Ok(())
}
