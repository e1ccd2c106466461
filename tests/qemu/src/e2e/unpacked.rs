//! z: a machine fetches the tools layer, and its worker unpacks an archive into the system that was just written. A layer that was
//! written over behind the coordinator's back is not served, and changes nothing.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_lab::artefacts::OsImage;
use landfall_lab::{CoordinatorOptions, Firmware, Network};
use serde_json::json;

use super::Context;
use super::exec::file;
use super::scene::{BOOT, Scene};
use super::tools::{run, text};

const ARCHIVE: &str = "app.tar.zst";

pub(super) async fn by_the_worker(context: Context) -> anyhow::Result<()> {
    let built = context.artefacts.tools.clone().context("there is no tools layer; give --tools FILE")?;
    let (images, layer) = (context.dir.join("images"), context.dir.join("tools.squashfs"));
    let image = context.artefacts.image.path.clone();
    let digest = {
        let (images, layer) = (images.clone(), layer.clone());
        tokio::task::spawn_blocking(move || prepared(&built, &layer, &image, &images)).await??
    };
    let options = CoordinatorOptions { images, tools: Some(layer.clone()), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Bios)).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let archive = json!({ "url": scene.url(ARCHIVE), "digest": digest, "path": "/opt/app" });
    let off = json!({ "name": "off", "powerOff": {} });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "app", "unpack": archive },
        off,
    ]);
    scene.actions("install", actions).await?;
    let (workflow, _) = scene.install(&mut machine).await?;
    machine.wait_off(BOOT).await?;
    let logs = scene.landfall(&["logs", &workflow.metadata.name]).await?;
    for line in ["fetching the tools layer", "unpacking http"] {
        ensure!(logs.contains(line), "landfall logs does not show \"{line}\":\n{logs}");
    }
    let disk = machine.disk(0).path().to_owned();
    let read = |path: &'static str| {
        let disk = disk.clone();
        tokio::task::spawn_blocking(move || file(&disk, path))
    };
    ensure!(read("/opt/app/etc/app.conf").await?? == "answer = 42\n", "the archive is not on the disk");

    // Other bytes in the layer's file, of which the coordinator does not know.
    tokio::fs::write(&layer, b"hsqs and nothing else").await?;
    let mut again = archive;
    again["path"] = json!("/opt/again");
    again["disk"] = json!({ "name": "vda" });
    scene.actions("again", json!([{ "name": "app", "unpack": again, "retry": { "maxAttempts": 1 } }, off])).await?;
    let workflow = scene.run(&machine, "again").await?;
    machine.power_on().await?;
    let failed = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let problem = failed.status.and_then(|status| status.problem).context("a failure without a problem")?;
    ensure!(
        problem.code == ErrorCode::NoToolsLayer && problem.hint.contains("reload the coordinator"),
        "the altered layer was served: {problem}"
    );
    machine.power_off().await?;
    ensure!(read("/opt/again").await?.is_err(), "a directory was made without a layer");
    Ok(())
}

/// Copies the layer, links the image, and makes an archive beside it; the archive's digest.
fn prepared(built: &Path, layer: &Path, image: &Path, images: &Path) -> anyhow::Result<String> {
    let content: PathBuf = images.with_file_name("content");
    std::fs::create_dir_all(content.join("etc"))?;
    std::fs::create_dir_all(images)?;
    std::fs::write(content.join("etc/app.conf"), "answer = 42\n")?;
    std::fs::copy(built, layer).with_context(|| format!("cannot copy {}", built.display()))?;
    std::fs::copy(image, images.join(image.file_name().unwrap_or_default()))?;
    let archive = images.join(ARCHIVE);
    run("tar", &["--zstd", "-C", &text(&content), "-cf", &text(&archive), "."])?;
    Ok(OsImage::measure(&archive)?.digest)
}
