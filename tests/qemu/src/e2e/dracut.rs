//! z: an initramfs that dracut made, whose systemd starts the agent as a service, installs its machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use landfall_lab::{CoordinatorOptions, DiskBus, Firmware, Machine, Network};

use super::Context;
use super::layout::MEMORY_MIB;
use super::scene::{BOOT, BOOTED, DISK_BYTES, Scene, require_installed};
use super::tools::{run, text};

/// The module, as users copy it.
const MODULE: [(&str, &str); 2] = [
    ("module-setup.sh", include_str!("../../../../image/dracut/95landfall/module-setup.sh")),
    ("landfall-agent.service", include_str!("../../../../image/dracut/95landfall/landfall-agent.service")),
];
/// What systemd says as it starts the service.
const STARTING: &str = "Landfall agent...";

pub(super) async fn installs(context: Context) -> anyhow::Result<()> {
    let tar = context.artefacts.root_tar.clone().context("there is no root tar; give --root-tar FILE")?;
    let (root, agent) = (context.dir.join("root"), context.artefacts.agent.clone());
    let boot = context.dir.join("boot");
    let (kernel, initramfs) = tokio::task::spawn_blocking(move || made(&tar.path, &root, &agent, &boot)).await??;
    let options = CoordinatorOptions { kernel, initramfs, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Uefi).memory_mib(MEMORY_MIB);
    let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Virtio)).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    let console = machine.serial().lines_since(power_on);
    for (said, otherwise) in [
        (STARTING, "no systemd started the agent"),
        ("every bus is scanned", "the disks were not waited for"),
        ("the firmware starts disk vda after the network", "the firmware's boot order was left alone"),
        ("systemd-shutdown", "systemd did not take the machine down"),
    ] {
        ensure!(console.iter().any(|line| line.text.contains(said)), "{otherwise}");
    }
    let begun = console.iter().take_while(|line| !line.text.contains("systemd-shutdown"));
    let went_on = begun.into_iter().find(|line| {
        ["dracut-initqueue", "dracut-pre-mount", "dracut-mount", "Reached target initrd-root-fs"]
            .iter()
            .any(|unit| line.text.contains(unit))
    });
    ensure!(went_on.is_none(), "the boot went on beside the agent: {went_on:?}");
    require_installed(&machine, &workflow)
}

/// Has the dracut of a Debian make an initramfs with the module; its kernel and that initramfs.
fn made(tar: &Path, root: &Path, agent: &Path, boot: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let module = root.join("usr/lib/dracut/modules.d/95landfall");
    fs::create_dir_all(&module)?;
    run("tar", &["--extract", "--numeric-owner", "--file", &text(tar), "--directory", &text(root)])?;
    for (name, content) in MODULE {
        let file = module.join(name);
        fs::write(&file, content)?;
        let program = name.ends_with(".sh");
        fs::set_permissions(&file, fs::Permissions::from_mode(if program { 0o755 } else { 0o644 }))?;
    }
    fs::copy(agent, root.join("usr/bin/landfall-agent"))?;
    let mut versions = fs::read_dir(root.join("lib/modules"))?;
    let version = versions.next().context("the root tar has no kernel")??.file_name();
    let version = version.to_string_lossy();
    // dracut looks into /proc and /dev; the mounts end with its process.
    let script = r#"mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" dracut --no-hostonly --add landfall \
        --omit "network network-manager network-legacy systemd-networkd iscsi nfs nbd fcoe multipath" \
        --compress "zstd -1" --kver "$1" /boot/landfall.img"#;
    run("unshare", &["--mount", "sh", "-c", script, &text(root), &version])?;
    let parts = [format!("boot/vmlinuz-{version}"), "boot/landfall.img".to_owned()];
    fs::create_dir(boot)?;
    let [kernel, initramfs] = ["vmlinuz", "landfall.img"].map(|name| boot.join(name));
    for (from, to) in parts.iter().zip([&kernel, &initramfs]) {
        fs::rename(root.join(from), to).with_context(|| format!("cannot move {from}"))?;
    }
    fs::remove_dir_all(root)?;
    Ok((kernel, initramfs))
}
