//! systemd-boot: the loader, the kernels and what each needs all stand on the EFI system partition, put there by `bootctl` and
//! `kernel-install` of the new system, which does the same with each later kernel.

use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::{ErrorCode, Problem};
use nix::sys::statvfs::statvfs;

use super::super::inside::{no_program, program};
use super::found::missing;
use super::{Needs, found, mounts, put, unwritten, written};
use crate::Failure;

/// What `kernel-install` gives each kernel as its arguments (kernel-install(8)).
const CMDLINE: &str = "/etc/kernel/cmdline";
/// Where kernels are, one directory for each version.
const MODULES: &str = "/lib/modules";
/// Hooks of `kernel-install`.
const HOOKS: [&str; 2] = ["/usr/lib/kernel/install.d", "/etc/kernel/install.d"];
/// The loader itself, and who has it.
const LOADERS: &str = "/usr/lib/systemd/boot/efi";
const PACKAGES: &str = "systemd-boot (Debian, Ubuntu) or systemd-boot-unsigned and systemd-udev (Fedora and its kin)";
/// Bytes on the EFI system partition for the loader, twice, and its entries.
const LOADER_BYTES: u64 = 1 << 20;

/// Installs it; where, for people.
pub(super) fn install(needs: &Needs<'_>) -> Result<String, Failure> {
    // Nothing is changed until all of this is there.
    if needs.bios {
        let message = "systemd-boot does not start from a BIOS, and a BIOS started this machine";
        let hint = "write loader: grub, or firmware: uefi if its next start is to be by UEFI";
        return Err(missing(ErrorCode::InvalidTemplate, message.into(), hint));
    }
    let bootctl = needed("bootctl")?;
    let adds = needed("kernel-install")?;
    if !has_loader(Path::new(LOADERS)) {
        let message = format!("the new system has no systemd-boot*.efi in {LOADERS}");
        return Err(missing(ErrorCode::ProgramFailed, message, &format!("install {PACKAGES} in what is unpacked")));
    }
    let kernels = kernels(Path::new(MODULES), Path::new("/boot"));
    if kernels.is_empty() {
        let hint = "install a kernel in what is unpacked, such as linux-image-amd64 of Debian";
        return Err(missing(
            ErrorCode::NoKernel,
            format!("no kernel of the new system is in {MODULES} and /boot"),
            hint,
        ));
    }
    let mounts = mounts()?;
    let esp = found::esp(&mounts)?;
    loader_sees_boot(&mounts, esp)?;
    let root = root(&mounts, &|device| found::identity(device, "UUID"))?;
    let initramfs = needs.initramfs()?;
    has_room(esp, &kernels)?;

    let line = [&root[..], needs.arguments].concat().join(" ");
    put(CMDLINE, &(line + "\n"))?;
    if let Some((program, arguments)) = initramfs {
        needs.run(&program, arguments)?;
    }
    // The entry in the firmware is the agent's to make: the network stays first. The name of the system and no machine-id: that is
    // made at the first start.
    let esp_path = format!("--esp-path={esp}");
    let install = ["install", &esp_path, "--no-variables", "--entry-token=os-id", "--make-entry-directory=yes"];
    needs.run(&bootctl, &install)?;
    let makes_own = HOOKS.iter().any(|folder| brings_initramfs(Path::new(folder)));
    for kernel in &kernels {
        let image = kernel.image.display().to_string();
        let initramfs = kernel.initramfs.as_ref().filter(|_| !makes_own).map(|path| path.display().to_string());
        let arguments: Vec<&str> = ["add", &kernel.version, &image].into_iter().chain(initramfs.as_deref()).collect();
        needs.run(&adds, &arguments)?;
    }
    read_back(needs, &mounts, Path::new(esp), &kernels)?;
    Ok(format!("systemd-boot in {esp}"))
}

/// `kernel-install` puts kernels into a file system of its own at `/boot`, and the loader reads no other than FAT.
fn loader_sees_boot(mounts: &str, esp: &str) -> Result<(), Failure> {
    if esp == "/boot" || mounts.lines().all(|line| line.split(' ').nth(1) != Some("/boot")) {
        return Ok(());
    }
    let message =
        format!("systemd-boot starts kernels from {esp} alone, and the new system has a partition of its own at /boot");
    let hint = "remove the partition at /boot from the storage action, or mount the one with role: esp there, or write loader: grub";
    Err(missing(ErrorCode::InvalidTemplate, message, hint))
}

/// What the programs wrote starts this system: the loader is there, and each kernel with its initramfs and this root.
fn read_back(needs: &Needs<'_>, mounts: &str, esp: &Path, kernels: &[Kernel]) -> Result<(), Failure> {
    written::written(&found::removable(&esp.display().to_string()))?;
    let entries = written::of_folder(&esp.join("loader/entries"), "");
    let unified = esp.join("EFI/Linux");
    for kernel in kernels {
        let is_its = |name: &String| name.contains(&kernel.version) && name.ends_with(".efi");
        // Kernel, initramfs and arguments in one file, as `layout=uki` of kernel-install makes it.
        if let Some(name) = names(&unified).find(is_its) {
            written::written(&unified.join(name))?;
            continue;
        }
        let of_kernel = entries.iter().filter(|entry| entry.is_for(&kernel.version));
        let place = format!("the entry for {} in {}", kernel.version, esp.join("loader/entries").display());
        written::whole(of_kernel, &place, &[esp], &|root| needs.is_root(mounts, root, &|_| None))?;
    }
    Ok(())
}

fn needed(name: &str) -> Result<PathBuf, Failure> {
    program(name).ok_or_else(|| no_program(name, PACKAGES))
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn has_loader(folder: &Path) -> bool {
    names(folder).any(|name| name.starts_with("systemd-boot") && name.contains(".efi"))
}

/// Whether a hook of `kernel-install` adds the initramfs: it must not be added twice.
fn brings_initramfs(folder: &Path) -> bool {
    names(folder)
        .any(|name| name.ends_with(".install") && ["initrd", "dracut", "mkinitcpio"].iter().any(|it| name.contains(it)))
}

/// A kernel of the new system.
#[derive(Debug, PartialEq, Eq)]
struct Kernel {
    version: String,
    image: PathBuf,
    initramfs: Option<PathBuf>,
}

/// Those with modules, by version.
fn kernels(modules: &Path, boot: &Path) -> Vec<Kernel> {
    let found = names(modules).filter_map(|version| {
        let images = [modules.join(&version).join("vmlinuz"), boot.join(format!("vmlinuz-{version}"))];
        let image = images.into_iter().find(|path| path.is_file())?;
        let initramfs = [format!("initrd.img-{version}"), format!("initramfs-{version}.img")];
        let initramfs = initramfs.into_iter().map(|name| boot.join(name)).find(|path| path.is_file());
        Some(Kernel { version, image, initramfs })
    });
    let mut found: Vec<Kernel> = found.collect();
    found.sort_by(|a, b| a.version.cmp(&b.version));
    found
}

/// Kernels, initramfs and loader fit on the EFI system partition.
fn has_room(esp: &str, kernels: &[Kernel]) -> Result<(), Failure> {
    let size = |path: &PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
    let all = kernels.iter().map(|kernel| size(&kernel.image) + kernel.initramfs.as_ref().map_or(0, size));
    let needed = all.sum::<u64>() + LOADER_BYTES;
    let space = statvfs(esp).map_err(|error| unwritten("look at", esp, &io::Error::from(error)))?;
    // What an earlier run put there is replaced.
    let size = space.blocks() * space.fragment_size();
    if size >= needed {
        return Ok(());
    }
    let message = format!("the EFI system partition has {size} bytes, and systemd-boot needs {needed} for the kernels");
    Err(missing(ErrorCode::InvalidTemplate, message, "make the partition with role: esp larger, or write loader: grub"))
}

/// The kernel's arguments for the root: `root=UUID=…`, the subvolume, `ro`.
fn root(mounts: &str, identity: &dyn Fn(&str) -> Result<String, String>) -> Result<Vec<String>, Failure> {
    let unknown = |reason: String| {
        let problem =
            Problem::new(ErrorCode::ProgramFailed, format!("the identity of the new root is unknown: {reason}"));
        Failure::last(problem.hint("check that what is unpacked has the program blkid of util-linux"))
    };
    let (device, format, options) = found::root(mounts).ok_or_else(|| unknown("nothing is mounted at /".into()))?;
    let uuid = identity(device).map_err(unknown)?;
    let subvolume = options.split(',').find_map(|option| option.strip_prefix("subvol=/"));
    let flags = subvolume.filter(|name| format == "btrfs" && !name.is_empty());
    let flags = flags.map(|name| format!("rootflags=subvol={name}"));
    Ok([format!("root=UUID={uuid}")].into_iter().chain(flags).chain(["ro".into()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_named_by_its_identity_and_subvolume() {
        let uuid = |device: &str| if device == "/dev/vda2" { Ok("12-ab".into()) } else { Err(device.to_owned()) };
        let said = |mounts: &str| root(mounts, &uuid).map(|words| words.join(" ")).map_err(|e| e.problem.message);
        let plain = "rootfs / rootfs rw 0 0\n/dev/vda2 / ext4 rw,relatime 0 0\n/dev/vda1 /boot/efi vfat rw 0 0\n";
        assert_eq!(said(plain).unwrap(), "root=UUID=12-ab ro");
        let below = "/dev/vda2 / btrfs rw,subvolid=256,subvol=/@rootfs 0 0\n";
        assert_eq!(said(below).unwrap(), "root=UUID=12-ab rootflags=subvol=@rootfs ro");
        assert_eq!(said("/dev/vda2 / btrfs rw,subvol=/ 0 0\n").unwrap(), "root=UUID=12-ab ro");
        assert!(said("").unwrap_err().contains("nothing is mounted"));
        assert!(said("/dev/vdb / ext4 rw 0 0\n").unwrap_err().contains("/dev/vdb"));
    }

    #[test]
    fn a_file_system_of_its_own_at_boot_is_refused() {
        let both = "/dev/vda2 / ext4 rw 0 0\n/dev/vda3 /boot ext4 rw 0 0\n/dev/vda1 /boot/efi vfat rw 0 0\n";
        let problem = loader_sees_boot(both, "/boot/efi").unwrap_err().problem;
        assert!(problem.code == ErrorCode::InvalidTemplate && problem.hint.contains("loader: grub"), "{problem}");
        loader_sees_boot(&both.replace(" /boot ext4", " /srv ext4"), "/boot/efi").unwrap();
        loader_sees_boot("/dev/vda1 /boot vfat rw 0 0\n", "/boot").unwrap();
    }

    #[test]
    fn kernels_are_those_with_modules() {
        let system = tempfile::tempdir().unwrap();
        let (modules, boot) = (system.path().join("modules"), system.path().join("boot"));
        for version in ["6.1.0-2", "6.1.0-1", "5.10"] {
            fs::create_dir_all(modules.join(version)).unwrap();
        }
        fs::create_dir(&boot).unwrap();
        assert_eq!(kernels(&modules, &boot), []);
        for file in ["vmlinuz-6.1.0-1", "initrd.img-6.1.0-1", "vmlinuz-0-rescue"] {
            fs::write(boot.join(file), "").unwrap();
        }
        fs::write(modules.join("6.1.0-2/vmlinuz"), "").unwrap();
        assert_eq!(
            kernels(&modules, &boot),
            [
                Kernel {
                    version: "6.1.0-1".into(),
                    image: boot.join("vmlinuz-6.1.0-1"),
                    initramfs: Some(boot.join("initrd.img-6.1.0-1"))
                },
                Kernel { version: "6.1.0-2".into(), image: modules.join("6.1.0-2/vmlinuz"), initramfs: None },
            ]
        );
    }

    #[test]
    fn a_small_esp_is_refused_with_both_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("vmlinuz");
        fs::File::create(&image).unwrap().set_len(1 << 42).unwrap();
        let kernel = Kernel { version: "6".into(), image, initramfs: None };
        let problem = has_room(&folder.path().display().to_string(), &[kernel]).unwrap_err().problem;
        assert!(problem.message.contains(&((1_u64 << 42) + LOADER_BYTES).to_string()), "{problem}");
        has_room(&folder.path().display().to_string(), &[]).unwrap();
    }

    #[test]
    fn an_initramfs_is_not_added_beside_a_hooks() {
        let hooks = tempfile::tempdir().unwrap();
        fs::write(hooks.path().join("90-loaderentry.install"), "").unwrap();
        assert!(!brings_initramfs(hooks.path()));
        fs::write(hooks.path().join("55-initrd.install"), "").unwrap();
        assert!(brings_initramfs(hooks.path()));
        assert!(!has_loader(hooks.path()));
        fs::write(hooks.path().join("systemd-bootx64.efi"), "").unwrap();
        assert!(has_loader(hooks.path()));
    }
}
