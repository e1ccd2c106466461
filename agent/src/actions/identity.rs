//! `identity`: the agent mounts the installed system with everything below it, and the worker of the tools layer writes its files.

use landfall_api::{SystemIdentity, SystemIdentityResult, message::ActionResult};

use super::{
    Machine,
    chosen_disk::list,
    installed_root::{InstalledRoot, may_act},
};
use crate::{
    runner::{Failure, Job},
    worker::{self, Surroundings},
};

/// Writes it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &SystemIdentity) -> Result<ActionResult, Failure> {
    worker::ready(job, &|| may_act(job))?;
    let disks = list()?;
    // A program of the system makes its host keys.
    let root = InstalledRoot::open_whole(machine, job, spec.disk.as_ref())?;
    let around =
        Surroundings { disks, target: Some(root.path()), system: root.disks.clone(), ..Surroundings::default() };
    let done = worker::perform(job, around, &|| may_act(job));
    // Also after a failure: what was written is on the disk then.
    let closed = root.close();
    match done? {
        ActionResult::Identity(result) => {
            Ok(ActionResult::Identity(SystemIdentityResult { root_device: closed?, ..result }))
        }
        other => closed.map(|_| other),
    }
}
