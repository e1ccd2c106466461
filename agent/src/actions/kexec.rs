//! `kexec`: finds the installed system's own kernel and loads it. The jump comes after the report and is made by the
//! runner's caller, so every failure before the jump is reported while the machine still runs the agent.

use std::path::Path;

use landfall_api::message::{ActionResult, KexecResult};
use landfall_api::{ErrorCode, KexecSpec, Problem};

use super::installed_root::{layout_system, means_layout};
use super::{Machine, final_failure, no_root, system_disk};
use crate::kexec;
use crate::kexec::Error;
use crate::rootfs::{Access, System};
use crate::runner::{Failure, Job};

/// Where the installed root is mounted meanwhile, with the action's index.
const MOUNT_POINT: &str = "/run/landfall/kexec";

/// Loads the kernel, and syncs every file system as `reboot` does.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &KexecSpec) -> Result<ActionResult, Failure> {
    let cancelled = || job.cancel.is_cancelled();
    let mount_point = format!("{MOUNT_POINT}-{}", job.action.action_index);
    let mount_point = Path::new(&mount_point);
    let mut system = if spec.disk.is_none() && means_layout(job) {
        layout_system(job, mount_point, Access::Read)?.0
    } else {
        let disk = system_disk(machine, job, spec.disk.as_ref())?;
        let name = disk.name.clone();
        System::open(disk, mount_point, Access::Read, &cancelled).map_err(|e| no_root(&e, &name))?
    };
    let device = system.root().device.display().to_string();
    let tree = system.tree().map_err(|e| {
        let problem = Problem::new(ErrorCode::DeviceIo, e.to_string()).caused_by(&e).at(&device);
        Failure { problem, retryable: true }
    })?;
    let chosen =
        kexec::choose(&mut system, &tree, spec.cmdline.as_deref(), &cancelled).map_err(|e| failure(&e, &device))?;
    let (kernel, initramfs) = chosen.paths();
    let (cmdline, from) = chosen.shown();
    tracing::info!("loading {kernel} and {initramfs} of {device}; command line from {from}: {cmdline}");
    if !job.lease.is_valid() {
        let text = "the lease ran out before the installed system's kernel was loaded";
        return Err(Failure { problem: Problem::new(ErrorCode::LeaseExpired, text), retryable: true });
    }
    chosen.load().map_err(|e| failure(&e, &device))?;
    let loaded =
        KexecResult { root_device: device, kernel: kernel.to_owned(), initramfs: initramfs.to_owned(), cmdline };
    nix::unistd::sync();
    Ok(ActionResult::Kexec(loaded))
}

fn failure(error: &Error, device: &str) -> Failure {
    let problem = |code| Problem::new(code, error.to_string()).caused_by(error);
    match error {
        Error::NotFound(_) | Error::NoBoot(_) => {
            let hint = "end the list with reboot instead, which goes through the installed system's boot loader";
            final_failure(problem(ErrorCode::NoKernel).at(device).hint(hint))
        }
        Error::Cmdline { .. } => {
            let hint = "write the whole line in the action's cmdline, or end the list with reboot instead";
            final_failure(problem(ErrorCode::KexecRefused).at(device).hint(hint))
        }
        Error::Refused { path, source } => {
            let problem = problem(ErrorCode::KexecRefused).at(format!("{device}:{path}")).hint(source.hint());
            Failure { problem, retryable: source.retryable() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_says_where_and_what_to_do_instead() {
        let looked = vec!["/vmlinuz: not there".to_owned(), "/boot/vmlinuz-*: there is none".to_owned()];
        let line = Error::Cmdline { from: "/boot/grub/grub.cfg".into(), what: "has 5000 bytes".into() };
        for (error, code, said) in [
            (Error::NotFound(looked), ErrorCode::NoKernel, "/boot/vmlinuz-*: there is none"),
            (Error::NoBoot("/etc/fstab mounts UUID=1 on /boot".into()), ErrorCode::NoKernel, "UUID=1"),
            (line, ErrorCode::KexecRefused, "/boot/grub/grub.cfg has 5000 bytes"),
        ] {
            let Failure { problem, retryable } = failure(&error, "/dev/vda3");
            assert_eq!((problem.code, problem.subject.as_str(), retryable), (code, "/dev/vda3", false));
            assert!(problem.message.contains(said) && problem.hint.contains("reboot"), "{problem}");
        }
    }
}
