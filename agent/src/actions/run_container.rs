//! `runContainer`: the agent chooses the disks and mounts the installed system where the container shows something of it; the worker of the
//! tools layer fetches the image and runs it.

use landfall_api::{RunContainer, message::ActionResult};

use super::{
    Machine,
    chosen_disk::list,
    installed_root::{InstalledRoot, may_act},
};
use crate::{
    runner::{Failure, Job},
    worker::{self, Surroundings},
};

/// Runs it. What it prints goes to the log of this action.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &RunContainer) -> Result<ActionResult, Failure> {
    worker::ready(job, &|| may_act(job))?;
    // The worker chooses by the same facts. Here it is checked that no disk of this machine is missing.
    for device in &spec.devices {
        machine.choose(job, &device.disk)?;
    }
    let disks = list()?;
    // As complete as the running system has it: what is missing would be written below where it is mounted.
    let needs_root = !spec.mounts.is_empty();
    let root = needs_root.then(|| InstalledRoot::open_whole(machine, job, spec.disk.as_ref())).transpose()?;
    let around = Surroundings {
        disks,
        target: root.as_ref().map(InstalledRoot::path),
        hidden: Vec::new(),
        system: root.as_ref().map(|root| root.disks.clone()).unwrap_or_default(),
    };
    let done = worker::perform(job, around, &|| may_act(job));
    // Also after a failure: what the program wrote is on the disk then.
    let closed = root.map_or(Ok(()), |root| root.close().map(drop));
    let done = done?;
    closed.map(|()| done)
}
