//! `identity`: the agent mounts the installed system with everything below it, and the worker of the tools layer writes its files.

use landfall_api::{SystemIdentity, message::ActionResult};

use super::Machine;
use super::installed_root::{InstalledRoot, in_root};
use crate::runner::{Failure, Job};

/// Writes it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &SystemIdentity) -> Result<ActionResult, Failure> {
    // A program of the system makes its host keys.
    in_root(job, || Ok((InstalledRoot::open_whole(machine, job, spec.disk.as_ref())?, Vec::new())))
}
