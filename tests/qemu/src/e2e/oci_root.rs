//! z: the root is an OCI image of two layers in a registry of the site; it stands on btrfs with subvolumes, and systemd-boot starts
//! it.

use std::path::Path;

use anyhow::{Context as _, ensure};
use landfall_lab::artefacts::OsImage;
use landfall_lab::{DiskBus, Firmware, Machine, Network, Registry, RegistryStorage};
use serde_json::json;

use super::Context;
use super::layout::{LOGIN, MEMORY_MIB, NO_PSTORE, TAR, scene};
use super::says::at_start;
use super::scene::{BOOT, DISK_BYTES, require_installed};
use super::tools::{run, text};

const REPOSITORY: &str = "site/debian";
/// The installed system says what its root is, and what the second layer made of the first.
const SAYS: &str = r#"
echo "said: $(grep -c ' / btrfs .*subvol=/@ ' /proc/mounts) root, $(grep -c ' /home btrfs .*subvol=/@home ' /proc/mounts) home"
echo "said: $(cat /etc/site/layer), $(ls /etc | grep -c '^issue.net$') removed"
echo "said: $(bootctl is-installed)"
"#;

pub(super) async fn by_systemd_boot(context: Context) -> anyhow::Result<()> {
    let (scene, _) = scene(context).await?;
    let dir = scene.context.dir.clone();
    let (storage, digest) = tokio::task::spawn_blocking(move || image(&dir)).await??;
    let _registry = Registry::start(&storage, &scene.network, &scene.context.dir).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Uefi).memory_mib(MEMORY_MIB);
    let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Virtio)).await?;
    let subvolumes = json!([{ "name": "@", "mount": "/" }, { "name": "@home", "mount": "/home" }]);
    let layout = json!({ "disks": [{ "partitions": [
        { "role": "esp", "size": "256MiB" },
        { "name": "root", "format": "btrfs", "subvolumes": subvolumes },
    ] }] });
    let url = format!("oci+http://{}:{}/{REPOSITORY}@{digest}", Network::ADDRESS, Registry::PORT);
    let actions = json!([
        { "name": "disks", "storage": layout },
        { "name": "root", "unpack": { "image": url } },
        { "name": "seed", "cloudInit": {} },
        { "name": "says", "exec": { "script": at_start(SAYS, "local-fs.target") } },
        { "name": "boot", "installBootloader": { "loader": "systemdBoot", "kernelArguments": ["console=ttyS0,115200", NO_PSTORE] } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    for said in ["said: 1 root, 1 home", "said: of the second layer, 0 removed", "said: yes", LOGIN] {
        machine.wait_serial(power_on, said, BOOT).await?;
    }
    ensure!(workflow.status.as_ref().is_some_and(|s| s.phoned_home_at.is_some()), "it succeeded without a phone-home");
    require_installed(&machine, &workflow)
}

/// Makes the image: the root tar, and a layer that adds a file and removes one; its manifest's digest.
fn image(dir: &Path) -> anyhow::Result<(RegistryStorage, String)> {
    let (first, plain, second) = (dir.join("images").join(TAR), dir.join("first.tar"), dir.join("second.tar"));
    run("zstd", &["--quiet", "--decompress", &text(&first), "-o", &text(&plain)])?;
    let content = dir.join("second");
    std::fs::create_dir_all(content.join("etc/site"))?;
    std::fs::write(content.join("etc/site/layer"), "of the second layer")?;
    // Whiteout of the image specification: the file of the layer below is gone.
    std::fs::write(content.join("etc/.wh.issue.net"), "")?;
    run(
        "tar",
        &["--owner=0", "--group=0", "-C", &text(&content), "-cf", &text(&second), "etc/site", "etc/.wh.issue.net"],
    )?;

    let storage = RegistryStorage::create(&dir.join("registry"), REPOSITORY)?;
    let [first, plain, second] = [first, plain, second].map(|path| OsImage::measure(&path));
    let (first, plain, second) = (first?, plain?, second?);
    std::fs::remove_file(&plain.path).context("cannot remove the plain tar")?;
    storage.blob(&first.digest, &first.path)?;
    storage.blob(&second.digest, &second.path)?;
    let rootfs = json!({ "type": "layers", "diff_ids": [plain.digest, second.digest] });
    let (config, size) = storage.json(&json!({ "architecture": "amd64", "os": "linux", "rootfs": rootfs }))?;
    let layer = |kind: &str, blob: &OsImage| json!({ "mediaType": format!("application/vnd.oci.image.layer.v1.{kind}"), "digest": blob.digest, "size": blob.stored_bytes });
    let digest = storage.manifest(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": size },
        "layers": [layer("tar+zstd", &first), layer("tar", &second)],
    }))?;
    Ok((storage, digest))
}
