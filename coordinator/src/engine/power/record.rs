//! What an error of a BMC says of it. Pure.

use landfall_bmc::BmcError;
use landfall_machine::power::Contact;

/// What an error says of the BMC.
pub(super) fn contact(error: &BmcError) -> Contact {
    let said = error.to_string();
    match error {
        BmcError::Unreachable { .. } | BmcError::SessionEnded { .. } => Contact::Silent(said),
        BmcError::Untrusted { .. } | BmcError::Authorities(_) => Contact::Untrusted(said),
        BmcError::Refused { .. } => Contact::Refused(said),
        BmcError::Forbidden { .. } => Contact::Forbidden(said),
        BmcError::Invalid { .. }
        | BmcError::Calls(_)
        | BmcError::Unsupported { .. }
        | BmcError::NotKept { .. }
        | BmcError::ConsoleBusy { .. }
        | BmcError::ConsoleOff { .. }
        | BmcError::ConsoleEnded { .. }
        | BmcError::Answered { .. }
        | BmcError::Failed { .. } => Contact::Invalid(said),
    }
}
