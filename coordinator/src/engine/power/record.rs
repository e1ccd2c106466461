//! What a look at a BMC is written into its machine's document as. Pure.

use landfall_api::{BmcStatus, Machine};
use landfall_bmc::BmcError;
use landfall_machine::power::Contact;

/// What an error says of the BMC.
pub(super) fn contact(error: &BmcError) -> Contact {
    let said = error.to_string();
    match error {
        BmcError::Unreachable { .. } => Contact::Silent(said),
        BmcError::Untrusted { .. } | BmcError::Authorities(_) => Contact::Untrusted(said),
        BmcError::Refused { .. } => Contact::Refused(said),
        BmcError::Forbidden { .. } => Contact::Forbidden(said),
        BmcError::Invalid { .. }
        | BmcError::Unsupported { .. }
        | BmcError::NotKept { .. }
        | BmcError::Failed { .. } => Contact::Invalid(said),
    }
}

/// The status of a machine's BMC, for changes.
pub(super) fn status(machine: &mut Machine) -> &mut BmcStatus {
    machine.status.get_or_insert_default().bmc.get_or_insert_default()
}
