//! A workflow's place among those that wait for room, in its conditions.

use jiff::Timestamp;
use landfall_api::{ConditionType as Type, Reason, Workflow};

use crate::{derive, life::waits};

/// Where a workflow that waits stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It begins as soon as its agent is there.
    Admitted,
    /// Others go first.
    Queued {
        /// From 1.
        place: usize,
        /// Installs under way: as many as may be.
        running: usize,
    },
}

/// Says where a workflow stands; of one that does not wait any more there is nothing to say.
pub fn show(workflow: &mut Workflow, standing: &Standing, now: Timestamp) {
    let at = (now, workflow.metadata.generation);
    if !waits(workflow) {
        return;
    }
    let Some(status) = &mut workflow.status else { return };
    let (admitted, reason, message) = match standing {
        Standing::Admitted => (true, Reason::Admitted, "it begins as soon as its machine's agent connects".to_owned()),
        Standing::Queued { place, running } => {
            let limit = "which is the limit of limits.parallel_installs";
            (false, Reason::Queued, format!("place {place} in the queue: {running} installs run, {limit}"))
        }
    };
    derive::set(&mut status.conditions, Type::Admitted, admitted, reason, message, at);
    derive::workflow(workflow, now);
}
