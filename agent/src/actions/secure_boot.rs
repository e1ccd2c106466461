//! `secureBoot`: enrols the keys that the firmware is to trust.

use landfall_api::message::ActionResult;
use landfall_api::{ErrorCode, Problem, SecureBootResult, SecureBootSpec, SignedVariable};

use super::final_failure;
use crate::efi::{self, keys::KeyError};
use crate::runner::{Failure, Job};
use crate::thread::on_thread;

/// Fails where the action would: before anything of the list is done. Blocking.
pub(super) fn check(job: &Job, spec: &SecureBootSpec) -> Result<(), Failure> {
    efi::keys::check(&variables(job, spec)?).map_err(failure)
}

/// Enrols them.
pub(super) async fn perform(job: Job, spec: SecureBootSpec) -> Result<ActionResult, Failure> {
    // Firmware may take its time for each variable.
    let written = on_thread("secure-boot", move || efi::keys::enrol(&variables(&job, &spec)?).map_err(failure)).await;
    let enrolled = written.map_err(|e| {
        final_failure(Problem::new(
            ErrorCode::Internal,
            format!("cannot start a thread for the firmware's variables: {e}"),
        ))
    })??;
    tracing::info!("the firmware has the keys of Secure Boot{}", if enrolled { "" } else { " already" });
    Ok(ActionResult::SecureBoot(SecureBootResult { enrolled }))
}

/// The keys, on a machine whose firmware can have any.
fn variables(job: &Job, spec: &SecureBootSpec) -> Result<Vec<(&'static str, SignedVariable)>, Failure> {
    // Only a person in the firmware's setup undoes it, and a machine may show no picture, or start nothing, with the wrong keys.
    if !job.run.person_authorised {
        let problem = Problem::new(
            ErrorCode::Forbidden,
            "keys of Secure Boot are enrolled for a person alone, and a rule or a file requested this",
        );
        return Err(final_failure(problem.hint("start the workflow with landfall provision")));
    }
    if !efi::is_ours() {
        let problem =
            Problem::new(ErrorCode::KeysRefused, "this machine was not started by UEFI, so it has no Secure Boot");
        return Err(final_failure(problem.hint("switch the firmware from BIOS (legacy, CSM) to UEFI")));
    }
    efi::mount_variables();
    let read = |(name, text): (&'static str, &str)| {
        // The coordinator has read it, too.
        let variable = SignedVariable::parse(text);
        variable
            .map(|variable| (name, variable))
            .map_err(|e| Problem::new(ErrorCode::InvalidTemplate, format!("{name}: {e}")))
    };
    spec.variables().map(read).collect::<Result<_, _>>().map_err(final_failure)
}

fn failure(error: KeyError) -> Failure {
    let (code, hint) = match &error {
        KeyError::ReadOnly(_) | KeyError::Unreadable { .. } | KeyError::NotHeld(_) => {
            (ErrorCode::DeviceIo, "look for an update of the firmware, or enrol the keys in its setup")
        }
        KeyError::NoRoom { .. } => {
            (ErrorCode::DeviceIo, "remove entries in the firmware's setup: its memory for variables is full")
        }
        KeyError::Unknown => (ErrorCode::KeysRefused, "switch Secure Boot on in the firmware's setup, if it has it"),
        KeyError::OtherKeys("PK") => {
            (ErrorCode::KeysRefused, "clear the platform key in the firmware's setup, which leads to Setup Mode")
        }
        KeyError::OtherKeys(_) => (
            ErrorCode::KeysRefused,
            "if the platform key is another one, clear it in the firmware's setup, which leads to Setup Mode; if it is yours, the \
                system or a tool has changed this variable since, and it is no longer this action's to set",
        ),
        KeyError::Refused { .. } => (
            ErrorCode::KeysRefused,
            "each file is made for one variable, PK is signed by its own key, and none is made to be appended (sbvarsign --attr): docs/actions/secureBoot.md has the commands",
        ),
        KeyError::StillOpen => {
            (ErrorCode::KeysRefused, "look for an update of the firmware, or enrol the keys in its setup")
        }
    };
    final_failure(Problem::new(code, error.to_string()).caused_by(&error).hint(hint))
}
