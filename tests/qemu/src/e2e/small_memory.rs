//! w: machines with 256 and with 192 MiB of memory write a zstd, a gzip and a packed image, and each is the whole image. y: so does one
//! with 192 MiB that writes a Debian.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_image::digest::Hashing;
use landfall_lab::{DhcpMode, DiskBus, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::disk_buses::{PACKED, prepared};
use super::raw::decode;
use super::scene::{DISK_BYTES, INSTALL, Scene};
use super::whole_image::require_image;

/// Memory of the machines, MiB.
const SIZES: [u32; 2] = [256, 192];
const GZIP: &str = "disk.img.gz";

pub(super) async fn whole_images(context: Context) -> anyhow::Result<()> {
    let images = context.dir.join("images");
    let raw = context.dir.join("image.raw");
    let packed = prepared(&context.artefacts.image.path, &images, &raw).await?;
    let gzip = compressed(&raw, &images.join(GZIP))?;
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let index = json!({ "url": scene.url(&format!("{PACKED}.index.json")), "digest": packed.index_digest });
    let sources = [
        json!({ "url": scene.image_url(), "digest": scene.image().digest }),
        json!({ "url": scene.url(GZIP), "digest": gzip }),
        json!({ "url": scene.url(PACKED), "index": index }),
    ];
    for mib in SIZES {
        let builder = Machine::builder(&format!("m{mib}")).firmware(Firmware::Bios).memory_mib(mib);
        let builder = sources.iter().fold(builder, |builder, _| builder.disk(DISK_BYTES, DiskBus::Virtio));
        let mut machine = scene.described(builder).await?;
        let actions = sources.iter().zip(&machine.spec().disks).enumerate().map(|(nth, (image, disk))| {
            let write = json!({ "disk": { "serial": disk.serial }, "image": image });
            json!({ "name": format!("write-{nth}"), "writeImage": write })
        });
        let actions: Vec<_> = actions.chain([json!({ "name": "off", "powerOff": {} })]).collect();
        scene.actions("every-format", json!(actions)).await?;
        let workflow = scene.run(&machine, "every-format").await?;
        machine.power_on().await?;
        machine.wait_off(INSTALL).await.with_context(|| format!("a machine with {mib} MiB does not end"))?;
        let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
        for (disk, action) in (0..sources.len()).zip(0..) {
            require_image(&machine, disk, &raw, &workflow, action).await?;
        }
    }
    Ok(())
}

/// Debian's image is written, to the last check, in the least memory.
pub(super) async fn debian(context: Context) -> anyhow::Result<()> {
    let debian = context.artefacts.debian.clone().context("there is no Debian image; give --debian DIR")?;
    let raw = context.dir.join("image.raw");
    let (stored, to) = (debian.path.clone(), raw.clone());
    tokio::task::spawn_blocking(move || decode(&stored, &to)).await??;
    let images = debian.path.parent().context("the image is in no directory")?.to_owned();
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Bios).memory_mib(SIZES[1]);
    let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Virtio)).await?;
    let image = json!({ "url": scene.url(&debian.file_name()), "digest": debian.digest });
    let off = json!({ "name": "off", "powerOff": {} });
    scene.actions("debian", json!([{ "name": "write", "writeImage": { "image": image } }, off])).await?;
    let workflow = scene.run(&machine, "debian").await?;
    machine.power_on().await?;
    machine.wait_off(INSTALL).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_image(&machine, 0, &raw, &workflow, 0).await
}

/// Compresses a file with gzip; its digest.
fn compressed(raw: &Path, output: &Path) -> anyhow::Result<String> {
    let file = std::fs::File::create(output)?;
    let done = Command::new("gzip").args(["-1", "-c"]).arg(raw).stdout(file).status().context("cannot run gzip")?;
    ensure!(done.success(), "gzip failed: {done}");
    let mut hashing = Hashing::new(std::io::sink());
    std::io::copy(&mut std::fs::File::open(output)?, &mut hashing)?;
    Ok(hashing.finish().1)
}
