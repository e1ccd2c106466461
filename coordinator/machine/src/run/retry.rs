//! A run that takes over another's work at the action that failed.
//!
//! Terminal states never change, so this is a run of its own, with the same pinned list, and a person asked for it. What
//! had succeeded is taken over; a write that may have succeeded is judged by its receipt: where the disk is known to
//! carry `done`, nothing of it is done again, and where that is found only when the agent comes, the state machine
//! takes it over then, because the receipts of the runs it takes over count as its own.

use landfall_api::{
    ActionOutcome, ActionSpec, ActionState, ActionStatus, DiskReceipt, ErrorCode, Problem, Workflow, WorkflowPhase,
    WorkflowStatus,
};

use super::frontier::is_write;
use super::receipts::{is_done, open_at_phone_home, waits_for_phone_home};

/// Runs in one chain. Each is a person's request; more means that the list itself is wrong.
const MAX_CHAIN: usize = 16;

/// Refuses a retry that would wait in vain for a phone-home: the system that the run installed has phoned home for the last time, and its
/// unit has removed itself.
///
/// # Errors
/// [`Problem`] with code `WorkflowEnded`.
pub fn still_phones_home(failed: &Workflow) -> Result<(), Problem> {
    let (name, status) = (&failed.metadata.name, failed.status.as_ref());
    // A seed that is still to be written brings another unit.
    let is_seed = |action: &&ActionStatus| matches!(action.action.spec, ActionSpec::CloudInit(_));
    let waits = |status: &&WorkflowStatus| {
        waits_for_phone_home(status) && status.actions.iter().filter(is_seed).all(ActionStatus::is_over)
    };
    // As it was judged then.
    let last = status
        .filter(waits)
        .and_then(|status| status.phoned_home_at.filter(|at| open_at_phone_home(status, *at).is_none()));
    let Some(at) = last else { return Ok(()) };
    let message = format!(
        "the system that workflow \"{name}\" installed phoned home {at} and does not do so again: a retry would wait for it in vain"
    );
    let hint = "start a new workflow with landfall provision";
    Err(Problem::new(ErrorCode::WorkflowEnded, message).hint(hint).at(format!("Workflow/{name}")))
}

/// The status of a run that goes on where `failed` stopped. `receipts` are those believed to be on the machine.
///
/// # Errors
/// [`Problem`] with code `WorkflowEnded` if there is nothing to go on with (it succeeded, or nothing failed), `Conflict`
/// if it has not ended, `LimitReached` after very many retries of retries.
pub fn retry_of(
    failed: &Workflow, machine_generation: u64, receipts: Vec<DiskReceipt>,
) -> Result<WorkflowStatus, Problem> {
    let name = &failed.metadata.name;
    let refuse =
        |code, message: String, hint: &str| Err(Problem::new(code, message).hint(hint).at(format!("Workflow/{name}")));
    let (Some(status), Some(uid)) = (&failed.status, failed.metadata.uid) else {
        return refuse(ErrorCode::Internal, format!("workflow \"{name}\" was stored without a status"), "");
    };
    let again = "start a new workflow with landfall provision";
    match status.phase {
        WorkflowPhase::Failed | WorkflowPhase::Cancelled => {}
        WorkflowPhase::Succeeded => {
            return refuse(ErrorCode::WorkflowEnded, format!("workflow \"{name}\" has succeeded"), again);
        }
        WorkflowPhase::Pending | WorkflowPhase::Running | WorkflowPhase::Rebooting => {
            let hint = "wait for its end, or stop it with landfall cancel";
            return refuse(ErrorCode::Conflict, format!("workflow \"{name}\" has not ended"), hint);
        }
    }
    if status.actions.iter().all(ActionStatus::is_over) {
        let message = format!("every action of workflow \"{name}\" has been done; only the phone-home is missing");
        return refuse(ErrorCode::WorkflowEnded, message, "read the machine's console; a late phone-home still counts");
    }
    if status.takes_over.len() >= MAX_CHAIN {
        return refuse(ErrorCode::LimitReached, format!("this is the {MAX_CHAIN}th retry in a row"), again);
    }
    let committed = |index: usize, action: &ActionStatus| {
        let known = |r: &DiskReceipt| {
            let own = r.receipt.workflow_uid == uid || status.takes_over.contains(&r.receipt.workflow_uid);
            own && is_done(r) && r.receipt.action_index as usize == index
        };
        is_write(action) && status.expected_receipts.iter().any(known)
    };
    let taken = |(index, old): (usize, &ActionStatus)| {
        if old.is_over() || committed(index, old) {
            ActionStatus {
                state: if old.is_left_out() { ActionState::Skipped } else { ActionState::Succeeded },
                taken_over: true,
                outcome: old.known_outcome().or_else(|| committed(index, old).then(ActionOutcome::done)),
                started_at: old.started_at,
                ended_at: old.ended_at,
                progress: old.progress.clone(),
                ..ActionStatus::pending(old.action.clone())
            }
        } else {
            ActionStatus::pending(old.action.clone())
        }
    };
    Ok(WorkflowStatus {
        actions: status.actions.iter().enumerate().map(taken).collect(),
        on_failure: status.on_failure.iter().map(|a| ActionStatus::pending(a.action.clone())).collect(),
        timeout: status.timeout,
        success_on: status.success_on,
        precheck: status.precheck,
        left_out: status.left_out.clone(),
        takes_over: std::iter::once(uid).chain(status.takes_over.iter().copied()).collect(),
        machine_generation,
        prompt: status.prompt.clone(),
        expected_receipts: receipts,
        ..WorkflowStatus::default()
    })
}
