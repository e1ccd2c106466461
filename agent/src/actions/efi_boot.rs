//! `efiBoot`: sets UEFI's boot order for the installed disks.

use landfall_api::message::ActionResult;
use landfall_api::{BootPolicy, DiskFacts, DiskSelector, EfiBootResult, EfiBootSpec, ErrorCode, Problem};

use super::chosen_disk::list;
use super::installed_disk::written_disks;
use super::installed_root::{may_act, means_layout};
use super::{Machine, final_failure, system_disk};
use crate::efi;
use crate::runner::{Failure, Job};

/// Sets it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &EfiBootSpec) -> Result<ActionResult, Failure> {
    let policy = spec.policy;
    let none = || Ok(ActionResult::EfiBoot(EfiBootResult { policy, disks: Vec::new() }));
    if policy == BootPolicy::Leave {
        return none();
    }
    if !efi::is_ours() {
        tracing::info!("this machine was not started by UEFI: there is no boot order to set");
        return none();
    }
    let disks = system_disks(machine, job, spec.disk.as_ref())?;
    let names = disks.iter().map(|disk| disk.id.name.as_str()).collect::<Vec<_>>().join(", ");
    may_act(job)?;
    let arranged = efi::arrange(&disks.iter().collect::<Vec<_>>(), policy).map_err(|error| {
        let hint = "remove entries in the firmware's setup, where its memory is full, or put the disk there where it is to be; \
                    efiBoot with policy: leave accepts the order as it is";
        final_failure(Problem::new(ErrorCode::DeviceIo, error.to_string()).caused_by(&error).hint(hint).at(&names))
    })?;
    if arranged.is_empty() {
        let message = format!("disk {names} has no EFI system partition, from which UEFI could start");
        let hint = "install a system that UEFI starts, or remove efiBoot";
        return Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint).at(&names)));
    }
    tracing::info!("the boot order of UEFI is set for {names}: {}", policy.as_str());
    Ok(ActionResult::EfiBoot(EfiBootResult { policy, disks: arranged }))
}

/// The disk that the selector names, else what this workflow wrote: of a layout all its disks.
fn system_disks(machine: &Machine, job: &Job, selector: Option<&DiskSelector>) -> Result<Vec<DiskFacts>, Failure> {
    if selector.is_none() && means_layout(job) {
        return written_disks(machine, job);
    }
    let name = system_disk(machine, job, selector)?.name;
    Ok(list()?.into_iter().filter(|disk| disk.id.name == name).collect())
}
