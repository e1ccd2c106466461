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

/// Says that another computer claims the machine's identity.
pub fn alarm(machine: &mut Machine, reason: Reason, message: String, now: Timestamp) {
    let at = (now, machine.metadata.generation);
    let status = machine.status.get_or_insert_with(derive::new_machine_status);
    derive::set(&mut status.conditions, Type::IdentityAmbiguous, true, reason, message, at);
}

/// These keys wait for a person.
pub fn await_approval(machine: &mut Machine, waiting: Vec<WaitingKey>, now: Timestamp) {
    let at = (now, machine.metadata.generation);
    let name = &machine.metadata.name;
    let message = format!("compare the fingerprint on the console, then: landfall approve {name} FINGERPRINT");
    let status = machine.status.get_or_insert_with(derive::new_machine_status);
    status.enrolment.waiting = waiting;
    derive::set(&mut status.conditions, Type::AwaitingApproval, true, Reason::KeyWaits, message, at);
}

/// A person approved a key, and no other waits any more.
pub fn approve(machine: &mut Machine, approved: ApprovedKey, workflow: Option<&Workflow>) {
    let (now, generation) = (approved.at, machine.metadata.generation);
    let status = machine.status.get_or_insert_with(derive::new_machine_status);
    let message = format!("by {}", approved.by);
    status.enrolment.waiting.clear();
    status.enrolment.approved = Some(approved);
    let conditions = &mut status.conditions;
    derive::set(conditions, Type::AwaitingApproval, false, Reason::Approved, message, (now, generation));
    derive::conditions(machine, workflow, now);
}
