//! v: a disk with 4096-byte sectors, from power-on to phone-home. The image is made from the one of the other tests: the same
//! root, laid out for such disks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use landfall_image::disk::{self, filesystem::RootFs, layout::Sector, seed::Seed};
use landfall_lab::{DhcpMode, DiskBus, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::raw::decode;
use super::scene::{BOOT, BOOTED, DISK_BYTES, Scene, receipt};

/// Where the image of the other tests has its root, and how large the new one is.
const ROOT_AT: u64 = (2 + 16) << 20;
const ROOT_MIB: u32 = 128;

pub(super) async fn to_phone_home(context: Context) -> anyhow::Result<()> {
    let images = context.dir.join("images");
    let (stored, directory) = (context.artefacts.image.path.clone(), images.clone());
    let digest = tokio::task::spawn_blocking(move || laid_out(&stored, &directory)).await??;
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Uefi).disk(DISK_BYTES, DiskBus::Nvme).sectors_of(4096);
    let mut machine = scene.described(builder).await?;
    let image = json!({ "url": scene.url(disk::assemble::STORED), "digest": digest });
    let file = json!({ "path": "/opt/proof", "content": "of a root on 4096-byte sectors" });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "file", "writeFile": file },
        { "name": "seed", "cloudInit": {} },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    ensure!(workflow.status.is_some_and(|s| s.phoned_home_at.is_some()), "it succeeded without a phone-home");
    ensure!(machine.disk(0).read(4096, 8)? == b"EFI PART", "the table does not count in 4096-byte sectors");
    ensure!(String::from_utf8_lossy(&receipt(&machine)?).contains("Done"), "the receipt is not in state Done");
    Ok(())
}

/// Makes the image; its digest.
fn laid_out(stored: &Path, directory: &Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(directory)?;
    let work = directory.with_file_name("root");
    std::fs::create_dir_all(&work)?;
    let raw = directory.with_file_name("image.raw");
    decode(stored, &raw)?;
    let request = format!("rdump / {}", work.display());
    let file_system = PathBuf::from(format!("{}?offset={ROOT_AT}", raw.display()));
    let dumped = Command::new("debugfs").arg("-R").arg(&request).arg(&file_system).output();
    let dumped = dumped.context("cannot run debugfs of e2fsprogs")?;
    ensure!(work.join("boot/grub/grub.cfg").is_file(), "debugfs: {}", String::from_utf8_lossy(&dumped.stderr));
    let recipe = disk::Recipe {
        root: &work,
        label: "mini",
        seed: Seed::new("landfall mini 4096"),
        sector: Sector::Bytes4096,
        root_fs: RootFs::Ext4,
        root_mib: ROOT_MIB,
        var: None,
        esp_mib: 16,
        grub: Path::new("/usr/lib/grub"),
        level: 3,
        keep_raw: false,
    };
    Ok(disk::assemble(&recipe, directory)?.digest)
}
