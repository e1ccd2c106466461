//! What an action came to: what of it is kept for conditions and for people.

use jiff::Timestamp;
use landfall_api::message::{ActionResult, EventBody, EventRecord, WriteImageResult};
use landfall_api::{ActionOutcome, ActionState, ActionStatus, DiskReceipt, Progress, WorkflowStatus};
use uuid::Uuid;

/// An action was done. Progress is thinned on its way, so what a write came to stands in its result alone.
pub(super) fn note_result(workflow: Uuid, state: &mut WorkflowStatus, index: usize, result: &ActionResult) {
    note_outcome(state, index, result);
    if let ActionResult::WriteImage(wrote) = result
        && wrote.written
        && let Some(action) = state.action_mut(index)
    {
        action.progress = Some(Progress {
            stored_bytes: wrote.stored_bytes,
            stored_total: wrote.stored_bytes,
            raw_bytes: wrote.raw_bytes,
            raw_total: wrote.raw_bytes,
            written_bytes: wrote.written_bytes,
            bytes_per_second: wrote.raw_bytes.saturating_mul(1000) / wrote.elapsed_ms.max(1),
            stage: "done".to_owned(),
            ..Progress::default()
        });
    }
    // The image left no room: its intent gave way to it.
    if let ActionResult::WriteImage(WriteImageResult { receipt: None, .. }) = result {
        let own = |known: &DiskReceipt| {
            known.receipt.workflow_uid == workflow && known.receipt.action_index as usize == index
        };
        state.expected_receipts.retain(|known| !own(known));
    }
}

fn note_outcome(state: &mut WorkflowStatus, index: usize, result: &ActionResult) {
    let outcome = ActionOutcome::of(result);
    // Of most there is nothing to say but that they were done, which their state says.
    if let Some(action) = state.action_mut(index)
        && (outcome.status.is_some() || action.action.when.is_some())
    {
        action.outcome = Some(outcome);
    }
}

/// After a reconnect a receipt may show that an action has ended before the agent's report of it comes again. What it came to is in
/// that report alone, and conditions may name it.
pub(super) fn note_late_result(state: &mut WorkflowStatus, index: usize, record: &EventRecord) {
    let EventBody::Finished { result } = &record.body else { return };
    let unknown = |action: &ActionStatus| {
        action.state == ActionState::Succeeded && action.outcome.is_none() && action.attempt <= record.attempt
    };
    if !state.phase.is_terminal() && state.action(index).is_some_and(unknown) {
        note_outcome(state, index, result);
    }
}

/// An action's condition does not hold: it is over, without an effect.
pub(super) fn leave_out(state: &mut WorkflowStatus, index: usize, now: Timestamp) {
    if let Some(action) = state.action_mut(index) {
        action.state = ActionState::Skipped;
        action.outcome = Some(ActionOutcome::left_out());
        action.ended_at = Some(now);
        action.deadline = None;
    }
}
