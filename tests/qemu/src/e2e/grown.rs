//! z: an image on a larger disk: `growRoot` makes the partition of its root and the file system as large as the disk allows, the
//! receipt stays, and the system starts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_disk::{RealDevice, Table};
use landfall_lab::{CoordinatorOptions, Firmware, Network};
use serde_json::json;

use super::Context;
use super::exec::ROOT_AT;
use super::scene::{BOOTED, DISK_BYTES, INSTALL, Scene, require_installed};

const MIB: u64 = 1 << 20;

pub(super) async fn to_the_end(context: Context) -> anyhow::Result<()> {
    let tools = context.artefacts.tools.clone().context("there is no tools layer; give --tools FILE")?;
    let options = CoordinatorOptions { tools: Some(tools), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Uefi)).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    // With a size first, and then to the end: the second grows what the first left.
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "some", "growRoot": { "size": "2GiB" } },
        { "name": "rest", "growRoot": {} },
        { "name": "seed", "cloudInit": {} },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    let logs = scene.landfall(&["logs", &workflow.metadata.name]).await?;
    ensure!(logs.contains(&format!("has {} bytes now", 2048 * MIB)), "it did not grow to the stated size:\n{logs}");
    machine.power_cut().await;

    require_installed(&machine, &workflow)?;
    let disk = machine.disk(0).path().to_owned();
    let (end, blocks) = tokio::task::spawn_blocking(move || grown(&disk)).await??;
    ensure!(end == DISK_BYTES - MIB, "the root's partition ends at {end}");
    ensure!(blocks > (DISK_BYTES - ROOT_AT) * 9 / 10, "the root's file system has only {blocks} bytes");
    Ok(())
}

/// Where the root's partition ends, in both tables, and the size of the file system in it; bytes.
fn grown(disk: &Path) -> anyhow::Result<(u64, u64)> {
    let file = RealDevice::open_read_only(disk).context("cannot read the disk")?;
    let ends = [1, DISK_BYTES / 512 - 1].map(|lba| {
        let table = Table::read(&file, lba, 512)?;
        Ok::<_, anyhow::Error>(table.used().map(|entry| entry.bytes(512)).find(|at| at.start == ROOT_AT))
    });
    let [first, backup] = ends;
    let (first, backup) = (first?.context("no partition begins where the root was")?, backup?);
    ensure!(backup.as_ref() == Some(&first), "the two tables differ: {first:?} {backup:?}");
    let file_system = format!("{}?offset={ROOT_AT}", disk.display());
    let output = Command::new("debugfs").arg("-R").arg("stats -h").arg(file_system).output();
    let said = String::from_utf8(output.context("cannot run debugfs of e2fsprogs")?.stdout)?;
    let number = |key: &str| {
        let value =
            said.lines().find_map(|line| line.strip_prefix(key)).with_context(|| format!("no {key} in {said}"))?;
        Ok::<u64, anyhow::Error>(value.trim().parse()?)
    };
    Ok((first.end, number("Block count:")? * number("Block size:")?))
}
