//! `installBootloader`: the agent mounts the installed system, the worker of the tools layer runs that system's GRUB in it, and the
//! agent puts its disk into UEFI's boot order.

use std::path::Path;

use landfall_api::{DiskFacts, InstallBootloaderResult, InstallBootloaderSpec, message::ActionResult};

use super::{
    Machine,
    chosen_disk::list,
    installed_root::{InstalledRoot, may_act},
    write_image::{sets_boot_order, start_next},
};
use crate::{
    efi,
    runner::{Failure, Job},
    worker::{self, Surroundings},
};

/// Installs it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &InstallBootloaderSpec) -> Result<ActionResult, Failure> {
    worker::ready(job, &|| may_act(job))?;
    let disks = list()?;
    let root = InstalledRoot::open_whole(machine, job, spec.disk.as_ref())?;
    let system = root.disks.clone();
    let around = Surroundings {
        disks: disks.clone(),
        target: Some(root.path()),
        system: system.clone(),
        ..Surroundings::default()
    };
    let done = worker::perform(job, around, &|| may_act(job));
    // Also after a failure: what was installed is on the disk then.
    let closed = root.close();
    let done = done?;
    let root_device = closed?;
    let uefi = spec.firmware.uefi(Path::new("/sys/firmware/efi").is_dir());
    if uefi && !sets_boot_order(job) && efi::is_ours() {
        may_act(job)?;
        let of_system = |disk: &&DiskFacts| system.contains(&disk.id.name);
        start_next(&disks.iter().filter(of_system).collect::<Vec<_>>());
    }
    Ok(match done {
        ActionResult::InstallBootloader(result) => {
            ActionResult::InstallBootloader(InstallBootloaderResult { root_device, ..result })
        }
        other => other,
    })
}
