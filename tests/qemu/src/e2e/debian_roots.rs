//! y: Debian from power-on to phone-home on roots that are laid out in other ways: XFS, btrfs with the subvolumes of Debian's
//! installer, and a `/var` of its own. The images are made from the Debian image: the same files.

use std::path::Path;

use anyhow::{Context as _, ensure};
use landfall_image::disk::{self, filesystem::RootFs, layout::Sector, seed::Seed};
use landfall_lab::{DhcpMode, DiskBus, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::raw::decode;
use super::scene::{BOOT, DISK_BYTES, Scene, require_installed};
use super::tools::{run, text};

/// MiB before the Debian image's root: the BIOS boot partition and the EFI system partition (`OS_ESP_MIB`).
const ESP_MIB: u32 = 32;
const ROOT_AT: u64 = (2 + ESP_MIB as u64) << 20;
/// A file of the system says this on the console.
const SAYS: &str = "landfall-lab: mounted";

/// How the system is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Xfs,
    Btrfs,
    SeparateVar,
    /// One root, whose label is that of Ignition's configs.
    Ignition,
}

impl Layout {
    fn fstab(self) -> &'static str {
        match self {
            Self::Xfs => "LABEL=debian / xfs defaults 0 0\n",
            Self::Btrfs => {
                "LABEL=debian / btrfs defaults,subvol=@rootfs 0 0\nLABEL=debian /home btrfs defaults,subvol=@home 0 0\n"
            }
            Self::SeparateVar => {
                "LABEL=debian / ext4 defaults,errors=remount-ro 0 1\nLABEL=var /var ext4 defaults 0 2\n"
            }
            Self::Ignition => "LABEL=ignition / ext4 defaults,errors=remount-ro 0 1\n",
        }
    }

    const fn root_fs(self) -> RootFs {
        match self {
            Self::Xfs => RootFs::Xfs,
            Self::Btrfs => RootFs::Btrfs,
            Self::SeparateVar | Self::Ignition => RootFs::Ext4,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Xfs | Self::Btrfs | Self::SeparateVar => "debian",
            Self::Ignition => "ignition",
        }
    }

    /// What the booted system must have mounted at `/` and around the seed: file system, and what of the device.
    const fn mounts(self) -> &'static str {
        match self {
            Self::Xfs => "/ xfs 3 / xfs 3",
            Self::Btrfs => "/ btrfs 3[/@rootfs] / btrfs 3[/@rootfs]",
            Self::SeparateVar => "/ ext4 3 /var ext4 4",
            Self::Ignition => "/ ext4 3 / ext4 3",
        }
    }
}

pub(super) async fn to_phone_home(context: Context, firmware: Firmware, layout: Layout) -> anyhow::Result<()> {
    let images = context.dir.join("images");
    let debian = context.artefacts.debian.clone().context("there is no Debian image; give --debian DIR")?;
    let (stored, directory) = (debian.path, images.clone());
    let digest = tokio::task::spawn_blocking(move || laid_out(&stored, &directory, layout)).await??;
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let builder = Machine::builder("m1").firmware(firmware).memory_mib(1024).disk(DISK_BYTES, DiskBus::Virtio);
    let mut machine = scene.described(builder).await?;
    let image = json!({ "url": scene.url(disk::assemble::STORED), "digest": digest });
    // Said by the installed system: it has read the seed, and this is where it has it from.
    let mount = |path: &str| format!("$(findmnt -nro TARGET,FSTYPE,SOURCE -T {path} | sed s,/dev/vda,,)");
    let say = format!("echo {SAYS} {} {} > /dev/ttyS0", mount("/"), mount("/var/lib/cloud/seed"));
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "seed", "cloudInit": { "userData": { "runcmd": [["sh", "-c", say]] } } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    let said = format!("{SAYS} {}", layout.mounts());
    machine.wait_serial(power_on, &said, BOOT).await?;
    ensure!(workflow.status.as_ref().is_some_and(|s| s.phoned_home_at.is_some()), "it succeeded without a phone-home");
    require_installed(&machine, &workflow)
}

/// Makes the image; its digest.
pub(super) fn laid_out(stored: &Path, directory: &Path, layout: Layout) -> anyhow::Result<String> {
    std::fs::create_dir_all(directory)?;
    let (work, var) = (directory.with_file_name("root"), directory.with_file_name("var"));
    let raw = directory.with_file_name("image.raw");
    decode(stored, &raw)?;
    let size = raw.metadata()?.len();
    copied(&raw, &work)?;
    ensure!(work.join("boot/grub/grub.cfg").is_file(), "{} has no root where the test expects it", stored.display());
    std::fs::write(work.join("etc/fstab"), layout.fstab())?;
    let separate = layout == Layout::SeparateVar;
    if separate {
        std::fs::rename(work.join("var"), &var)?;
        std::fs::create_dir(work.join("var"))?;
    }
    let recipe = disk::Recipe {
        root: &work,
        label: layout.label(),
        seed: Seed::new("landfall debian laid out"),
        sector: Sector::Bytes512,
        root_fs: layout.root_fs(),
        // As large as the image's own; the last MiB of a disk is the backup table's.
        root_mib: u32::try_from((size - ROOT_AT) >> 20)? - 1,
        var: separate.then_some((var.as_path(), 512)),
        esp_mib: ESP_MIB,
        grub: Path::new("/usr/lib/grub"),
        level: 1,
        keep_raw: false,
    };
    let digest = disk::assemble(&recipe, directory)?.digest;
    for tree in [&work, &var] {
        if tree.exists() {
            std::fs::remove_dir_all(tree)?;
        }
    }
    std::fs::remove_file(&raw)?;
    Ok(digest)
}

/// Copies the files of an image's root.
fn copied(raw: &Path, to: &Path) -> anyhow::Result<()> {
    let point = to.with_file_name("mounted");
    std::fs::create_dir_all(&point)?;
    std::fs::create_dir_all(to)?;
    let options = format!("ro,noload,loop,offset={ROOT_AT}");
    run("mount", &["-o", &options, &text(raw), &text(&point)])?;
    let copied = run("cp", &["--archive", &text(&point.join(".")), &text(to)]);
    run("umount", &[&text(&point)])?;
    copied
}
