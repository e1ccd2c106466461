//! What a person reads when the tools layer or its worker fails.

use landfall_api::{ErrorCode, Problem};
use landfall_disk::WriteError;

use super::layer::{LayerError, MadeFor};
use super::process::Silent;
use super::relay::RelayError;
use crate::inside::{Ended, RunError};
use crate::runner::Failure;

/// Both are made from one release.
const REBUILD: &str =
    "make the tools layer anew with scripts/tools-layer of the boot image's release, and reload the coordinator";
const REBUILD_FOR_KERNEL: &str = "make the tools layer anew with scripts/tools-layer, from the boot image's kernel package, and reload the coordinator";
/// The coordinator gives a machine whose processor it does not know yet the only layer that it has, or that for x86-64.
const OTHER_PROCESSOR: &str = "name the layer for this processor in the coordinator's configuration (x86-64: boot.tools, arm64: \
    boot.arm64.tools) and reload it; then retry the workflow: landfall retry";
const REPLACED: &str = "the tools layer was replaced after the coordinator had read it: reload the coordinator unless that was done, then retry \
    the workflow: landfall retry";
const KILLED: &str = "the machine may have had too little memory for it; its last lines of output may say more";
const READ_ON: &str = "its last lines of output say more; report this if they do not explain it";

/// The assignment names no layer.
pub(super) fn not_named() -> Failure {
    let message = "the coordinator names no tools layer for this action";
    let hint = "name one as boot.tools in the coordinator's configuration, reload, and provision again";
    Failure { problem: Problem::new(ErrorCode::NoToolsLayer, message).hint(hint), retryable: false }
}

/// The worker did something else than it was started for.
pub(super) fn not_asked() -> Failure {
    let problem = Problem::new(ErrorCode::Internal, "the worker of the tools layer answered another question");
    Failure { problem: problem.hint(REBUILD), retryable: false }
}

/// The layer is not there.
pub(super) fn no_layer(error: &LayerError, url: &str) -> Failure {
    let problem = |code| Problem::new(code, error.to_string()).caused_by(error).at(url);
    match error {
        LayerError::Memory(_) => {
            let hint = "give the machine more memory, or make a layer with fewer programs";
            Failure { problem: problem(ErrorCode::NotEnoughMemory).hint(hint), retryable: false }
        }
        LayerError::Fetch(cause) if is_gone(cause) => {
            Failure { problem: problem(ErrorCode::NoToolsLayer).hint(REPLACED), retryable: false }
        }
        LayerError::Fetch(cause) => {
            let said = cause.problem();
            let hint = match said.code {
                ErrorCode::DigestMismatch => REPLACED,
                _ => "check that the machine reaches the coordinator's HTTP port",
            };
            Failure { problem: problem(said.code).hint(hint), retryable: cause.retryable() }
        }
        LayerError::Size { .. } => {
            Failure { problem: problem(ErrorCode::NoToolsLayer).hint(REPLACED), retryable: false }
        }
        LayerError::Unmarked(_) => {
            Failure { problem: problem(ErrorCode::NoToolsLayer).hint(REBUILD), retryable: false }
        }
        LayerError::Other { what, .. } => {
            let hint = match what {
                MadeFor::Processor => OTHER_PROCESSOR,
                MadeFor::Kernel => REBUILD_FOR_KERNEL,
                MadeFor::Protocol => REBUILD,
            };
            Failure { problem: problem(ErrorCode::VersionSkew).hint(hint), retryable: false }
        }
        LayerError::Kernel { .. } => {
            let hint = "read the kernel's lines on the machine's console";
            Failure { problem: problem(ErrorCode::NoToolsLayer).hint(hint), retryable: false }
        }
        LayerError::Stopped => Failure { problem: problem(ErrorCode::Cancelled), retryable: false },
    }
}

/// No coordinator has it any more. The digest is in its address: another layer has another one.
fn is_gone(cause: &WriteError) -> bool {
    match cause {
        WriteError::Status { status, .. } => status.starts_with("404") || status.starts_with("410"),
        WriteError::NoMirror { failures, .. } => failures.iter().all(is_gone),
        _ => false,
    }
}

/// The worker did not say what came of the action.
pub(super) fn silent(silent: &Silent) -> Failure {
    let (error, ended) = match silent {
        Silent::NotRun(error) => {
            let hint = "the agent's kernel must have PID namespaces and devtmpfs, as Debian's has";
            let message = format!("cannot run the worker of the tools layer: {error}");
            let problem = Problem::new(ErrorCode::ProgramFailed, message);
            let retryable = matches!(error, RunError::Follow(_));
            return Failure { problem: problem.caused_by(error).hint(hint), retryable };
        }
        Silent::Ended(error, ended) => (error, ended),
    };
    let failure = |code, message: String, hint: &str, retryable| Failure {
        problem: Problem::new(code, message).caused_by(error).hint(hint),
        retryable,
    };
    match (error, ended) {
        (RelayError::OtherRevision { .. } | RelayError::NotReady, _) => {
            failure(ErrorCode::VersionSkew, error.to_string(), REBUILD, false)
        }
        // The agent ended it because of what it said.
        (_, Ended::Stopped) => failure(ErrorCode::ProgramFailed, error.to_string(), READ_ON, true),
        // It keeps nothing, and begins again from what is on the disks.
        (_, ended) => {
            let killed = matches!(ended, Ended::Signal(9) | Ended::Code(137));
            let message = format!("the worker of the tools layer {ended} without a result");
            failure(ErrorCode::ProgramFailed, message, if killed { KILLED } else { READ_ON }, true)
        }
    }
}
