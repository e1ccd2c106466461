//! `unpack`: the agent mounts the installed system, and the worker of the tools layer unpacks the archive into it.

use landfall_api::{Unpack, message::ActionResult};

use super::{
    Machine,
    installed_root::{InstalledRoot, in_root},
};
use crate::runner::{Failure, Job};

/// Unpacks it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &Unpack) -> Result<ActionResult, Failure> {
    in_root(job, || InstalledRoot::open_most(machine, job, spec.disk.as_ref()))
}
