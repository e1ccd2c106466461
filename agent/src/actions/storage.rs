//! `storage`: the agent chooses the disks, and the worker of the tools layer lays them out.

use landfall_api::{Storage, message::ActionResult};

use super::{Machine, chosen_disk::list, installed_root::may_act};
use crate::{
    runner::{Failure, Job},
    worker::{self, Surroundings},
};

/// Lays the disks out.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &Storage) -> Result<ActionResult, Failure> {
    // The worker chooses by the same facts. Here it is checked that no disk of this machine is missing.
    for selector in spec.selectors() {
        machine.choose(job, selector)?;
    }
    let around = Surroundings { disks: list()?, target: None, hidden: Vec::new(), system: Vec::new() };
    worker::perform(job, around, &|| may_act(job))
}
