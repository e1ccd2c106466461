//! What is wanted of a machine's power.

use landfall_api::{Machine, PowerState, Workflow, WorkflowPhase};
use uuid::Uuid;

use super::attempts::open;
use crate::life::wants_agent;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: the power stays as it is.
    Nothing,
    /// The machine is to netboot for this workflow.
    Netboot(Uuid),
}

/// What is wanted of a machine, with its newest workflow. `connected`: an agent of it is there.
///
/// A machine whose agent is there is never touched. One whose workflow waits is switched on, or shut down first; one whose workflow
/// runs only if it has lost its power.
pub fn wanted(machine: &Machine, workflow: Option<&Workflow>, connected: bool, power: Option<PowerState>) -> Wanted {
    let Some(workflow) = workflow.filter(|workflow| !connected && wants_agent(machine, Some(workflow))) else {
        return Wanted::Nothing;
    };
    let (Some(uid), Some(status)) = (workflow.metadata.uid, &workflow.status) else { return Wanted::Nothing };
    // Once its power was switched on it is carried on; before that, power that has come is not ours to take.
    let begun = machine.status.as_ref().and_then(|status| status.bmc.as_ref()).and_then(open);
    let begun = begun.is_some_and(|attempt| attempt.workflow_uid == uid && attempt.on_at.is_some());
    let wants = match status.phase {
        WorkflowPhase::Pending => status.paused.is_none(),
        // A person may have switched it off to work on it.
        WorkflowPhase::Running => {
            (begun || power == Some(PowerState::Off)) && status.paused.is_none() && !machine.spec.maintenance
        }
        _ => false,
    };
    if wants { Wanted::Netboot(uid) } else { Wanted::Nothing }
}
