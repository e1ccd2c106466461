//! What a machine's document says of who claims to be it: alarms, and keys that wait for a person.

use jiff::Timestamp;
use landfall_api::{ApprovedKey, ConditionStatus, ConditionType as Type, Machine, Reason, WaitingKey, Workflow};

use crate::derive;

/// Whether another computer claims the machine's identity, as far as is known.
pub fn has_alarm(machine: &Machine) -> bool {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    derive::holds(conditions, &Type::IdentityAmbiguous)
}

/// Whether that was said with this very reason and message.
pub fn has_this_alarm(machine: &Machine, reason: &Reason, message: &str) -> bool {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    derive::find(conditions, &Type::IdentityAmbiguous).is_some_and(|known| {
        known.status == ConditionStatus::True && known.reason == *reason && known.message == message
    })
}

/// Says that another computer claims the machine's identity. That two computers ask for the session takes no other reason's
/// place: the next hello settles it, and the other is evidence that only a person clears.
pub fn alarm(machine: &mut Machine, reason: Reason, message: String, now: Timestamp) {
    let at = (now, machine.metadata.generation);
    let status = machine.status.get_or_insert_default();
    let known = derive::find(&status.conditions, &Type::IdentityAmbiguous);
    let lasts =
        known.is_some_and(|known| known.status == ConditionStatus::True && known.reason != Reason::TwoComputers);
    if lasts && reason == Reason::TwoComputers {
        return;
    }
    derive::set(&mut status.conditions, Type::IdentityAmbiguous, true, reason, message, at);
}

/// These keys wait for a person.
pub fn await_approval(machine: &mut Machine, waiting: Vec<WaitingKey>, now: Timestamp) {
    let at = (now, machine.metadata.generation);
    let name = &machine.metadata.name;
    let message = format!("compare the fingerprint on the console, then: landfall approve {name} FINGERPRINT");
    let status = machine.status.get_or_insert_default();
    status.enrolment.waiting = waiting;
    derive::set(&mut status.conditions, Type::AwaitingApproval, true, Reason::KeyWaits, message, at);
}

/// A person approved a key, and no other waits any more.
pub fn approve(machine: &mut Machine, approved: ApprovedKey, workflow: Option<&Workflow>) {
    let (now, generation) = (approved.at, machine.metadata.generation);
    let status = machine.status.get_or_insert_default();
    let message = format!("by {}", approved.by);
    status.enrolment.waiting.clear();
    status.enrolment.approved = Some(approved);
    let conditions = &mut status.conditions;
    derive::set(conditions, Type::AwaitingApproval, false, Reason::Approved, message, (now, generation));
    derive::conditions(machine, workflow, now);
}

#[cfg(test)]
mod tests {
    use landfall_api::{API_VERSION, Kind, MachineSpec, Metadata};

    use super::*;

    #[test]
    fn two_computers_hide_no_stolen_token() {
        let mut machine = Machine {
            api_version: API_VERSION.into(),
            kind: Kind::Machine,
            metadata: Metadata::default(),
            spec: MachineSpec::default(),
            status: None,
        };
        for (reason, expected) in [
            (Reason::TwoComputers, Reason::TwoComputers),
            (Reason::TokenReused, Reason::TokenReused),
            (Reason::TwoComputers, Reason::TokenReused),
        ] {
            alarm(&mut machine, reason, String::new(), Timestamp::UNIX_EPOCH);
            let conditions = &machine.status.as_ref().unwrap().conditions;
            assert_eq!(derive::find(conditions, &Type::IdentityAmbiguous).unwrap().reason, expected);
        }
    }
}
