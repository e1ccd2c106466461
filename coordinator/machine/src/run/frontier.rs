//! Where a run stands: the actions that are to be done now, one for each branch of the present stage.

use landfall_api::{ActionStatus, Stage, WorkflowStatus, stages};

/// Indices of the actions to be done now, in the list's order; empty when nothing is left.
pub fn frontier(state: &WorkflowStatus) -> Vec<usize> {
    let open = |index: &usize| state.action(*index).is_some_and(|a| !a.is_over());
    if state.ending.is_some() {
        let main = state.actions.len();
        return (main..main + state.on_failure.len()).find(open).into_iter().collect();
    }
    // Most lists have no branches: one lane, and nothing to lay out.
    if state.actions.iter().all(|a| a.action.branch.is_none()) {
        return (0..state.actions.len()).find(open).into_iter().collect();
    }
    let first = |stage: &Stage| stage.lanes.iter().filter_map(|lane| lane.iter().copied().find(open)).collect();
    let mut at: Vec<usize> =
        all_stages(state).iter().map(first).find(|at: &Vec<usize>| !at.is_empty()).unwrap_or_default();
    at.sort_unstable();
    at
}

/// Everything that must have succeeded for the action at `index` to have begun, and itself.
pub(super) fn up_to(state: &WorkflowStatus, index: usize) -> Vec<usize> {
    let mut out = Vec::new();
    for stage in all_stages(state) {
        if let Some(lane) = stage.lanes.iter().find(|lane| lane.contains(&index)) {
            out.extend(lane.iter().copied().take_while(|n| *n <= index));
            break;
        }
        out.extend(stage.span());
    }
    out
}

fn all_stages(state: &WorkflowStatus) -> Vec<Stage> {
    stages(state.actions.iter().map(|a| a.action.branch.as_deref()))
}

/// The protocol revision an agent must speak to do this run; `agent.proto` says what came with which.
pub(super) fn needs(state: &WorkflowStatus) -> u32 {
    let of_actions = state.actions.iter().chain(&state.on_failure).map(|a| a.action.protocol()).max();
    let branches = state.actions.iter().any(|a| a.action.branch.is_some());
    let of_list = if branches || !state.on_failure.is_empty() || !state.takes_over.is_empty() { 2 } else { 1 };
    of_actions.unwrap_or(1).max(of_list)
}

pub(super) fn is_write(action: &ActionStatus) -> bool {
    action.action.spec.info().writes_image
}
