//! x: two disks get one image with a btrfs root at once, in two branches, and each gets its own seed. The kernel knows a btrfs
//! by its UUID alone, so the branches take turns.

use std::path::Path;

use anyhow::{Context as _, ensure};
use landfall_lab::artefacts::OsImage;
use landfall_lab::{DhcpMode, DiskBus, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, DISK_BYTES, Scene};
use super::tools::{run, text};

/// The image's one partition, bytes.
const ROOT: std::ops::Range<u64> = 1 << 20..129 << 20;
const NAME: &str = "btrfs.img";
/// Where the seed lies.
const SEED: &str = "var/lib/cloud/seed/nocloud/user-data";

pub(super) async fn seeded_at_once(context: Context) -> anyhow::Result<()> {
    let images = context.dir.join("images");
    let directory = images.clone();
    let image = tokio::task::spawn_blocking(move || made(&directory)).await??;
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Uefi);
    let builder = builder.disk(DISK_BYTES, DiskBus::Virtio).disk(DISK_BYTES, DiskBus::Nvme);
    let mut machine = scene.described(builder).await?;
    let source = json!({ "url": scene.url(NAME), "digest": image.digest });
    let mut actions = Vec::new();
    for (branch, disk) in ["a", "b"].into_iter().zip(&machine.spec().disks) {
        let disk = json!({ "serial": disk.serial });
        let seed = json!({ "disk": disk, "userData": { "fqdn": format!("of-branch-{branch}") } });
        let write = json!({ "disk": disk, "image": source });
        actions.push(json!({ "name": format!("write-{branch}"), "branch": branch, "writeImage": write }));
        actions.push(json!({ "name": format!("seed-{branch}"), "branch": branch, "cloudInit": seed }));
        for number in 0..5 {
            let file = json!({ "disk": disk, "path": format!("/opt/{number}"), "content": branch });
            let name = format!("file-{branch}-{number}");
            actions.push(json!({ "name": name, "branch": branch, "writeFile": file }));
        }
    }
    actions.push(json!({ "name": "off", "powerOff": {} }));
    scene.actions("install", actions.into()).await?;
    scene.install(&mut machine).await?;
    machine.wait_off(BOOT).await?;
    for (disk, branch) in ["a", "b"].into_iter().enumerate() {
        let partition = scene.context.dir.join(format!("root-{branch}.raw"));
        let length = usize::try_from(ROOT.end - ROOT.start)?;
        std::fs::write(&partition, machine.disk(disk).read(ROOT.start, length)?)?;
        let out = scene.context.dir.join(format!("root-{branch}"));
        std::fs::create_dir_all(&out)?;
        run("btrfs", &["restore", &text(&partition), &text(&out)])?;
        let seed = std::fs::read_to_string(out.join(SEED)).with_context(|| format!("disk {disk} has no seed"))?;
        ensure!(seed.contains(&format!("of-branch-{branch}")), "disk {disk} has the seed of another: {seed}");
        for number in 0..5 {
            let file = std::fs::read_to_string(out.join(format!("opt/{number}")))?;
            ensure!(file == branch, "disk {disk} has a file of the other branch");
        }
    }
    Ok(())
}

/// Makes the image: one partition with a btrfs that holds no more than a system's name.
fn made(directory: &Path) -> anyhow::Result<OsImage> {
    let (root, part) = (directory.with_file_name("root"), directory.with_file_name("part.raw"));
    std::fs::create_dir_all(directory)?;
    std::fs::create_dir_all(root.join("etc"))?;
    std::fs::write(root.join("etc/os-release"), "PRETTY_NAME=btrfs\n")?;
    std::fs::File::create(&part)?.set_len(ROOT.end - ROOT.start)?;
    run("mkfs.btrfs", &["-q", "--rootdir", &text(&root), &text(&part)])?;
    let disk = directory.join(NAME);
    let mut image = vec![0; usize::try_from(ROOT.start)?];
    image.extend(std::fs::read(&part)?);
    image.extend(vec![0; 1 << 20]);
    std::fs::write(&disk, image)?;
    let (first, last) = (ROOT.start / 512, ROOT.end / 512 - 1);
    let place = format!("--new=1:{first}:{last}");
    run("sgdisk", &[&place, "--typecode=1:8304", "--change-name=1:root", &text(&disk)])?;
    Ok(OsImage::measure(&disk)?)
}
