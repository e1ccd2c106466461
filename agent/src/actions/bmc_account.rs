//! `bmcAccount`: sets the coordinator's account in the machine's BMC.

use landfall_api::message::ActionResult;
use landfall_api::{BmcAccount, ErrorCode, Problem};

use super::final_failure;
use crate::bmc::account::{self, AccountError};
use crate::runner::Failure;
use crate::thread::on_thread;

/// Sets it.
pub(super) async fn perform(wanted: BmcAccount) -> Result<ActionResult, Failure> {
    // A BMC that hangs takes seconds for each answer.
    let done = on_thread("bmc-account", move || account::set(&wanted).map_err(failure)).await;
    let set = done.map_err(|e| {
        final_failure(Problem::new(ErrorCode::Internal, format!("cannot start a thread for the BMC: {e}")))
    })??;
    tracing::info!("the BMC at {} has the account, as its user {}", set.address, set.user);
    Ok(ActionResult::BmcAccount(set))
}

fn failure(error: AccountError) -> Failure {
    let (code, retryable, hint) = match &error {
        // Its driver may still be loading.
        AccountError::NoDevice => (
            ErrorCode::DeviceIo,
            true,
            "check that the machine has a BMC with IPMI; its drivers are in the boot image of profile server",
        ),
        AccountError::Silent(_) => (ErrorCode::DeviceIo, true, "wait until the BMC has started, or restart it"),
        AccountError::NoAddress => {
            (ErrorCode::BmcRefused, true, "connect the BMC's port, or give it an address in the firmware's setup")
        }
        AccountError::Full(_) => {
            (ErrorCode::BmcRefused, false, "remove an account that is not used any more, at the BMC")
        }
        AccountError::Refused { .. } | AccountError::NotKept { .. } => (
            ErrorCode::BmcRefused,
            false,
            "look for the BMC's rules for accounts and passwords, or for an update of its firmware",
        ),
    };
    Failure { problem: Problem::new(code, error.to_string()).caused_by(&error).hint(hint), retryable }
}
