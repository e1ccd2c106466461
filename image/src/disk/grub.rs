//! GRUB on both firmwares, placed without grub-install (which wants a block device and root).
//!
//! BIOS: the firmware runs `boot.img` from LBA 0, which loads one sector, whose number it has at 0x5c; that sector is
//! the first of `core.img` (`diskboot.img`), which loads the rest by the block list in its last 12 bytes. grub-setup
//! patches the same places (GRUB 2.06: util/setup.c, include/grub/i386/pc/boot.h, grub-core/boot/i386/pc/*.S).
//!
//! Both images have the prefix `(,gpt3)/boot/grub`: GRUB fills in the disk it was itself loaded from, so a second disk
//! that holds the same image (and so the same UUIDs) is never mistaken for it. Only if it has no root are others searched.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::filesystem::RootFs;
use super::layout::{Extent, ROOT_NUMBER, Sector};
use super::tools;
use super::tools::ToolError;

/// Bytes of a sector of the disks that a BIOS starts.
const SECTOR: u64 = Sector::Bytes512.bytes();
/// u64: the LBA of core.img (GRUB_BOOT_MACHINE_KERNEL_SECTOR).
const KERNEL_SECTOR: usize = 0x5c;
/// u8: the disk to load from; 0xff means the one the firmware says (GRUB_BOOT_MACHINE_BOOT_DRIVE).
const BOOT_DRIVE: usize = 0x64;
/// A jump that two NOPs replace on hard disks, for firmware that passes a wrong drive number
/// (GRUB_BOOT_MACHINE_DRIVE_CHECK).
const DRIVE_CHECK: usize = 0x66;
/// Boot code ends here; the disk signature and the partition table follow.
const BOOT_CODE: usize = 440;
/// First entry of the block list: u64 start, u16 sectors, u16 segment (struct grub_pc_bios_boot_blocklist).
const BLOCK_LIST: usize = SECTOR as usize - 12;
/// Where the rest of core.img is loaded: GRUB_BOOT_I386_PC_KERNEL_SEG + 512 / 16.
const SEGMENT: u16 = 0x820;

/// Everything the embedded configuration and a Debian grub.cfg use, so that no module file is needed on the disk.
const MODULES: &[&str] = &[
    "all_video", "cat", "configfile", "echo", "fat", "gzio", "halt", "help", "linux", "loadenv", "ls", "minicmd",
    "normal", "part_gpt", "part_msdos", "probe", "reboot", "regexp", "search", "search_fs_uuid", "search_label",
    "serial", "sleep", "terminal", "test", "true",
];
const BIOS_MODULES: &[&str] = &["biosdisk", "vga_text"];
const EFI_MODULES: &[&str] = &["efi_gop", "chain"];

/// GRUB cannot be prepared.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum GrubError {
    /// grub-mkimage failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A part of GRUB is missing.
    #[error("cannot read {path}; on Debian: apt-get install grub-pc-bin grub-efi-amd64-bin")]
    Missing {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The embedded configuration cannot be written.
    #[error("cannot write {path}")]
    Config {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The image does not have GRUB's format.
    #[error("{what} does not have the format of GRUB 2: {why}")]
    Shape { what: &'static str, why: String },
}

/// The images, ready to be placed.
#[derive(Debug)]
pub struct Grub {
    /// For a BIOS, where one can start the disk.
    pub bios: Option<Bios>,
    /// BOOTX64.EFI, on this machine.
    pub efi: PathBuf,
}

/// What a BIOS starts.
#[derive(Debug)]
pub struct Bios {
    /// For the first 440 bytes of LBA 0.
    pub boot_code: [u8; BOOT_CODE],
    /// For the beginning of the BIOS boot partition.
    pub core: Vec<u8>,
}

/// Makes the images in `work`. `platforms` holds `i386-pc` and `x86_64-efi`; `bios_place` says where core.img goes and how much
/// room it has; `root_uuid` is searched if the own disk has no root.
///
/// # Errors
/// grub-mkimage or its inputs are missing or fail.
pub fn prepare(
    platforms: &Path, work: &Path, (root_fs, root_uuid): (RootFs, uuid::Uuid), bios_place: Option<Extent>,
) -> Result<Grub, GrubError> {
    let config = work.join("early.cfg");
    // Read by GRUB's rescue parser, which knows variables but no `if`. `$root` is the own disk's, taken first as a hint.
    let mut text = format!("search.fs_uuid {root_uuid} root $root\nset prefix=($root){}/boot/grub\n", root_fs.system());
    if root_fs.system() != root_fs.flags() {
        // For grub.cfg.
        text.push_str(&format!("set system={}\nset rootflags={}\n", root_fs.system(), root_fs.flags()));
    }
    fs::write(&config, text).map_err(|source| GrubError::Config { path: config.clone(), source })?;

    let image = |format: &str, name: &str, own: &[&str]| -> Result<PathBuf, GrubError> {
        let (output, directory) = (work.join(name), platforms.join(format));
        let mut args: Vec<std::ffi::OsString> = vec!["-O".into(), format.into()];
        for (flag, path) in [("-d", &directory), ("-o", &output), ("-c", &config)] {
            args.extend([flag.into(), path.into()]);
        }
        args.extend(["-p".into(), format!("(,gpt{ROOT_NUMBER}){}/boot/grub", root_fs.system()).into()]);
        args.extend(MODULES.iter().chain(own).chain([&root_fs.grub_module()]).map(Into::into));
        tools::run("grub-mkimage", args)?;
        Ok(output)
    };
    let bios = |place: Extent| -> Result<Bios, GrubError> {
        let core = read(&image("i386-pc", "core.img", BIOS_MODULES)?)?;
        let boot = read(&platforms.join("i386-pc/boot.img"))?;
        let lba = place.first_lba(Sector::Bytes512);
        Ok(Bios { boot_code: patch_boot(&boot, lba)?, core: patch_core(core, lba, place.bytes)? })
    };
    Ok(Grub { bios: bios_place.map(bios).transpose()?, efi: image("x86_64-efi", "BOOTX64.EFI", EFI_MODULES)? })
}

fn read(path: &Path) -> Result<Vec<u8>, GrubError> {
    fs::read(path).map_err(|source| GrubError::Missing { path: path.to_owned(), source })
}

fn patch_boot(boot: &[u8], core_lba: u64) -> Result<[u8; BOOT_CODE], GrubError> {
    let shape = |why: String| GrubError::Shape { what: "boot.img", why };
    if boot.len() as u64 != SECTOR || boot[510..] != [0x55, 0xaa] {
        return Err(shape(format!("{} bytes, or no boot signature", boot.len())));
    }
    if boot[DRIVE_CHECK] != 0xeb {
        return Err(shape(format!("no jump at {DRIVE_CHECK:#x}")));
    }
    let mut code = [0; BOOT_CODE];
    code.copy_from_slice(&boot[..BOOT_CODE]);
    code[KERNEL_SECTOR..KERNEL_SECTOR + 8].copy_from_slice(&core_lba.to_le_bytes());
    code[BOOT_DRIVE] = 0xff;
    code[DRIVE_CHECK..DRIVE_CHECK + 2].fill(0x90);
    Ok(code)
}

fn patch_core(mut core: Vec<u8>, lba: u64, room: u64) -> Result<Vec<u8>, GrubError> {
    let shape = |why: String| GrubError::Shape { what: "core.img", why };
    core.resize(core.len().next_multiple_of(SECTOR as usize), 0);
    if core.len() as u64 > room {
        return Err(shape(format!("{} bytes, but the BIOS boot partition has {room}", core.len())));
    }
    let sectors = core.len() / SECTOR as usize;
    let rest = u16::try_from(sectors - 1).map_err(|_| shape(format!("{sectors} sectors are too many")))?;
    if rest == 0 || core[BLOCK_LIST + 10..SECTOR as usize] != SEGMENT.to_le_bytes() {
        return Err(shape("its first sector does not end in a block list".into()));
    }
    core[BLOCK_LIST..BLOCK_LIST + 8].copy_from_slice(&(lba + 1).to_le_bytes());
    core[BLOCK_LIST + 8..BLOCK_LIST + 10].copy_from_slice(&rest.to_le_bytes());
    Ok(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> Vec<u8> {
        let mut boot = vec![0x11; 512];
        boot[DRIVE_CHECK] = 0xeb;
        boot[510..].copy_from_slice(&[0x55, 0xaa]);
        boot
    }

    #[test]
    fn boot_code_points_at_core_and_uses_the_firmwares_drive() {
        let code = patch_boot(&boot(), 2048).unwrap();
        assert_eq!(code[0x5c..0x64], [0, 8, 0, 0, 0, 0, 0, 0]);
        assert_eq!((code[0x64], &code[0x66..0x68], code[0x68]), (0xff, &[0x90, 0x90][..], 0x11));
    }

    #[test]
    fn core_points_at_its_own_rest() {
        let mut core = vec![0; 512 * 3 - 100];
        core[510..512].copy_from_slice(&SEGMENT.to_le_bytes());
        let core = patch_core(core, 2048, 1 << 20).unwrap();
        assert_eq!(core.len(), 512 * 3);
        assert_eq!(core[500..512], [1, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0x20, 0x08]);
    }

    #[test]
    fn images_of_another_shape_and_without_room_are_refused() {
        let mut no_jump = boot();
        no_jump[DRIVE_CHECK] = 0;
        assert!(patch_boot(&no_jump, 1).is_err());
        assert!(patch_boot(&boot()[..511], 1).is_err());
        assert!(patch_core(vec![0; 1024], 1, 1 << 20).is_err());
        let mut large = vec![0; 4096];
        large[510..512].copy_from_slice(&SEGMENT.to_le_bytes());
        assert!(patch_core(large, 1, 2048).is_err());
    }
}
