//! `reboot` and `powerOff`: all written data reaches its device. The runner's caller restarts the machine after the
//! report: the event must be sent before the network goes down.

use landfall_api::message::ActionResult;

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
