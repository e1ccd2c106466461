//! The actions that the worker performs. The match is exhaustive: a new kind of action does not compile until this says whether
//! it is the worker's.

pub(crate) mod place;
mod spool;
mod unpack;

pub use self::unpack::perform as unpack;

use landfall_api::{
    ErrorCode, Problem,
    message::{ActionKind, ActionResult, AssignedAction},
};

use crate::{Context, Failure, storage};

/// Performs the action of the job.
///
/// # Errors
/// The action's; `Internal` for one that the agent performs itself.
pub(crate) fn perform(context: &Context<'_>, action: &AssignedAction) -> Result<ActionResult, Failure> {
    match &action.kind {
        ActionKind::Unpack(spec) => unpack::perform(context.target, &context.job.hidden, spec, context.report),
        ActionKind::Storage(spec) => storage::perform(context, spec),
        ActionKind::WriteImage(_)
        | ActionKind::CloudInit(_)
        | ActionKind::Hold(_)
        | ActionKind::Reboot(_)
        | ActionKind::PowerOff(_)
        | ActionKind::ClearDisks(_)
        | ActionKind::Kexec(_)
        | ActionKind::WriteFile(_)
        | ActionKind::Exec(_) => {
            let message = format!("action {} is one that the agent performs itself", action.name);
            let hint = "report this with the workflow's log";
            Err(Failure::last(Problem::new(ErrorCode::Internal, message).hint(hint)))
        }
    }
}
