//! A boot medium: an ISO 9660 image with the kernel and the boot image that BIOS and UEFI start from a CD, a BMC's virtual CD, or a USB
//! stick that it is copied to. With a kernel for arm64, whose firmware is UEFI alone, it is for arm64 machines.
//!
//! GRUB starts the kernel; `xorriso` writes the file, as `grub-mkrescue` has it do. The same input gives the same bytes.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::arch::Arch;
use crate::disk::tools::{ToolError, run};
use crate::output::{AtomicFile, OutputError, Scratch};

/// The volume's name, by which GRUB finds it again.
const LABEL: &str = "LANDFALL";
/// Everything the menu uses: no module file is needed on the medium.
const MODULES: &[&str] = &[
    "all_video", "cat", "configfile", "echo", "fat", "gzio", "halt", "iso9660", "linux", "ls", "minicmd", "normal",
    "part_gpt", "part_msdos", "reboot", "search", "search_label", "serial", "sleep", "terminal", "test", "true",
];
const BIOS_MODULES: &[&str] = &["biosdisk", "vga_text"];
const EFI_MODULES: &[&str] = &["efi_gop"];
/// KiB of the EFI system partition: the largest floppy, the one size without a partition table that every firmware knows.
const ESP_KIB: u64 = 2880;
/// The times in the volume, and the identifier that GPT takes from them: 2020, as in everything made here.
const DATE: &str = "2020010100000000";
const DISK_GUID: &str = "6c616e6466616c6c69736f206d656469";
const ESP_SERIAL: &str = "4c46490a";

/// What a medium is made of.
#[derive(Debug, Clone, Copy)]
pub struct Recipe<'a> {
    /// The kernel.
    pub kernel: &'a Path,
    /// The boot image.
    pub initramfs: &'a Path,
    /// The kernel's command line: one line, without what GRUB would interpret.
    pub command_line: &'a str,
    /// GRUB's platform directories (i386-pc and x86_64-efi, or arm64-efi).
    pub grub: &'a Path,
}

/// The medium cannot be made.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum IsoError {
    /// The command line cannot stand in GRUB's menu.
    #[error("the command line has {0:?}, which GRUB would interpret; leave it out")]
    CommandLine(char),
    /// GRUB would not start it, or its processor is not known.
    #[error("{0} is no kernel for x86-64 or arm64; one that is compressed with gzip must be unpacked")]
    Kernel(PathBuf),
    /// grub-mkimage, mtools or xorriso failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A part cannot be put in place.
    #[error("cannot {doing} {path}")]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Makes the medium; its bytes.
///
/// # Errors
/// [`IsoError`]; `output` is untouched then.
pub fn build(recipe: &Recipe<'_>, output: &Path) -> Result<u64, IsoError> {
    // The grammar of GRUB's shell, and what would end the line.
    let special = |c: &char| c.is_control() || "\"'\\$;&|<>{}#".contains(*c);
    if let Some(c) = recipe.command_line.chars().find(special) {
        return Err(IsoError::CommandLine(c));
    }
    let mut file = AtomicFile::create(output)?;
    let stage = Scratch::beside(output)?;
    let [tree, early] = ["tree", "early.cfg"].map(|name| stage.path().join(name));
    let place = |doing, path: &Path, done: io::Result<()>| {
        done.map_err(|source| IsoError::File { doing, path: path.to_owned(), source })
    };
    for directory in [tree.join("landfall"), tree.join("boot/grub")] {
        place("make", &directory, fs::create_dir_all(&directory))?;
    }
    for (from, to) in [(recipe.kernel, "vmlinuz"), (recipe.initramfs, "initramfs")] {
        place("copy", from, fs::copy(from, tree.join("landfall").join(to)).map(drop))?;
    }
    let kernel = fs::read(recipe.kernel);
    let kernel = kernel.map_err(|source| IsoError::File { doing: "read", path: recipe.kernel.to_owned(), source })?;
    // GRUB starts a kernel for x86 that is no EFI program too: "HdrS" (Linux, Documentation/arch/x86/boot.rst).
    let x86 = kernel.get(0x202..0x206) == Some(b"HdrS");
    let arch = Arch::of_program(&kernel).or(x86.then_some(Arch::X86_64));
    let arch = arch.ok_or_else(|| IsoError::Kernel(recipe.kernel.to_owned()))?;
    let menu = tree.join("boot/grub/grub.cfg");
    place("write", &menu, fs::write(&menu, menu_of(recipe.command_line)))?;
    // Read by GRUB's rescue parser. The volume is looked for by its name: of a CD, a stick and a virtual CD GRUB sees different disks.
    let find = format!(
        "search --no-floppy --set=root --label {LABEL}\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n"
    );
    place("write", &early, fs::write(&early, find))?;

    let grub = |format: &str, platform: &str, output: &Path, own: &[&str]| {
        let directory = recipe.grub.join(platform);
        let mut args: Vec<std::ffi::OsString> = ["-O", format, "-p", "/boot/grub"].map(Into::into).to_vec();
        for (flag, path) in [("-d", directory.as_path()), ("-o", output), ("-c", early.as_path())] {
            args.extend([flag.into(), path.into()]);
        }
        args.extend(MODULES.iter().chain(own).map(Into::into));
        run("grub-mkimage", args)
    };
    // UEFI 2.10, table 3.3: what firmware starts from a medium.
    let (platform, name) = match arch {
        Arch::X86_64 => ("x86_64-efi", "BOOTX64.EFI"),
        Arch::Arm64 => ("arm64-efi", "BOOTAA64.EFI"),
    };
    let (efi, esp) = (stage.path().join(name), tree.join("boot/grub/efi.img"));
    grub(platform, platform, &efi, EFI_MODULES)?;
    let boot_sector = recipe.grub.join("i386-pc/boot_hybrid.img");
    let boot_sector = (arch == Arch::X86_64).then_some(boot_sector.as_path());
    if boot_sector.is_some() {
        grub("i386-pc-eltorito", "i386-pc", &tree.join("boot/grub/eltorito.img"), BIOS_MODULES)?;
    }
    place("make", &esp, fs::File::create(&esp).and_then(|file| file.set_len(ESP_KIB << 10)))?;
    let (esp, efi) = (esp.display().to_string(), efi.display().to_string());
    run("mformat", ["-i", &esp, "-f", &ESP_KIB.to_string(), "-N", ESP_SERIAL, "-v", "ESP", "::"])?;
    run("mmd", ["-i", &esp, "::EFI", "::EFI/BOOT"])?;
    run("mcopy", ["-i", &esp, &efi, &format!("::EFI/BOOT/{name}")])?;

    let path = file.temporary().to_owned();
    run("xorriso", xorriso(&tree, &path, boot_sector))?;
    let opened = file.file().and_then(|file| file.metadata());
    let bytes = opened.map_err(|source| IsoError::File { doing: "read", path, source })?.len();
    file.commit()?;
    Ok(bytes)
}

/// El Torito for a CD on BIOS (GRUB) and UEFI (the EFI system partition); a boot sector and GPT for the same file on a stick. Without
/// a boot sector BIOS is left out.
fn xorriso(tree: &Path, output: &Path, boot_sector: Option<&Path>) -> Vec<std::ffi::OsString> {
    let modified = format!("--modification-date={DATE}");
    let mut args: Vec<std::ffi::OsString> = Vec::new();
    let mut add =
        |words: &[&dyn AsRef<std::ffi::OsStr>]| args.extend(words.iter().map(|word| word.as_ref().to_owned()));
    add(&[&"-as", &"mkisofs", &"-quiet", &"-o", &output, &"-V", &LABEL, &"-r", &"-J"]);
    add(&[&modified, &"--set_all_file_dates", &DATE, &"--gpt_disk_guid", &DISK_GUID]);
    if let Some(boot_sector) = boot_sector {
        add(&[&"-b", &"boot/grub/eltorito.img", &"-no-emul-boot", &"-boot-load-size", &"4", &"-boot-info-table"]);
        add(&[&"--grub2-boot-info", &"--grub2-mbr", &boot_sector, &"-eltorito-alt-boot"]);
    }
    add(&[&"--protective-msdos-label", &"-partition_cyl_align", &"off"]);
    add(&[&"-e", &"boot/grub/efi.img", &"-no-emul-boot", &"-efi-boot-part", &"--efi-boot-image"]);
    add(&[&tree]);
    args
}

/// It starts the kernel at once: there is nothing to choose. The first serial port shows what the screen does.
fn menu_of(command_line: &str) -> String {
    format!(
        "if serial --unit=0 --speed=115200; then\n  terminal_input console serial\n  terminal_output console serial\nfi\n\
         echo \"Landfall: loading the agent from this medium\"\n\
         linux /landfall/vmlinuz {command_line}\ninitrd /landfall/initramfs\nboot\n\
         echo \"Landfall: the agent did not start; restarting in 30 seconds\"\nsleep 30\nreboot\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::Archive;
    use crate::inspect::{Report, inspect};

    fn made_of(directory: &Path) -> Option<[PathBuf; 2]> {
        let have = |program: &str| std::process::Command::new(program).arg("--version").output().is_ok();
        if !["xorriso", "grub-mkimage", "mformat"].into_iter().all(have) || !Path::new("/usr/lib/grub/i386-pc").is_dir()
        {
            eprintln!("SKIPPED: needs xorriso, mtools and GRUB");
            return None;
        }
        let parts = ["kernel", "initramfs"].map(|name| directory.join(name));
        let mut kernel = vec![0; 0x202];
        kernel.extend(b"HdrS");
        fs::write(&parts[0], kernel).unwrap();
        fs::write(&parts[1], Archive::new().write_to(Vec::new()).unwrap()).unwrap();
        Some(parts)
    }

    #[test]
    fn the_same_input_gives_the_same_medium() {
        let directory = tempfile::tempdir().unwrap();
        let Some([kernel, initramfs]) = made_of(directory.path()) else { return };
        let recipe = Recipe {
            kernel: &kernel,
            initramfs: &initramfs,
            command_line: "console=ttyS0 landfall.net=eth0,vlan=7,route=10.0.0.0/8@192.0.2.1",
            grub: Path::new("/usr/lib/grub"),
        };
        let [one, two] = ["one.iso", "two.iso"].map(|name| directory.path().join(name));
        let bytes = build(&recipe, &one).unwrap();
        // Another modification time must not change the result.
        fs::File::options().append(true).open(&kernel).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        build(&recipe, &two).unwrap();
        let iso = fs::read(&one).unwrap();
        assert!(iso == fs::read(&two).unwrap() && iso.len() as u64 == bytes);
        // A boot sector and GPT for sticks, a volume and El Torito for CDs.
        assert_eq!((&iso[510..512], &iso[512..520]), (&[0x55, 0xaa][..], &b"EFI PART"[..]));
        assert_eq!((&iso[0x8001..0x8006], &iso[0x8801..0x8806]), (&b"CD001"[..], &b"CD001"[..]));
        assert!(iso.windows(recipe.command_line.len()).any(|at| at == recipe.command_line.as_bytes()));
        let Report::Medium(seen) = inspect(&one).unwrap() else { panic!("not seen as a medium") };
        assert_eq!((seen.command_line.as_str(), seen.stored_bytes), (recipe.command_line, bytes));
        let Report::Initramfs { sizes, .. } = seen.initramfs else { panic!("no initramfs is in it") };
        assert_eq!(sizes.stored_bytes, fs::metadata(&initramfs).unwrap().len());
        // No stage is left.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
    }

    #[test]
    fn what_grub_would_interpret_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (line, found) in
            [("a=$b", '$'), ("a\nreboot", '\n'), ("a; reboot", ';'), ("a=\"b c\"", '"'), ("a # b", '#')]
        {
            let missing = directory.path().join("missing");
            let recipe = Recipe { kernel: &missing, initramfs: &missing, command_line: line, grub: &missing };
            let error = build(&recipe, &directory.path().join("out.iso")).unwrap_err();
            assert!(matches!(error, IsoError::CommandLine(c) if c == found), "{error}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_or_wrong_part_leaves_no_output() {
        let directory = tempfile::tempdir().unwrap();
        let Some([kernel, initramfs]) = made_of(directory.path()) else { return };
        let missing = directory.path().join("missing");
        let recipe =
            Recipe { kernel: &kernel, initramfs: &missing, command_line: "", grub: Path::new("/usr/lib/grub") };
        let error = build(&recipe, &directory.path().join("out.iso")).unwrap_err();
        assert!(error.to_string().contains("cannot copy") && error.to_string().contains("missing"), "{error}");
        // The boot image in the kernel's place.
        let recipe = Recipe { kernel: &initramfs, initramfs: &initramfs, ..recipe };
        let error = build(&recipe, &directory.path().join("out.iso")).unwrap_err();
        assert!(matches!(&error, IsoError::Kernel(path) if *path == initramfs), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
