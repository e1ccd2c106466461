//! What the new system has: its kernel, where its EFI system partition is mounted, room for a BIOS. Each thing that is missing is an
//! error that names the package or the partition.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use landfall_api::{DiskFacts, ErrorCode, Problem};
use landfall_disk::{BlockDevice as _, ReadAt as _, RealDevice, device_path, judge::Findings};

use super::super::inside::program;
use crate::Failure;

/// Where distributions mount their EFI system partition.
const ESP_PLACES: [&str; 3] = ["/boot/efi", "/efi", "/boot"];
/// What a kernel's file begins with.
const KERNELS: [&str; 4] = ["vmlinuz", "vmlinux", "Image", "kernel-"];
/// A GPT's type of the partition for GRUB's core: 21686148-6449-6E6F-744E-656564454649 (GRUB's manual, "BIOS installation").
const BIOS_BOOT: &[u8; 16] = b"Hah!IdontNeedEFI";

pub(super) fn missing(code: ErrorCode, message: String, hint: &str) -> Failure {
    Failure::last(Problem::new(code, message).hint(hint))
}

/// There is a kernel in this folder, which is `/boot`.
pub(super) fn has_kernel(boot: &Path) -> Result<(), Failure> {
    let is_kernel = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        KERNELS.iter().any(|kernel| name.starts_with(kernel))
    };
    let entries = fs::read_dir(boot).into_iter().flatten().flatten().map(|entry| entry.path());
    let named: Vec<_> = entries.filter(|path| is_kernel(path)).collect();
    if named.iter().any(|path| is_full(path)) {
        return Ok(());
    }
    let boot = boot.display();
    let message = match named.first() {
        Some(path) => format!("{} of the new system is empty or a link to nowhere", path.display()),
        None => format!("{boot} of the new system has no kernel"),
    };
    let hint = "install a kernel in what is unpacked, such as linux-image-amd64 of Debian";
    Err(missing(ErrorCode::NoKernel, message, hint))
}

/// Whether it is a file with content, wherever links lead.
pub(super) fn is_full(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() > 0)
}

/// What is mounted at `/`, by the text of `/proc/mounts`: device, kind and options.
pub(super) fn root(mounts: &str) -> Option<(&str, &str, &str)> {
    // The last one that is mounted there covers the others.
    let lines = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.filter(|words| words.get(1) == Some(&"/")).find_map(|words| match words[..] {
        [device, _, format, options, ..] => Some((device, format, options)),
        _ => None,
    })
}

/// The identity of a device, such as its `UUID`, by the new system's own `blkid`.
pub(super) fn identity(device: &str, kind: &str) -> Result<String, String> {
    let blkid = program("blkid").ok_or("the new system has no program blkid")?;
    let mut command = Command::new(blkid);
    let output = command.args(["-c", "/dev/null", "-o", "value", "-s", kind, device]).output();
    let output = output.map_err(|error| format!("blkid: {error}"))?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "" => Err(format!("blkid finds none on {device}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        identity => Ok(identity.to_owned()),
    }
}

/// What firmware starts from an EFI system partition of which it knows nothing.
pub(super) fn removable(esp: &str) -> PathBuf {
    let name = if cfg!(target_arch = "aarch64") { "BOOTAA64.EFI" } else { "BOOTX64.EFI" };
    Path::new(esp).join("EFI/BOOT").join(name)
}

/// Where the EFI system partition is mounted, by the text of `/proc/mounts`.
pub(super) fn esp(mounts: &str) -> Result<&str, Failure> {
    let fat = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        words.next().filter(|_| words.next() == Some("vfat"))
    });
    let found: Vec<&str> = fat.filter(|at| ESP_PLACES.contains(at)).collect();
    ESP_PLACES.iter().find_map(|place| found.iter().find(|at| *at == place).copied()).ok_or_else(|| {
        let message = format!("no EFI system partition is mounted in the new system at {}", ESP_PLACES.join(", "));
        let hint = "add a partition with role: esp to the storage action, or write firmware: bios";
        missing(ErrorCode::InvalidTemplate, message, hint)
    })
}

/// Those of the disks where GRUB has room for a BIOS.
pub(super) fn for_bios(disks: &[DiskFacts]) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for disk in disks {
        let path = device_path(disk);
        let name = path.display().to_string();
        let room = has_room(&path).map_err(|error| {
            let problem = Problem::new(ErrorCode::DeviceIo, format!("cannot read the partition table of {name}"));
            Failure::last(problem.caused_by(&error).hint("check the disk's cabling and health").at(name.clone()))
        })?;
        if room {
            found.push(name);
        }
    }
    if found.is_empty() {
        let names: Vec<&str> = disks.iter().map(|disk| disk.id.name.as_str()).collect();
        let message = format!("a BIOS cannot start from {}: there is no BIOS boot partition", names.join(", "));
        let hint = "add a partition with role: biosBoot to the storage action, or write table: mbr, or firmware: uefi";
        return Err(missing(ErrorCode::InvalidTemplate, message, hint));
    }
    Ok(found)
}

/// A partition of its own on a GPT; before the first one of a table of the old kind.
fn has_room(disk: &Path) -> io::Result<bool> {
    let device = RealDevice::open_read_only(disk)?;
    if let Some(table) = Findings::of(&device, device.logical_sector())?.table() {
        return Ok(table.used().any(|entry| entry.kind == *BIOS_BOOT));
    }
    let mut first = [0; 512];
    device.read_at(0, &mut first)?;
    Ok(first.ends_with(&[0x55, 0xaa]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_esp_is_where_the_new_system_mounts_fat() {
        let mounts = "/dev/vda3 / ext4 rw 0 0\n/dev/vda1 /boot/efi vfat rw 0 0\n/dev/vda9 /srv vfat rw 0 0\n";
        assert_eq!(esp(mounts).unwrap(), "/boot/efi");
        assert_eq!(esp("/dev/vda1 /boot vfat rw 0 0\n/dev/vda2 /efi vfat rw 0 0\n").unwrap(), "/efi");
        for none in ["", "/dev/vda9 /srv vfat rw 0 0\n", "/dev/vda1 /boot ext4 rw 0 0\n"] {
            let problem = esp(none).unwrap_err().problem;
            assert!(problem.code == ErrorCode::InvalidTemplate && problem.hint.contains("role: esp"), "{problem}");
        }
    }

    #[test]
    fn a_boot_folder_without_a_kernel_is_refused() {
        let boot = tempfile::tempdir().unwrap();
        fs::write(boot.path().join("config-6.1"), "").unwrap();
        let problem = has_kernel(boot.path()).unwrap_err().problem;
        assert!(problem.code == ErrorCode::NoKernel && problem.hint.contains("linux-image"), "{problem}");
        std::os::unix::fs::symlink("/nowhere", boot.path().join("vmlinuz-6.1")).unwrap();
        let problem = has_kernel(boot.path()).unwrap_err().problem;
        assert!(problem.code == ErrorCode::NoKernel && problem.message.contains("link to nowhere"), "{problem}");
        fs::write(boot.path().join("vmlinuz-6.2"), "x").unwrap();
        has_kernel(boot.path()).unwrap();
    }

    #[test]
    fn a_gpt_without_a_bios_boot_partition_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        assert!(!has_room(file.path()).unwrap());
        let mut first = [0; 512];
        first[510..].copy_from_slice(&[0x55, 0xaa]);
        fs::write(file.path(), [&first[..], &vec![0; 8 << 20]].concat()).unwrap();
        assert!(has_room(file.path()).unwrap(), "a table of the old kind");
    }
}
