//! What interrupts an action without a failure, above all a machine that restarts in the middle of one: its agent was killed
//! for want of memory, it lost power, it was reset.
//!
//! Nothing reports that, so it shows in another boot's hello alone. It uses up no retry: the cause may be an accident. But it
//! is counted and shown, and after a bound of its own the workflow fails, or a machine that dies in each attempt would do so
//! until the deadline, which each attempt moves.

use jiff::Timestamp;
use landfall_api::{ActionStatus, ErrorCode, Problem, Restarts, WorkflowStatus};

use super::{frontier::frontier, policy};

/// How often one action may be interrupted (power, a dead session) before the workflow fails. Interruptions use up no
/// retry; without this bound an agent that dies in every attempt would try for ever.
pub const MAX_INTERRUPTIONS: u32 = 20;

/// The machine has booted again: what was under way was interrupted.
pub(super) fn note(state: &mut WorkflowStatus, boot_id: &str, now: Timestamp) {
    for index in frontier(state) {
        let Some(action) = state.action_mut(index).filter(|action| is_interrupted(action)) else { continue };
        let known = action.restarts.as_ref();
        // The same boot may ask twice before it is given the list again.
        if known.is_some_and(|known| known.boot_id == boot_id) {
            continue;
        }
        let count = known.map_or(0, |known| known.count).saturating_add(1);
        action.restarts = Some(Restarts { count, attempt: action.attempt, boot_id: boot_id.to_owned(), at: now });
    }
}

/// Whether a restart interrupts it. One that restarts the machine itself is not interrupted by that, and a hold waits for a
/// person, who may well do so.
fn is_interrupted(action: &ActionStatus) -> bool {
    action.is_under_way() && !action.holds() && !action.action.spec.info().is_last_step()
}

/// Why the action is not begun once more, if it was interrupted too often.
pub(super) fn too_many(action: &ActionStatus) -> Option<Problem> {
    restarted_too_often(action).or_else(|| was_lent(action)).or_else(|| {
        let interrupted = action.attempt.saturating_sub(action.failures) >= MAX_INTERRUPTIONS;
        let name = &action.action.name;
        let message = format!("action \"{name}\" was interrupted {MAX_INTERRUPTIONS} times and never ended");
        let hint = "the machine loses power or its agent fails in this action; read its console";
        interrupted.then(|| Problem::new(ErrorCode::LimitReached, message).hint(hint))
    })
}

fn was_lent(action: &ActionStatus) -> Option<Problem> {
    let name = &action.action.name;
    let message =
        format!("action \"{name}\" was interrupted, and what its program did to the disks it was lent is not known");
    let hint =
        "look at the disks, then continue with landfall retry; retry.maxRestarts in the template lets it run again";
    let begun = policy::runs_once(&action.action) && action.is_under_way();
    begun.then(|| Problem::new(ErrorCode::LimitReached, message).hint(hint))
}

fn restarted_too_often(action: &ActionStatus) -> Option<Problem> {
    let most = policy::max_restarts(&action.action);
    let restarts = action.restarts.as_ref().filter(|restarts| restarts.count > most)?;
    let (name, count, attempt) = (&action.action.name, restarts.count, restarts.attempt);
    let message = format!(
        "the machine restarted in the middle of action \"{name}\" for the {count}. time, now in attempt {attempt}; \
        {most} unexpected restarts are allowed"
    );
    let hint = "read its console and its BMC's log: its memory may be too small, or its power unsteady; retry.maxRestarts in \
        the template sets the bound";
    Some(Problem::new(ErrorCode::LimitReached, message).hint(hint))
}

/// The newest unexpected restart of a run, in a sentence.
pub(super) fn newest(state: &WorkflowStatus) -> Option<String> {
    let all = state.actions.iter().chain(&state.on_failure);
    let (action, restarts) = all.filter_map(|a| Some((a, a.restarts.as_ref()?))).max_by_key(|(_, r)| r.at)?;
    let (name, most) = (&action.action.name, policy::max_restarts(&action.action));
    let Restarts { count, attempt, boot_id, at } = restarts;
    Some(format!(
        "the machine restarted during attempt {attempt} of action \"{name}\" (boot {boot_id}, heard {at}): unexpected \
        restart {count} of at most {most}"
    ))
}
