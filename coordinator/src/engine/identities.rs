//! Which machine a computer is: by UUID, serial and addresses together, so that no part of one machine's identity can be
//! carried by another.

use std::{collections::BTreeSet, sync::Arc};

use landfall_api::message::{EnrollRequest, Identity};
use landfall_api::{BmcAddress, ErrorCode, IdentitySpec, MacAddr, Machine, MachineFacts, Problem};
use landfall_machine::power::{self, Ports};
use landfall_store::{Alone, Hold};

use super::fleet::Fleet;

/// Machines named in one refusal, and alarmed by it.
pub(super) const MAX_NAMED: usize = 4;

/// Which computer is which machine, and the lock under which that changes.
pub(in crate::engine) struct Identities {
    fleet: Arc<Fleet>,
    /// One machine's identity is written at a time: two documents never get one address, and two asks of one computer make
    /// one document. Taken before a machine's own lock, never under it.
    writing: tokio::sync::Mutex<()>,
}

impl Identities {
    pub(in crate::engine) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, writing: tokio::sync::Mutex::default() }
    }

    /// Waits until no other identity is being written, here or at another coordinator.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(super) async fn alone(&self) -> Result<(Arc<Hold>, tokio::sync::MutexGuard<'_, ()>), Problem> {
        let one = self.writing.lock().await;
        Ok((self.fleet.beside().alone(Alone::Identity).await?, one))
    }

    /// The machine whose document this computer fits, if any does.
    ///
    /// # Errors
    /// [`Problem`] with code `AmbiguousIdentity` if parts of it belong to different machines.
    pub(super) fn machine_of(&self, said: &Identity) -> Result<Option<String>, Problem> {
        let (strong, serial) = {
            let index = self.fleet.index();
            let by_mac = said.macs.iter().filter_map(|mac| index.machine_of_mac(*mac));
            let mut strong: BTreeSet<String> =
                by_mac.chain(said.smbios_uuid.and_then(|u| index.machine_of_uuid(u))).collect();
            let mut serial = index.machines_of_serial(&said.serial);
            // A computer that was discovered may claim what it likes, and a rule let it in by what it claimed: it contradicts no
            // machine that a person described.
            let described = |name: &String| index.discovered().is_described(name);
            if strong.iter().any(described) {
                strong.retain(described);
                serial.retain(described);
            }
            (strong, serial)
        };
        let mut strong = strong.into_iter();
        match (strong.next(), strong.next()) {
            (None, _) => match serial.as_slice() {
                [] => Ok(None),
                [one] => Ok(Some(one.clone())),
                many => Err(ambiguous(many, said)),
            },
            // A serial number that only other machines are described with contradicts the address.
            (Some(one), None) if serial.is_empty() || serial.contains(&one) => Ok(Some(one)),
            (Some(one), None) => {
                let mut named = vec![one];
                named.extend(serial);
                Err(ambiguous(&named, said))
            }
            (Some(one), Some(two)) => {
                let named: Vec<_> = [one, two].into_iter().chain(strong).collect();
                Err(ambiguous(&named, said))
            }
        }
    }

    /// Recognises a machine whose document states no identity by the ports that its BMC lists, as far as they are no other machine's.
    /// Nothing of a BMC that the document does not name any more. `busy`: an agent of it may be at work, or is to come.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(super) async fn by_bmc(&self, name: &str, bmc: &BmcAddress, busy: bool) -> Result<(), Problem> {
        // No document changes meanwhile.
        let (turn, _one) = self.alone().await?;
        let machine = self.fleet.described(name).await?;
        let read = machine.status.as_ref().and_then(|status| status.bmc.as_ref());
        let is_named = machine.spec.bmc.as_ref().is_some_and(|spec| spec.address == *bmc);
        let system = read.filter(|read| is_named && read.address.as_ref() == Some(bmc)).map(|read| &read.system);
        let Some(system) = system else { return Ok(()) };
        let mut ports = Ports { busy, ..Ports::default() };
        for mac in system.iter().flat_map(|system| &system.macs).filter(|mac| mac.is_of_a_port()) {
            match self.fleet.index().owner_of_port(*mac, name) {
                None => ports.free.push(*mac),
                Some(owner) => ports.taken.push((*mac, owner)),
            }
        }
        ports.taken.truncate(MAX_NAMED);
        let now = self.fleet.now();
        let recognised = self.fleet.mutate_machine(name, |machine| power::recognise(machine, &ports, now));
        let machine = turn.during(recognised).await?;
        let mut index = self.fleet.index();
        // It may have been deleted meanwhile.
        if machine.metadata.uid.is_some_and(|uid| index.has_machine(uid)) {
            index.put_machine(&machine);
        }
        Ok(())
    }

    /// Whether this computer is that machine and no other one: its document agrees, and nothing of the computer belongs to
    /// another.
    ///
    /// # Errors
    /// [`Problem`] with code `AmbiguousIdentity`.
    pub(super) fn check_identity(&self, machine: &Machine, said: &Identity) -> Result<(), Problem> {
        agrees(machine, said)?;
        match self.machine_of(said)? {
            Some(name) if name == machine.metadata.name => Ok(()),
            // `agrees` has found an address of its own, so this is a document changed in between.
            _ => Err(ambiguous(std::slice::from_ref(&machine.metadata.name), said)),
        }
    }
}

fn ambiguous(named: &[String], said: &Identity) -> Problem {
    let names: Vec<_> = named.iter().take(MAX_NAMED).map(|name| format!("\"{name}\"")).collect();
    Problem::new(
        ErrorCode::AmbiguousIdentity,
        format!("one computer ({}) has identities of the machines {}", describe(said), names.join(" and ")),
    )
    .hint("correct the machine documents, or find the computer that uses another's address")
}

/// Every field that the document gives must agree with what the agent read.
pub(super) fn agrees(machine: &Machine, said: &Identity) -> Result<(), Problem> {
    let IdentitySpec { smbios_uuid, serial, .. } = &machine.spec.identity;
    let macs = machine.macs();
    let name = &machine.metadata.name;
    let wrong = |field: &str, described: String, said: String| {
        let said = if said.is_empty() { "none".to_owned() } else { said };
        Err(Problem::new(
            ErrorCode::AmbiguousIdentity,
            format!("the document of machine \"{name}\" has {field} {described}, but this computer has {said}"),
        )
        .at(format!("spec.identity.{field}"))
        .hint("correct the machine document, or find the computer that uses its address"))
    };
    if !said.macs.iter().any(|mac| macs.contains(mac)) {
        return wrong("macs", list(macs), list(&said.macs));
    }
    if let Some(described) = smbios_uuid
        && said.smbios_uuid != Some(*described)
    {
        return wrong(
            "smbiosUuid",
            described.to_string(),
            said.smbios_uuid.map_or_else(String::new, |u| u.to_string()),
        );
    }
    if let Some(described) = serial
        && said.serial != *described
    {
        return wrong("serial", described.clone(), said.serial.clone());
    }
    Ok(())
}

/// At most so many addresses are listed.
const MAX_SHOWN: usize = 8;

fn list(macs: &[MacAddr]) -> String {
    let mut shown: Vec<_> = macs.iter().take(MAX_SHOWN).map(ToString::to_string).collect();
    if macs.len() > MAX_SHOWN {
        shown.push(format!("and {} more", macs.len() - MAX_SHOWN));
    }
    shown.join(", ")
}

/// For people.
pub(super) fn describe(identity: &Identity) -> String {
    let uuid = identity.smbios_uuid.map_or_else(|| "none".to_owned(), |u| u.to_string());
    format!("macs {}; serial \"{}\"; uuid {uuid}", list(&identity.macs), identity.serial)
}

/// Whether it is a discovered machine that is not approved and that no person has described.
pub(super) fn undescribed(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|s| s.enrolment.is_unapproved()) && machine.metadata.generation <= 1
}

/// What the agent saw, or what its identity says where it sent nothing more.
pub(super) fn facts_of(request: &EnrollRequest) -> MachineFacts {
    if let Some(facts) = &request.facts {
        return (**facts).clone();
    }
    let mut facts = MachineFacts::default();
    facts.smbios.uuid = request.identity.smbios_uuid.map(|u| u.to_string()).unwrap_or_default();
    facts.smbios.serial.clone_from(&request.identity.serial);
    facts
}
