//! `reboot` and `powerOff`: everything that was written reaches its device. The restart itself comes after the report, from
//! whoever started the runner: the event must be on its way before the network goes.

use landfall_session::ActionResult;

use crate::runner::Failure;

/// Syncs every file system.
pub(super) fn reboot() -> Result<ActionResult, Failure> {
    nix::unistd::sync();
    Ok(ActionResult::Reboot)
}

/// Syncs every file system.
pub(super) fn off() -> Result<ActionResult, Failure> {
    nix::unistd::sync();
    Ok(ActionResult::PowerOff)
}
