//! The coordinator's computer: Debian's kernel, the drivers of the boot image, busybox, the real program, and a disk of its
//! own, whose writes are recorded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_image::cpio::{Archive, Content};
use landfall_lab::{DiskBus, Firmware, Machine, Mark};

use crate::e2e::scene::Scene;

/// The log line of a coordinator that serves.
pub(super) const READY: &str = "ready ";
/// What its init prints, instead of a kernel panic, when it cannot continue.
pub(super) const PANIC: &str = "lab: panic: ";
/// Where a data directory is below the root of a disk.
pub(super) const DATA: &str = "data";
/// Capacity of its disk; sparse.
const DISK_BYTES: u64 = 256 << 20;
/// Outside of what the lab's DHCP gives out.
const ADDRESS: &str = "10.77.0.20";
/// Where Debian's `busybox-static` puts it.
const BUSYBOX: &str = "/bin/busybox";
/// The console shows what goes wrong, and when it serves; a line an event would keep an emulated computer busy.
const LOG_FILTER: &str = "error,landfall_coordinator::run=info";

/// Where it serves agents and operators.
pub(super) fn https() -> String {
    format!("https://{ADDRESS}:7443")
}

/// Waits until it serves or reports a failure. `limit` is for both.
pub(super) async fn ready(machine: &Machine, power_on: Mark, limit: Duration) -> anyhow::Result<()> {
    let either = |line: &str| line.contains(READY) || line.contains(PANIC);
    let line = machine.serial().wait_line(power_on, "a coordinator that serves", limit, either).await?;
    ensure!(!line.text.contains(PANIC), "the coordinator's computer says: {}", line.text);
    Ok(())
}

/// The computer, off, with a copy of this data directory on its disk.
pub(super) fn build(scene: &Scene, data: &Path) -> anyhow::Result<Machine> {
    let dir = &scene.context.dir;
    let initramfs = initramfs(scene, dir)?;
    let builder = Machine::builder("coordinator-host").firmware(Firmware::Bios).disk(DISK_BYTES, DiskBus::Virtio);
    let words = "console=ttyS0,115200 panic=30 rdinit=/lab/init";
    let builder = builder.recorded().direct_kernel(&scene.context.artefacts.kernel, &initramfs, words);
    let machine = builder.build(&scene.network, dir, scene.context.accel)?;
    // The next coordinator cannot use the socket of the previous one.
    let root = dir.join("root");
    std::fs::create_dir_all(&root)?;
    std::fs::rename(data, root.join(DATA)).with_context(|| format!("cannot move {}", data.display()))?;
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&root).arg(machine.disk(0).path());
    let output = mke2fs.output().context("cannot run mke2fs (package e2fsprogs)")?;
    ensure!(output.status.success(), "mke2fs failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(machine)
}

/// The boot image with one more layer behind it.
fn initramfs(scene: &Scene, dir: &Path) -> anyhow::Result<PathBuf> {
    let artefacts = &scene.context.artefacts;
    let mut layer = Archive::new();
    layer.file("lab/init", 0o755, Content::Bytes(INIT.replace("ADDRESS", ADDRESS).into_bytes()))?;
    layer.file("lab/busybox", 0o755, Content::Path(BUSYBOX.into()))?;
    layer.file("lab/landfall-coordinator", 0o755, Content::Path(artefacts.coordinator.clone()))?;
    layer.file(
        "lab/coordinator.toml",
        0o644,
        Content::Bytes(configuration("/lab/disk", ADDRESS, "/lab").into_bytes()),
    )?;
    // It serves boot scripts; the files that they name are never fetched.
    for served in ["lab/vmlinuz", "lab/initramfs"] {
        layer.file(served, 0o644, Content::Bytes(b"never booted".to_vec()))?;
    }
    layer.directory("lab/disk", 0o755)?;
    let boot = &artefacts.initramfs;
    let mut bytes = std::fs::read(boot).with_context(|| boot.display().to_string())?;
    // The kernel looks for the next archive where the first ended; one that is not compressed begins at a multiple of 4.
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let path = dir.join("coordinator-host.initramfs");
    std::fs::write(&path, layer.write_to(bytes)?).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// A coordinator's configuration: its data on the disk mounted at `disk`, its boot files in `boot`.
pub(super) fn configuration(disk: &str, address: &str, boot: &str) -> String {
    format!(
        "data_dir = \"{disk}/{DATA}\"\nadvertise = \"{address}\"\n[tftp]\nenabled = false\n\
         [boot]\nkernel = \"{boot}/vmlinuz\"\ninitramfs = \"{boot}/initramfs\"\n\
         [limits]\nparallel_installs = 100\n[log]\nfilter = \"{LOG_FILTER}\"\n"
    )
}

/// What its kernel starts. There are no authorities of the system's, without which no HTTPS client is made: the
/// coordinator's own stands in. ext4 as it is mounted by default: `data=ordered`, barriers on.
const INIT: &str = r#"#!/lab/busybox sh
B=/lab/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
# The boot image's modules are compressed one by one; the agent, as /init in the same image, loads them under that name.
$B ln -s /init /lab/modprobe
for module in virtio_pci virtio_rng virtio_blk virtio_net crc32c_generic ext4; do /lab/modprobe -q $module; done
$B ip link set lo up
$B ip addr add ADDRESS/24 dev eth0
$B ip link set eth0 up
$B mount -t ext4 /dev/vda /lab/disk || { echo "lab: panic: cannot mount the disk"; exec $B sh; }
export NO_COLOR=1 SSL_CERT_FILE=/lab/disk/data/admin/ca.pem
/lab/landfall-coordinator --config /lab/coordinator.toml --log-format text
echo "lab: panic: the coordinator ended ($?)"
exec $B sleep 1000000
"#;
