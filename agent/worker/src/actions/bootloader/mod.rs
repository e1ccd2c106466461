//! `installBootloader`: the GRUB of the new system installs itself. Its programs run in its own root; what they need and what is
//! missing is looked for before the first of them runs. Doing it twice leaves what doing it once does.

mod found;

use std::{fs, io, path::Path};

use landfall_api::{
    DiskFacts, ErrorCode, InstallBootloaderResult, InstallBootloaderSpec, Problem,
    message::{ActionResult, Purpose},
};
use landfall_plan::{Source, Step};

use self::found::Grub;
use super::inside;
use crate::{Context, Failure, Layout, Reporter};

/// What is mounted in this thread's root.
const MOUNTS: &str = "/proc/thread-self/mounts";
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

/// Installs it.
pub(super) fn perform(context: &Context<'_>, spec: &InstallBootloaderSpec) -> Result<ActionResult, Failure> {
    let job = context.job;
    let layout = match &spec.disk {
        None => Layout::of_earlier(context)?.filter(Layout::has_root),
        Some(_) => None,
    };
    let names = match &job.purpose {
        Purpose::Perform { system } => system.as_slice(),
        Purpose::Open => &[],
    };
    let disks = names.iter().filter_map(|name| job.disks.iter().find(|disk| disk.id.name == *name).cloned());
    let needs = Needs {
        report: context.report,
        disks: disks.collect(),
        bios: spec.firmware.bios(job.uefi),
        uefi: spec.firmware.uefi(job.uefi),
        arguments: &spec.kernel_arguments,
        below_root: layout.as_ref().map(below_root).unwrap_or_default(),
        searched: layout.is_none(),
    };
    let links = layout.as_ref().map(links).unwrap_or_default();
    let platforms = inside::inside(context.target, &links, || needs.install())?;
    // The agent knows which device is mounted there.
    Ok(ActionResult::InstallBootloader(InstallBootloaderResult { root_device: String::new(), platforms }))
}

/// What must run before the new system can mount its root: a program that its initramfs needs, and who has it.
fn below_root(layout: &Layout<'_>) -> Vec<(&'static str, &'static str)> {
    let has = |wanted: fn(&Step) -> bool| layout.plan.steps.iter().any(wanted);
    let all = [
        (has(|step| matches!(step, Step::Raid { .. })), ("mdadm", "mdadm")),
        (has(|step| matches!(step, Step::Group { .. })), ("lvm", "lvm2")),
        (
            has(|step| matches!(step, Step::Encrypt { .. })),
            ("cryptsetup", "cryptsetup-initramfs (Debian, Ubuntu) or cryptsetup"),
        ),
    ];
    all.into_iter().filter_map(|(needed, program)| needed.then_some(program)).collect()
}

/// Identities, and the devices that have them.
fn links(layout: &Layout<'_>) -> Vec<(String, String)> {
    let mounts = layout.plan.mounts.iter().filter_map(|mount| match mount.source {
        Source::FileSystem(id) => Some((id.to_string(), layout.path(&mount.device).display().to_string())),
        Source::PartUuid(_) => None,
    });
    let encrypted = layout.plan.steps.iter().filter_map(|step| match step {
        Step::Encrypt { device, uuid, .. } => Some((uuid.to_string(), layout.path(device).display().to_string())),
        _ => None,
    });
    mounts.chain(encrypted).collect()
}

/// What is to be done. All of it is done by a thread in the new system's root.
struct Needs<'a> {
    report: &'a Reporter,
    /// The system's disks.
    disks: Vec<DiskFacts>,
    bios: bool,
    uefi: bool,
    /// Of the kernel.
    arguments: &'a [String],
    below_root: Vec<(&'static str, &'static str)>,
    /// The root was searched for on an image's disk: no plan says which identity it has.
    searched: bool,
}

/// Makes an initramfs of every kernel: program, arguments, and who has it.
const INITRAMFS: [(&str, &[&str]); 2] =
    [("update-initramfs", &["-u", "-k", "all"]), ("dracut", &["--force", "--regenerate-all", "--no-hostonly"])];

impl Needs<'_> {
    /// The platforms that are installed, for people.
    fn install(&self) -> Result<String, Failure> {
        // Nothing is changed until all of this is there.
        let grub = Grub::find()?;
        found::has_kernel(Path::new("/boot"))?;
        let mut bios = Vec::new();
        if self.bios {
            Grub::has_platform(BIOS.0, BIOS.1)?;
            bios = found::for_bios(&self.disks)?;
        }
        // This thread's: the process has another root.
        let mounts = fs::read_to_string(MOUNTS).map_err(|e| unwritten("read", MOUNTS, &e))?;
        let esp = if self.uefi {
            Grub::has_platform(UEFI.0, UEFI.1)?;
            Some(found::esp(&mounts)?)
        } else {
            None
        };
        let initramfs = self.initramfs()?;
        if !self.arguments.is_empty() && !grub.reads_folder() {
            let message = "the new system's grub-mkconfig reads no /etc/default/grub.d, where kernelArguments would go";
            let hint =
                "write the arguments with writeFile or exec as the distribution wants them, without kernelArguments";
            return Err(Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)));
        }

        if self.searched {
            // Else grub-mkconfig names the root by its kernel name, which another disk may have at the next start.
            let named = grub.root().and_then(|(uuid, device)| inside::link(&uuid, &device).map_err(|e| e.to_string()));
            if let Err(error) = named {
                self.report.warn(format_args!("the root is not named by its UUID: {error}"));
            }
        }
        self.write_defaults()?;
        if let Some((program, arguments)) = initramfs {
            self.run(&program, arguments)?;
        }
        for disk in &bios {
            self.run(&grub.install, &["--target=i386-pc", "--no-floppy", disk])?;
        }
        if let Some(esp) = esp {
            let (target, directory) = (format!("--target={}", UEFI.0), format!("--efi-directory={esp}"));
            // Its own entry is the agent's to make: the network stays first. The second one is where firmware looks on a disk
            // of which it knows nothing.
            for more in [&["--no-nvram"][..], &["--no-nvram", "--removable"]] {
                self.run(&grub.install, &[&[target.as_str(), &directory], more].concat())?;
            }
        }
        self.run(&grub.configure, &["-o", grub.configuration])?;
        let on_disks = (!bios.is_empty()).then(|| format!("{} on {}", BIOS.0, bios.join(", ")));
        let on_esp = esp.map(|esp| format!("{} in {esp}", UEFI.0));
        Ok(on_disks.into_iter().chain(on_esp).collect::<Vec<_>>().join("; "))
    }

    /// What makes the initramfs anew, where the root needs more than what it was made with.
    fn initramfs(&self) -> Result<Option<(std::path::PathBuf, &'static [&'static str])>, Failure> {
        if self.below_root.is_empty() {
            return Ok(None);
        }
        for (program, packages) in &self.below_root {
            if inside::program(program).is_none() {
                return Err(inside::no_program(program, packages));
            }
        }
        let found = INITRAMFS.iter().find_map(|(name, arguments)| Some((inside::program(name)?, *arguments)));
        found.map(Some).ok_or_else(|| inside::no_program("update-initramfs", "initramfs-tools or dracut"))
    }

    fn write_defaults(&self) -> Result<(), Failure> {
        if self.arguments.is_empty() {
            return match fs::remove_file(DEFAULTS) {
                Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    Err(unwritten("remove", DEFAULTS, &error))
                }
                _ => Ok(()),
            };
        }
        let folder = Path::new(DEFAULTS).parent().unwrap_or(Path::new("/"));
        let text = defaults(self.arguments);
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(DEFAULTS, text));
        written.map_err(|error| unwritten("write", DEFAULTS, &error))
    }

    fn run(&self, path: &Path, arguments: &[&str]) -> Result<(), Failure> {
        // LVM need not complain about pipes.
        inside::run(self.report, path, arguments, &[("LVM_SUPPRESS_FD_WARNINGS", "1")])
    }
}

/// The file that adds arguments to those of `/etc/default/grub`.
fn defaults(arguments: &[String]) -> String {
    format!(
        "# Written by Landfall from the workflow's installBootloader action.\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n",
        arguments.join(" ")
    )
}

fn unwritten(doing: &str, path: &str, error: &io::Error) -> Failure {
    let problem = Problem::new(ErrorCode::DeviceIo, format!("cannot {doing} {path} of the new system"));
    Failure::last(problem.caused_by(error).hint("check whether its root file system is full").at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_added_to_the_systems_own() {
        let text = defaults(&["console=ttyS0".into(), "quiet".into()]);
        assert!(text.ends_with("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX console=ttyS0 quiet\"\n"), "{text}");
    }
}
