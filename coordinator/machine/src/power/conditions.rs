//! What a look at a BMC says of its machine.

use jiff::Timestamp;
use landfall_api::{
    BmcStatus, ConditionStatus, ConditionType as Type, MacAddr, Machine, MachineSpec, PowerState, Reason,
};

use crate::derive::put;

/// What a look came to; the texts are for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contact {
    /// The BMC answers, and says this of the power; absent: nothing.
    Reads(Option<PowerState>),
    /// It does not answer.
    Silent(String),
    /// Its certificate is not trusted.
    Untrusted(String),
    /// It refuses the account.
    Refused(String),
    /// The account may not do that.
    Forbidden(String),
    /// Its answer cannot be used.
    Invalid(String),
    /// There is no account for it.
    NoAccount(String),
}

/// The status of a machine's BMC, for changes. What was read of another BMC says nothing of this one.
pub fn status_of(machine: &mut Machine) -> &mut BmcStatus {
    let address = machine.spec.bmc.as_ref().map(|spec| spec.address.clone());
    let bmc = machine.status.get_or_insert_default().bmc.get_or_insert_default();
    if bmc.address != address {
        *bmc = BmcStatus { address, ..BmcStatus::default() };
    }
    bmc
}

/// Sets the conditions, and the power as far as it is known.
pub fn show(machine: &mut Machine, contact: &Contact, now: Timestamp) {
    use ConditionStatus::{False, True, Unknown};
    let at = (now, machine.metadata.generation);
    let bmc = status_of(machine);
    bmc.power = if let Contact::Reads(power) = contact { *power } else { None };
    if let Contact::Reads(_) = contact {
        bmc.refused = None;
    }
    let status = machine.status.get_or_insert_default();
    let mut set = |kind, truth, reason, message: &str| put(&mut status.conditions, kind, truth, reason, message, at);
    match contact {
        Contact::Reads(_) | Contact::Refused(_) | Contact::Forbidden(_) => {
            set(Type::BMCReachable, True, Reason::Answers, "the BMC answers");
        }
        Contact::Silent(why) => set(Type::BMCReachable, False, Reason::Unreachable, why),
        Contact::Untrusted(why) => set(Type::BMCReachable, False, Reason::CertificateUntrusted, why),
        Contact::Invalid(why) => set(Type::BMCReachable, False, Reason::InvalidAnswer, why),
        Contact::NoAccount(_) => {
            set(Type::BMCReachable, Unknown, Reason::NoSecret, "it is not asked without an account");
        }
    }
    match contact {
        Contact::Reads(_) => set(Type::BMCAuthenticated, True, Reason::AccountAccepted, "the BMC accepts the account"),
        Contact::Refused(why) => set(Type::BMCAuthenticated, False, Reason::AccountRefused, why),
        Contact::Forbidden(why) => set(Type::BMCAuthenticated, False, Reason::PermissionDenied, why),
        Contact::NoAccount(why) => set(Type::BMCAuthenticated, False, Reason::NoSecret, why),
        Contact::Silent(_) | Contact::Untrusted(_) | Contact::Invalid(_) => {
            set(Type::BMCAuthenticated, Unknown, Reason::Unreachable, "the BMC cannot be asked");
        }
    }
    let (truth, reason, message) = match contact {
        Contact::Reads(Some(power)) => (True, Reason::Reported, format!("the power is {power}")),
        Contact::Reads(None) => {
            (False, Reason::InvalidAnswer, "the BMC does not say whether the machine has power".to_owned())
        }
        Contact::Silent(_) => (Unknown, Reason::Unreachable, "the BMC does not answer".to_owned()),
        Contact::Untrusted(_) => (Unknown, Reason::Unreachable, "the BMC's certificate is not trusted".to_owned()),
        Contact::Invalid(_) => (Unknown, Reason::InvalidAnswer, "the BMC's answer cannot be used".to_owned()),
        Contact::Refused(_) => (Unknown, Reason::AccountRefused, "the BMC refuses the account".to_owned()),
        Contact::Forbidden(_) => (Unknown, Reason::PermissionDenied, "the account may not read the power".to_owned()),
        Contact::NoAccount(_) => (Unknown, Reason::NoSecret, "there is no account for the BMC".to_owned()),
    };
    set(Type::PowerKnown, truth, reason, &message);
    show_medium(machine, now);
}

/// Ports that a machine's BMC lists.
#[derive(Debug, Default)]
pub struct Ports {
    /// Those that it may be recognised by.
    pub free: Vec<MacAddr>,
    /// The others, each with the machine that it belongs to.
    pub taken: Vec<(MacAddr, String)>,
    /// An agent of the machine may be at work, or is to come: what it was recognised by before counts too.
    pub busy: bool,
}

/// Recognises a machine whose document states no identity by these ports. A BMC that lists none, as many do while the computer
/// starts, changes nothing of what is known.
pub fn recognise(machine: &mut Machine, ports: &Ports, now: Timestamp) {
    let known = machine.macs().to_vec();
    let Ports { free, taken, busy } = ports;
    if !machine.spec.identity.is_empty() || machine.spec.bmc.is_none() || free.is_empty() && !known.is_empty() {
        return;
    }
    let still = known.iter().filter(|mac| *busy && !free.contains(mac));
    let ports: Vec<MacAddr> = free.iter().chain(still).copied().take(MachineSpec::MAX_MACS).collect();
    status_of(machine).recognised_by.clone_from(&ports);
    let list = |ports: &[String]| ports.join(", ");
    let others: Vec<_> = taken.iter().map(|(mac, owner)| format!("{mac} is a port of machine \"{owner}\"")).collect();
    let (truth, reason, message) = match (ports.as_slice(), taken.as_slice()) {
        ([], []) => {
            let message = "the BMC lists no port of the computer; some list them only after it was on: switch it on, or state identity.macs";
            (ConditionStatus::False, Reason::NoPorts, message.to_owned())
        }
        ([], _) => {
            let message = format!("{}; correct one of the documents, or delete one", list(&others));
            (ConditionStatus::False, Reason::PortsOfOthers, message)
        }
        _ => {
            let known: Vec<_> = ports.iter().map(ToString::to_string).collect();
            let message = format!("by {}, as its BMC says", list(&known));
            (ConditionStatus::True, Reason::Reported, [vec![message], others].concat().join("; "))
        }
    };
    let at = (now, machine.metadata.generation);
    let status = machine.status.get_or_insert_default();
    put(&mut status.conditions, Type::IdentityKnown, truth, reason, message, at);
}

/// The document was changed: what was read of another BMC, or of a machine that states its identity now, says nothing any more.
pub fn follow_document(machine: &mut Machine) {
    if machine.status.as_ref().is_some_and(|status| status.bmc.is_some()) && machine.spec.bmc.is_some() {
        status_of(machine);
    }
    if !machine.spec.identity.is_empty() {
        forget_ports(machine);
    }
}

fn forget_ports(machine: &mut Machine) {
    let Some(status) = machine.status.as_mut() else { return };
    status.bmc.iter_mut().for_each(|bmc| bmc.recognised_by.clear());
    status.conditions.retain(|c| c.kind != Type::IdentityKnown);
}

/// Sets the condition of a medium that was not ejected.
pub fn show_medium(machine: &mut Machine, now: Timestamp) {
    let at = (now, machine.metadata.generation);
    let status = machine.status.get_or_insert_default();
    let left = status.bmc.as_ref().and_then(|bmc| bmc.medium.as_ref()?.not_ejected.clone());
    match left {
        Some(why) => {
            let why = format!("the machine may start the agent again, not its system; eject the medium by hand: {why}");
            put(&mut status.conditions, Type::MediumLeft, ConditionStatus::True, Reason::NotEjected, &why, at);
        }
        None => status.conditions.retain(|c| c.kind != Type::MediumLeft),
    }
}

/// The machine has no BMC any more.
pub fn erase(machine: &mut Machine) {
    let Some(status) = machine.status.as_mut() else { return };
    status.bmc = None;
    let of_bmc = [Type::BMCReachable, Type::BMCAuthenticated, Type::PowerKnown, Type::MediumLeft, Type::IdentityKnown];
    status.conditions.retain(|c| !of_bmc.contains(&c.kind));
}
