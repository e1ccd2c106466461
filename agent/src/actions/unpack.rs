//! `unpack`: the agent mounts the installed system, and the worker of the tools layer unpacks the archive into it.

use landfall_api::{Unpack, UnpackResult, message::ActionResult};

use super::{
    Machine,
    chosen_disk::list,
    installed_root::{InstalledRoot, may_act},
};
use crate::{
    runner::{Failure, Job},
    worker::{self, Surroundings},
};

/// Unpacks it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &Unpack) -> Result<ActionResult, Failure> {
    // The disks are touched only once the layer is there.
    worker::ready(job, &|| may_act(job))?;
    let disks = list()?;
    let (root, hidden) = InstalledRoot::open_most(machine, job, spec.disk.as_ref())?;
    let around = Surroundings {
        disks,
        target: Some(root.path()),
        hidden,
        system: root.disks.clone(),
        ..Surroundings::default()
    };
    let done = worker::perform(job, around, &|| may_act(job));
    // Also after a failure: what was unpacked is on the disk then.
    let closed = root.close();
    match done? {
        ActionResult::Unpack(result) => Ok(ActionResult::Unpack(UnpackResult { root_device: closed?, ..result })),
        other => closed.map(|_| other),
    }
}
