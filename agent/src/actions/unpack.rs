//! `unpack`: the agent mounts the installed system, and the worker of the tools layer unpacks the archive into it.

use landfall_api::{DiskFacts, ErrorCode, Problem, Unpack, message::ActionResult};

use super::chosen_disk::{is_laid_out, list, one};
use super::installed_root::{InstalledRoot, in_root};
use super::{Machine, final_failure};
use crate::runner::{Failure, Job};

/// Unpacks it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &Unpack) -> Result<ActionResult, Failure> {
    check(job, spec, &list()?)?;
    in_root(job, || InstalledRoot::open_most(machine, job, spec.disk.as_ref()))
}

/// Refuses a layout's disk by its name: the system there could start while it is filled.
pub(super) fn check(job: &Job, spec: &Unpack, disks: &[DiskFacts]) -> Result<(), Failure> {
    let before = job.run.actions.get(..job.action.action_index as usize).unwrap_or_default();
    let Some(selector) = &spec.disk else { return Ok(()) };
    if !is_laid_out(before, &one(selector, disks)?, disks) {
        return Ok(());
    }
    let message = "disk selects a disk that this list lays out, and a layout must not start while it is filled";
    let hint = "leave out the field disk, and unpack before another action writes a system";
    Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)))
}
