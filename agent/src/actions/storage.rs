//! `storage`: the agent chooses the disks, and the worker of the tools layer lays them out.

use landfall_api::{Storage, message::ActionResult};

use super::{Machine, installed_root::may_act};
use crate::runner::{Failure, Job};
use crate::worker;
use crate::worker::Surroundings;

/// Lays the disks out.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &Storage) -> Result<ActionResult, Failure> {
    // No earlier action may have needed the layer, and the check of the list may be off.
    worker::ready(job, &|| may_act(job))?;
    // The worker chooses by the same facts. Here it is checked that no disk of this machine is missing.
    let (disks, silent) = machine.choose_all(job, spec.selectors())?;
    let around = Surroundings { disks, silent, ..Surroundings::default() };
    worker::perform(job, around, &|| may_act(job))
}

#[cfg(test)]
mod tests {
    use landfall_api::{ErrorCode, StorageSpec, message::ActionKind};

    use super::*;
    use crate::{actions::testing::job, disks::Disks};

    #[tokio::test]
    async fn the_tools_layer_is_asked_for_before_the_disks() {
        let layout = serde_json::json!({"disks": [{"partitions": [{"role": "data"}]}]});
        let spec = serde_json::from_value::<StorageSpec>(layout).unwrap().resolved();
        let machine = Machine::new(Disks::watch(None));
        let failure = perform(&machine, &job(ActionKind::Storage(spec.clone())), &spec).unwrap_err();
        assert_eq!(failure.problem.code, ErrorCode::NoToolsLayer, "{}", failure.problem);
    }
}
