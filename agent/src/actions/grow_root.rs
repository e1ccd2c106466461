//! `growRoot`: the agent mounts the installed root, and the worker of the tools layer makes its partition and file system larger.

use landfall_api::{ErrorCode, GrowRootResult, GrowRootSpec, Problem, message::ActionResult};

use super::{
    Machine,
    chosen_disk::list,
    final_failure,
    installed_root::{InstalledRoot, may_act, means_layout},
};
use crate::{
    runner::{Failure, Job},
    worker::{self, Surroundings},
};

/// Grows it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &GrowRootSpec) -> Result<ActionResult, Failure> {
    check(job, spec)?;
    worker::ready(job, &|| may_act(job))?;
    let disks = list()?;
    let root = InstalledRoot::open(machine, job, spec.disk.as_ref(), &[])?;
    let around = Surroundings { disks, target: Some(root.path()), hidden: Vec::new(), system: root.disks.clone() };
    let done = worker::perform(job, around, &|| may_act(job));
    // Also after a failure: what was changed is on the disk then.
    let closed = root.close();
    match done? {
        ActionResult::GrowRoot(result) => Ok(ActionResult::GrowRoot(GrowRootResult { root_device: closed?, ..result })),
        other => closed.map(|_| other),
    }
}

/// The root is an image's: that of a layout has the size that its plan gives it, and every later action computes that plan again.
pub(super) fn check(job: &Job, spec: &GrowRootSpec) -> Result<(), Failure> {
    if spec.disk.is_some() || !means_layout(job) {
        return Ok(());
    }
    let message = "growRoot grows the root of an image, and this workflow's root is on a layout of its storage action";
    let hint = "remove growRoot, and write size: rest for the root's partition in the storage action";
    Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)))
}
