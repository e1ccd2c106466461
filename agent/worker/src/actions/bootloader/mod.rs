//! `installBootloader`: the boot loader of the new system installs itself. Its programs run in its own root; what they need and what
//! is missing is looked for before the first of them runs. Doing it twice leaves what doing it once does.

mod found;
mod grub;
mod systemd_boot;
mod written;

use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::message::{ActionResult, Purpose};
use landfall_api::{DiskFacts, ErrorCode, InstallBootloaderResult, InstallBootloaderSpec, LoaderSpec, Problem};
use landfall_plan::{Source, Step};

use super::files::{Attributes, Files};
use super::inside;
use crate::{Context, Failure, Layout, Reporter};

/// What is mounted in this thread's root.
const MOUNTS: &str = "/proc/thread-self/mounts";
/// Installs it.
pub(super) fn perform(context: &Context<'_>, spec: &InstallBootloaderSpec) -> Result<ActionResult, Failure> {
    let job = context.job;
    let layout = match &spec.disk {
        None => Layout::of_earlier(context)?.filter(Layout::has_root),
        Some(_) => None,
    };
    let names = match &job.purpose {
        Purpose::Perform { system } => system.as_slice(),
        Purpose::Open | Purpose::Commit => &[],
    };
    let disks = names.iter().filter_map(|name| job.disks.iter().find(|disk| disk.id.name == *name).cloned());
    let links = layout.as_ref().map(links).unwrap_or_default();
    let needs = Needs {
        report: context.report,
        loader: spec.loader,
        disks: disks.collect(),
        bios: spec.firmware.bios(job.uefi),
        uefi: spec.firmware.uefi(job.uefi),
        arguments: &spec.kernel_arguments,
        below_root: layout.as_ref().map(below_root).unwrap_or_default(),
        searched: layout.is_none(),
        links: &links,
    };
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
    loader: LoaderSpec,
    /// The system's disks.
    disks: Vec<DiskFacts>,
    bios: bool,
    uefi: bool,
    /// Of the kernel.
    arguments: &'a [String],
    below_root: Vec<(&'static str, &'static str)>,
    /// The root was searched for on an image's disk: no plan says which identity it has.
    searched: bool,
    /// Identities of a layout, and the devices that have them.
    links: &'a [(String, String)],
}

/// Makes an initramfs of every kernel: program, arguments, and who has it.
const INITRAMFS: [(&str, &[&str]); 2] =
    [("update-initramfs", &["-u", "-k", "all"]), ("dracut", &["--force", "--regenerate-all", "--no-hostonly"])];

impl Needs<'_> {
    /// What is installed, for people.
    fn install(&self) -> Result<String, Failure> {
        match self.loader {
            LoaderSpec::Grub => grub::install(self),
            LoaderSpec::SystemdBoot => systemd_boot::install(self),
        }
    }

    /// What makes the initramfs anew, where the root needs more than what it was made with.
    fn initramfs(&self) -> Result<Option<(PathBuf, &'static [&'static str])>, Failure> {
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

    /// Whether an argument of the kernel means the root by the text of `/proc/mounts`; `probed` is what the loader knows of it.
    fn is_root(&self, mounts: &str, argument: &str, probed: &dyn Fn(&str) -> Option<String>) -> bool {
        let Some((device, ..)) = found::root(mounts) else { return false };
        let says = |kind: &str| {
            let planned = self.links.iter().filter(|(_, path)| kind == "UUID" && path == device);
            let planned = planned.map(|(uuid, _)| uuid.clone());
            planned.chain(probed(kind)).chain(found::identity(device, kind)).collect()
        };
        written::means(argument, device, &says)
    }

    fn run(&self, path: &Path, arguments: &[&str]) -> Result<(), Failure> {
        // LVM need not complain about pipes. bootctl would ask udev, which does not run here, whether the partition is the right one.
        // os-prober would mount what is on other disks.
        let more =
            [("LVM_SUPPRESS_FD_WARNINGS", "1"), ("SYSTEMD_RELAX_ESP_CHECKS", "1"), ("GRUB_DISABLE_OS_PROBER", "true")];
        inside::run(self.report, path, arguments, &more)
    }
}

/// What is mounted in the new system. This thread's: the process has another root.
fn mounts() -> Result<String, Failure> {
    fs::read_to_string(MOUNTS).map_err(|error| unwritten("read", MOUNTS, &error))
}

/// Writes a file of the system in whose root this thread is, with the SELinux label of its place.
fn put(path: &str, text: &str) -> Result<(), Failure> {
    Files::of(Path::new("/"))?.put(path, text.as_bytes(), Attributes::of_root(0o644))
}

fn unwritten(doing: &str, path: &str, error: &io::Error) -> Failure {
    let problem = Problem::new(ErrorCode::DeviceIo, format!("cannot {doing} {path} of the new system"));
    Failure::last(problem.caused_by(error).hint("check whether its root file system is full").at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_kept_from_other_disks() {
        let report = Reporter::new(io::sink());
        let needs = Needs {
            report: &report,
            loader: LoaderSpec::Grub,
            disks: Vec::new(),
            bios: true,
            uefi: false,
            arguments: &[],
            below_root: Vec::new(),
            searched: false,
            links: &[],
        };
        // A failure has the last lines that the program printed.
        let failure = needs.run(Path::new("/bin/sh"), &["-c", "env; exit 1"]).unwrap_err();
        let shown = failure.problem.last_log_lines;
        assert!(shown.iter().any(|line| line == "GRUB_DISABLE_OS_PROBER=true"), "{shown:?}");
    }
}
