//! z: a machine lays its disks out, unpacks the root of a Debian that was never on a disk, installs that system's own GRUB, and starts
//! it.

use std::path::Path;

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_lab::{CoordinatorOptions, DiskBus, Firmware, Machine, Network};
use serde_json::{Value, json};

use super::Context;
use super::scene::{BOOT, DISK_BYTES, Scene, require_installed};

const TAR: &str = "root.tar.zst";
/// What the installed system says at its start: the prompt of a Debian on a serial console.
const LOGIN: &str = "debian login:";
/// Without it the kernel reads every EFI variable while systemd waits for devices; under software emulation on a loaded host that
/// takes minutes, and systemd gives up.
pub(super) const NO_PSTORE: &str = "efi_pstore.pstore_disable=1";
/// MiB of a machine's memory: the boot image, the tools layer and the programs of GRUB and LVM together.
pub(super) const MEMORY_MIB: u32 = 1024;

/// A coordinator that serves the root tar and has the tools layer; the source of its `unpack`.
pub(super) async fn scene(context: Context) -> anyhow::Result<(Scene, Value)> {
    let tools = context.artefacts.tools.clone().context("there is no tools layer; give --tools FILE")?;
    let tar = context.artefacts.root_tar.clone().context("there is no root tar; give --root-tar FILE")?;
    let images = context.dir.join("images");
    std::fs::create_dir_all(&images)?;
    linked(&tar.path, &images.join(TAR))?;
    let options = CoordinatorOptions { images, tools: Some(tools), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let unpack = json!({ "url": scene.url(TAR), "digest": tar.digest });
    Ok((scene, unpack))
}

/// A second name where that is possible, else a copy.
fn linked(from: &Path, to: &Path) -> anyhow::Result<()> {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// From the layout to the restart.
fn list(storage: &Value, unpack: &Value) -> Value {
    json!([
        { "name": "disks", "storage": storage },
        { "name": "root", "unpack": unpack },
        { "name": "seed", "cloudInit": {} },
        { "name": "boot", "installBootloader": { "kernelArguments": ["console=ttyS0,115200", NO_PSTORE] } },
        { "name": "reboot", "reboot": {} },
    ])
}

pub(super) async fn from_a_root_tar(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let (scene, unpack) = scene(context).await?;
    let builder = Machine::builder("m1").firmware(firmware).memory_mib(MEMORY_MIB).disk(DISK_BYTES, DiskBus::Virtio);
    let mut machine = scene.described(builder).await?;
    let first = match firmware {
        Firmware::Bios => json!({ "role": "biosBoot" }),
        Firmware::Uefi => json!({ "role": "esp", "size": "64MiB" }),
    };
    let storage = json!({ "disks": [{ "partitions": [first, { "role": "root" }] }] });
    scene.actions("install", list(&storage, &unpack)).await?;
    let workflow = scene.provision(&machine).await?;
    let power_on = machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_serial(power_on, LOGIN, BOOT).await?;
    ensure!(workflow.status.as_ref().is_some_and(|s| s.phoned_home_at.is_some()), "it succeeded without a phone-home");
    require_installed(&machine, &workflow)
}
