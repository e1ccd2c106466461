//! GRUB: for BIOS on every disk with room for it, for UEFI on the EFI system partition.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use landfall_api::{ErrorCode, Problem};

use super::super::inside;
use super::super::inside::{no_program, program};
use super::found::missing;
use super::{Needs, found, mounts, put, unwritten, written};
use crate::Failure;

/// The kernel's arguments, for every version of the configuration that the system makes later.
const DEFAULTS: &str = "/etc/default/grub.d/landfall.cfg";
/// Of the processor that this program is for: GRUB's platform of UEFI, and who has its files.
#[cfg(target_arch = "aarch64")]
const UEFI: (&str, &str) =
    ("arm64-efi", "grub-efi-arm64-bin (Debian, Ubuntu) or grub2-efi-aa64-modules (Fedora and its kin)");
#[cfg(not(target_arch = "aarch64"))]
const UEFI: (&str, &str) =
    ("x86_64-efi", "grub-efi-amd64-bin (Debian, Ubuntu) or grub2-efi-x64-modules (Fedora and its kin)");
const BIOS: (&str, &str) = ("i386-pc", "grub-pc-bin (Debian, Ubuntu) or grub2-pc-modules (Fedora and its kin)");

/// Installs it; its platforms, for people.
pub(super) fn install(needs: &Needs<'_>) -> Result<String, Failure> {
    // Nothing is changed until all of this is there.
    let grub = Grub::find()?;
    found::has_kernel(Path::new("/boot"))?;
    let mut bios = Vec::new();
    if needs.bios {
        Grub::has_platform(BIOS.0, BIOS.1)?;
        bios = found::for_bios(&needs.disks)?;
    }
    let mounts = mounts()?;
    let esp = if needs.uefi {
        Grub::has_platform(UEFI.0, UEFI.1)?;
        Some(found::esp(&mounts)?)
    } else {
        None
    };
    let initramfs = needs.initramfs()?;
    if !needs.arguments.is_empty() && !grub.reads_folder() {
        let message = "the new system's grub-mkconfig reads no /etc/default/grub.d, where kernelArguments would go";
        let hint = "write the arguments with writeFile or exec as the distribution wants them, without kernelArguments";
        return Err(Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)));
    }

    if needs.searched {
        // Else grub-mkconfig names the root by its kernel name, which another disk may have at the next start.
        let named = grub.root().and_then(|(uuid, device)| inside::link(&uuid, &device).map_err(|e| e.to_string()));
        if let Err(error) = named {
            needs.report.warn(format_args!("the root is not named by its UUID: {error}"));
        }
    }
    write_defaults(needs.arguments)?;
    if let Some((program, arguments)) = initramfs {
        needs.run(&program, arguments)?;
    }
    for disk in &bios {
        needs.run(&grub.install, &["--target=i386-pc", "--no-floppy", disk])?;
    }
    if let Some(esp) = esp {
        let (target, directory) = (format!("--target={}", UEFI.0), format!("--efi-directory={esp}"));
        // Its own entry is the agent's to make: the network stays first. The second one is where firmware looks on a disk
        // of which it knows nothing.
        for more in [&["--no-nvram"][..], &["--no-nvram", "--removable"]] {
            needs.run(&grub.install, &[&[target.as_str(), &directory], more].concat())?;
        }
    }
    needs.run(&grub.configure, &["-o", grub.configuration])?;
    grub.read_back(&mounts, needs, (!bios.is_empty()).then_some(BIOS.0), esp)?;
    let on_disks = (!bios.is_empty()).then(|| format!("{} on {}", BIOS.0, bios.join(", ")));
    let on_esp = esp.map(|esp| format!("{} in {esp}", UEFI.0));
    Ok(on_disks.into_iter().chain(on_esp).collect::<Vec<_>>().join("; "))
}

fn write_defaults(arguments: &[String]) -> Result<(), Failure> {
    if arguments.is_empty() {
        return match fs::remove_file(DEFAULTS) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(unwritten("remove", DEFAULTS, &error))
            }
            _ => Ok(()),
        };
    }
    put(DEFAULTS, &defaults(arguments))
}

/// The file that adds arguments to those of `/etc/default/grub`.
fn defaults(arguments: &[String]) -> String {
    format!(
        "# Written by Landfall from the workflow's installBootloader action.\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n",
        arguments.join(" ")
    )
}

/// GRUB as a distribution calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grub {
    /// `grub-install`
    install: PathBuf,
    /// `grub-mkconfig`
    configure: PathBuf,
    /// The file that the latter writes.
    configuration: &'static str,
}

impl Grub {
    /// That of the system in whose root this thread is.
    fn find() -> Result<Self, Failure> {
        for (prefix, configuration) in [("grub", "/boot/grub/grub.cfg"), ("grub2", "/boot/grub2/grub.cfg")] {
            if let Some(install) = program(&format!("{prefix}-install")) {
                let configure = program(&format!("{prefix}-mkconfig"));
                let configure = configure.ok_or_else(|| no_program(&format!("{prefix}-mkconfig"), GRUB_PACKAGES))?;
                return Ok(Self { install, configure, configuration });
            }
        }
        Err(no_program("grub-install", GRUB_PACKAGES))
    }

    /// Its files for a platform such as `i386-pc` are there.
    fn has_platform(platform: &str, packages: &str) -> Result<(), Failure> {
        let folder = Path::new("/usr/lib/grub").join(platform);
        if folder.join("modinfo.sh").exists() {
            return Ok(());
        }
        let message = format!("the new system has no {}", folder.display());
        Err(missing(ErrorCode::ProgramFailed, message, &format!("install {packages} in what is unpacked")))
    }

    /// What it wrote starts this system.
    fn read_back(&self, mounts: &str, needs: &Needs<'_>, bios: Option<&str>, esp: Option<&str>) -> Result<(), Failure> {
        let folder = Path::new(self.configuration).parent().unwrap_or(Path::new("/"));
        if let Some(platform) = bios {
            written::written(&folder.join(platform).join("core.img"))?;
        }
        if let Some(esp) = esp {
            written::written(&found::removable(esp))?;
        }
        let read = |path: &Path| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
        let path = Path::new(self.configuration);
        let config = read(path).map_err(|error| unwritten("read", self.configuration, &error))?;
        let mut entries = written::of_grub(&config);
        if written::takes_files(&config) {
            let block = read(&folder.join("grubenv")).unwrap_or_default();
            let usual = written::usual_arguments(&config, &block);
            entries.extend(written::of_folder(Path::new("/boot/loader/entries"), &usual));
        }
        let probed = |kind: &str| match kind {
            "UUID" => self.root().ok().map(|(uuid, _)| uuid),
            _ => None,
        };
        let is_root = |root: &str| needs.is_root(mounts, root, &probed);
        written::whole(&entries, self.configuration, &[Path::new("/"), Path::new("/boot")], &is_root)
    }

    /// The identity of the file system that is mounted at `/`, and its device: `grub-probe` says both, or an error of its own.
    fn root(&self) -> Result<(String, String), String> {
        let name = self.install.file_name().unwrap_or_default().to_string_lossy().replace("install", "probe");
        let probe = program(&name).ok_or_else(|| format!("the new system has no program {name}"))?;
        Ok((answer(&probe, "fs_uuid")?, answer(&probe, "device")?))
    }

    /// Whether it reads files of `/etc/default/grub.d`, as Debian's does.
    fn reads_folder(&self) -> bool {
        fs::read(&self.configure).is_ok_and(|text| String::from_utf8_lossy(&text).contains("/default/grub.d"))
    }
}

/// What `grub-probe` says of the root.
fn answer(probe: &Path, target: &str) -> Result<String, String> {
    let output = Command::new(probe).arg(format!("--target={target}")).arg("/").output();
    let output = output.map_err(|error| format!("{}: {error}", probe.display()))?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match said.trim() {
        // It becomes a file's name.
        said if output.status.success() && !said.is_empty() && (target == "device" || !said.contains('/')) => {
            Ok(said.to_owned())
        }
        _ => Err(format!("{} says of {target}: {}", probe.display(), errors.trim())),
    }
}

const GRUB_PACKAGES: &str = "grub2-common (Debian, Ubuntu) or grub2-tools (Fedora and its kin)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_added_to_the_systems_own() {
        let text = defaults(&["console=ttyS0".into(), "quiet".into()]);
        assert!(text.ends_with("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX console=ttyS0 quiet\"\n"), "{text}");
    }

    #[test]
    fn the_root_is_what_grub_probe_says() {
        let folder = tempfile::tempdir().unwrap();
        let probe = folder.path().join("grub-probe");
        let scripted = |script: &str| {
            let text = folder.path().join("text");
            fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
            // Not written here: a child of another test might hold it open, and it could not be run.
            let mut install = Command::new("install");
            assert!(install.args(["-m", "755"]).arg(&text).arg(&probe).status().unwrap().success());
        };
        scripted("test \"$2\" = / && echo of ${1#--target=}");
        assert_eq!(answer(&probe, "fs_uuid").as_deref(), Ok("of fs_uuid"));
        for (script, said) in
            [("echo no device >&2; exit 1", "no device"), ("true", "fs_uuid"), ("echo ../x", "fs_uuid")]
        {
            scripted(script);
            assert!(answer(&probe, "fs_uuid").unwrap_err().contains(said), "{script}");
        }
    }
}
