//! `installBootloader`: the agent mounts the installed system, the worker of the tools layer runs that system's GRUB in it, and the
//! agent puts its disk into UEFI's boot order.

use std::path::Path;

use landfall_api::{DiskFacts, InstallBootloaderSpec, message::ActionResult};

use super::Machine;
use super::chosen_disk::list;
use super::installed_root::{InstalledRoot, in_root, may_act};
use super::write_image::{sets_boot_order, start_next};
use crate::efi;
use crate::runner::{Failure, Job};

/// Installs it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &InstallBootloaderSpec) -> Result<ActionResult, Failure> {
    let (mut disks, mut system) = (Vec::new(), Vec::new());
    let done = in_root(job, || {
        let root = InstalledRoot::open_whole(machine, job, spec.disk.as_ref())?;
        system.clone_from(&root.disks);
        disks = list()?;
        Ok((root, Vec::new()))
    })?;
    let uefi = spec.firmware.uefi(Path::new("/sys/firmware/efi").is_dir());
    if uefi && !sets_boot_order(job) && efi::is_ours() {
        may_act(job)?;
        let of_system = |disk: &&DiskFacts| system.contains(&disk.id.name);
        start_next(&disks.iter().filter(of_system).collect::<Vec<_>>());
    }
    Ok(done)
}
