//! c, z: an initramfs of the user's own installs its machine: one that dracut made, one that is a Debian, whose systemd start the agent
//! as a service, and one whose init is a script, which starts the agent or a container with it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use landfall_api::Workflow;
use landfall_image::cpio::{Archive, Content};
use landfall_image::initramfs::{self, Recipe};
use landfall_image::kernel::Stored;
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
/// Who made an initramfs with systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Dracut,
    /// As mkosi does: packages, and a file that says what it is. The agent is put behind it.
    Packages,
}

/// What systemd says as it starts the service.
const STARTING: &str = "Landfall agent...";

pub(super) async fn with_systemd(context: Context, maker: Maker) -> anyhow::Result<()> {
    let tar = context.artefacts.root_tar.clone().context("there is no root tar; give --root-tar FILE")?;
    let (root, agent) = (context.dir.join("root"), context.artefacts.agent.clone());
    let boot = context.dir.join("boot");
    let (kernel, initramfs) =
        tokio::task::spawn_blocking(move || made(maker, &tar.path, &root, &agent, &boot)).await??;
    // Of dracut's the page says that no such word is needed.
    let words = if maker == Maker::Packages { " systemd.gpt_auto=0" } else { "" };
    let kernel_args = format!("{}{words}", landfall_lab::KERNEL_ARGS);
    let options = CoordinatorOptions { kernel, initramfs, kernel_args, ..Scene::options(&context)? };
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

/// An init of one's own.
const MOUNTS: &str = "#!/bin/busybox sh
export PATH=/bin
for name in mount echo sleep mkdir cp ip udhcpc unshare chroot reboot sed; do /bin/busybox ln -s busybox /bin/$name; done
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo \"own init: process $$ starts the agent\"
";
/// It starts the agent by another name than `/init`, and not as process 1.
const AS_A_CHILD: &str = "/init initramfs
echo \"own init: the agent ended\"
sleep 3600
";
/// It loads drivers, asks for an address, and starts the agent as a container does: first process of its namespace, with nothing but
/// its own program and the devices.
const IN_A_CONTAINER: &str = "mkdir -p /sbin /box/dev /box/proc /box/sys /box/tmp
/bin/busybox ln -s /init /sbin/modprobe
for module in virtio_pci virtio_net virtio_blk af_packet; do /sbin/modprobe $module; done
echo '#!/bin/busybox sh
[ \"$1\" = bound ] && /bin/ip addr add $ip/24 dev $interface' > /bin/lease
/bin/busybox chmod 755 /bin/lease
ip link set eth0 up
udhcpc -i eth0 -n -q -s /bin/lease
cp /init /box/landfall-agent
for dir in dev sys; do mount -o bind /$dir /box/$dir; done
word() { sed -n \"s/.*landfall[.]$1=\\([^ ]*\\).*/\\1/p\" /proc/cmdline; }
export coordinator=$(word coordinator) ca=$(word ca)
unshare -m -u -i -p -f sh -c 'mount -t proc proc /box/proc && exec chroot /box /landfall-agent run --once --coordinator $coordinator --ca $ca'
echo \"own init: the agent ended $?\"
reboot -f
";

pub(super) async fn with_a_script(context: Context) -> anyhow::Result<()> {
    let (console, machine, workflow) = by_script(context, AS_A_CHILD).await?;
    ensure!(console.contains("every bus is scanned"), "the disks were not waited for");
    ensure!(!console.contains("own init: the agent ended"), "the agent left the machine to the script");
    require_installed(&machine, &workflow)
}

pub(super) async fn in_a_container(context: Context) -> anyhow::Result<()> {
    let (console, machine, workflow) = by_script(context, IN_A_CONTAINER).await?;
    ensure!(console.contains("own init: the agent ended 0"), "the agent did not leave the machine to the script");
    ensure!(!console.contains("every bus is scanned"), "the agent took the machine for its own");
    require_installed(&machine, &workflow)
}

/// Installs by the boot image with an archive behind it, in which this is the first process; what the console shows.
async fn by_script(context: Context, script: &str) -> anyhow::Result<(String, Machine, Workflow)> {
    let mut archive = Archive::new();
    archive.file("own-init", 0o755, Content::Bytes(format!("{MOUNTS}{script}").into()))?;
    archive.file("bin/busybox", 0o755, Content::Path("/bin/busybox".into()))?;
    let initramfs = put_behind_boot_image(&context, &archive)?;
    let kernel_args = format!("{} rdinit=/own-init", landfall_lab::KERNEL_ARGS);
    let options = CoordinatorOptions { initramfs, kernel_args, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Bios)).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    let console: Vec<_> = machine.serial().lines_since(power_on).into_iter().map(|line| line.text).collect();
    let console = console.join("\n");
    ensure!(console.contains("own init: process 1 starts the agent"), "the script was not process 1");
    Ok((console, machine, workflow))
}

/// The boot image with an archive behind it.
pub(super) fn put_behind_boot_image(context: &Context, archive: &Archive) -> anyhow::Result<PathBuf> {
    let initramfs = context.dir.join("initramfs");
    let mut bytes = fs::read(&context.artefacts.initramfs)?;
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    fs::write(&initramfs, archive.write_to(bytes)?)?;
    Ok(initramfs)
}

/// Puts the agent behind an initramfs, in an archive that is not compressed.
fn append(agent: &Path, initramfs: &Path) -> anyhow::Result<()> {
    let archive = initramfs.with_extension("cpio");
    let recipe = Recipe {
        tree: None,
        init: agent,
        init_path: "usr/bin/landfall-agent",
        modules: &BTreeSet::new(),
        stored: Stored::Plain,
        files: &[],
        rescue_shell: None,
        firmware: None,
        level: None,
    };
    initramfs::pack(&recipe, &archive)?;
    let mut bytes = fs::read(initramfs)?;
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(fs::read(archive)?);
    Ok(fs::write(initramfs, bytes)?)
}

/// Makes an initramfs of a Debian; its kernel and that initramfs.
fn made(maker: Maker, tar: &Path, root: &Path, agent: &Path, boot: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (module, units) = (root.join("usr/lib/dracut/modules.d/95landfall"), root.join("etc/systemd/system"));
    fs::create_dir_all(&module)?;
    run("tar", &["--extract", "--numeric-owner", "--file", &text(tar), "--directory", &text(root)])?;
    for (name, content) in MODULE {
        let (file, mode) = match maker {
            Maker::Dracut => (module.join(name), if name.ends_with(".sh") { 0o755 } else { 0o644 }),
            Maker::Packages if name.ends_with(".service") => (units.join(name), 0o644),
            Maker::Packages => continue,
        };
        fs::write(&file, content)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    }
    if maker == Maker::Dracut {
        fs::copy(agent, root.join("usr/bin/landfall-agent"))?;
    }
    let mut versions = fs::read_dir(root.join("lib/modules"))?;
    let version = versions.next().context("the root tar has no kernel")??.file_name();
    let version = version.to_string_lossy();
    // dracut looks into /proc and /dev; the mounts end with its process.
    let dracut = r#"mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" dracut --no-hostonly --add landfall \
        --omit "network network-manager network-legacy systemd-networkd iscsi nfs nbd fcoe multipath" \
        --compress "zstd -1" --kver "$1" /boot/landfall.img"#;
    // What only an installed system needs is left out, to be quick.
    let packages = r#"cd "$0" && mv boot/vmlinuz-* "$0.vmlinuz" && rm -rf boot/* usr/lib/grub usr/share/doc usr/share/locale usr/share/perl &&
        cp etc/os-release etc/initrd-release && ln -s usr/lib/systemd/systemd init &&
        chroot . systemctl enable landfall-agent.service &&
        chroot . sh -c 'find . -xdev | cpio --quiet -o -H newc' | zstd -1 -q > "$0.img" && mv "$0.vmlinuz" "boot/vmlinuz-$1" && mv "$0.img" boot/landfall.img"#;
    let script = if maker == Maker::Dracut { dracut } else { packages };
    run("unshare", &["--mount", "sh", "-c", script, &text(root), &version])?;
    let parts = [format!("boot/vmlinuz-{version}"), "boot/landfall.img".to_owned()];
    fs::create_dir(boot)?;
    let [kernel, initramfs] = ["vmlinuz", "landfall.img"].map(|name| boot.join(name));
    for (from, to) in parts.iter().zip([&kernel, &initramfs]) {
        fs::rename(root.join(from), to).with_context(|| format!("cannot move {from}"))?;
    }
    fs::remove_dir_all(root)?;
    if maker == Maker::Packages {
        append(agent, &initramfs)?;
    }
    Ok((kernel, initramfs))
}
