//! An index over all documents: machines by address and uid, workflows by uid, running workflows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use landfall_api::{Document, EnrolmentStatus, Kind, MacAddr, Machine, Reservation, Workflow};
use landfall_machine::is_open;
use uuid::Uuid;

use super::queue::Admission;
use super::reservations::Reservations;
use crate::engine::power::Control;

/// What the newest document of a name says.
#[derive(Default)]
struct Described {
    uid: Option<Uuid>,
    /// The resourceVersions that its identity and its certificates are of: the first writer may report last.
    version: u64,
    certificates: u64,
    macs: Vec<MacAddr>,
    reserved: Vec<Reservation>,
    control: Option<Control>,
    uuid: Option<Uuid>,
    serial: Option<String>,
}

/// Machines whose documents the coordinator made.
#[derive(Default)]
pub(in crate::engine) struct Discovered {
    /// Those that are not approved.
    pub(in crate::engine) unapproved: BTreeSet<String>,
    /// Those that no person has described or approved, also where a rule approved them.
    unseen: BTreeSet<String>,
}

impl Discovered {
    fn put(&mut self, machine: &Machine) {
        let (name, enrolment) = (&machine.metadata.name, machine.status.as_ref().map(|status| &status.enrolment));
        let unseen = machine.metadata.generation <= 1 && enrolment.is_some_and(EnrolmentStatus::is_unseen);
        let unapproved = enrolment.is_some_and(EnrolmentStatus::is_unapproved);
        for (names, is_one) in [(&mut self.unapproved, unapproved), (&mut self.unseen, unseen)] {
            if is_one {
                names.insert(name.clone())
            } else {
                names.remove(name)
            };
        }
    }

    fn forget(&mut self, name: &str) {
        self.unapproved.remove(name);
        self.unseen.remove(name);
    }

    /// Whether a person described that machine, or approved its key.
    pub(in crate::engine) fn is_described(&self, name: &str) -> bool {
        !self.unseen.contains(name)
    }
}

pub(in crate::engine) struct Index {
    by_mac: HashMap<MacAddr, String>,
    by_uuid: HashMap<Uuid, String>,
    /// Serial numbers are less unique than they should be.
    by_serial: HashMap<String, BTreeSet<String>>,
    reservations: Reservations,
    /// What each machine stands under in those above, to take it out again.
    described: HashMap<String, Described>,
    /// Of machines whose certificates were ever revoked: the serials that are good.
    good_serials: HashMap<Uuid, Vec<String>>,
    discovered: Discovered,
    machine_names: HashMap<Uuid, String>,
    workflow_names: HashMap<Uuid, String>,
    /// Every run of a machine, by the machine's name.
    runs: HashMap<String, BTreeSet<String>>,
    /// Runs that are not terminal, with their machine's name.
    active: BTreeMap<String, String>,
    /// Machines whose documents are to go.
    deleting: BTreeSet<String>,
    /// Installs that wait or run.
    pub(in crate::engine) admission: Admission,
}

impl Index {
    /// Empty; `parallel_installs` may run at once.
    pub(in crate::engine) fn new(parallel_installs: usize) -> Self {
        Self {
            by_mac: HashMap::new(),
            by_uuid: HashMap::new(),
            by_serial: HashMap::new(),
            reservations: Reservations::default(),
            described: HashMap::new(),
            good_serials: HashMap::new(),
            discovered: Discovered::default(),
            runs: HashMap::new(),
            machine_names: HashMap::new(),
            workflow_names: HashMap::new(),
            active: BTreeMap::new(),
            deleting: BTreeSet::new(),
            admission: Admission::new(parallel_installs),
        }
    }

    /// Takes in a machine's document; an older one than is known changes nothing.
    pub(in crate::engine) fn put_machine(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        let version = machine.metadata.resource_version;
        let mut old = self.described.remove(name).unwrap_or_default();
        if old.version > version {
            self.described.insert(name.clone(), old);
            return;
        }
        self.drop_described(name, &old);
        if let Some(older) = old.uid.filter(|older| machine.metadata.uid != Some(*older)) {
            // Deleted and applied anew before the end of the first was reported.
            self.drop_uid(older);
            self.deleting.remove(name);
            old.certificates = 0;
        }
        let identity = &machine.spec.identity;
        self.by_mac.extend(machine.macs().iter().map(|mac| (*mac, name.clone())));
        self.by_uuid.extend(identity.smbios_uuid.map(|uuid| (uuid, name.clone())));
        if let Some(serial) = &identity.serial {
            self.by_serial.entry(serial.clone()).or_default().insert(name.clone());
        }
        self.reservations.put(name, &machine.spec.reservations);
        if let Some(uid) = machine.metadata.uid {
            self.machine_names.insert(uid, name.clone());
        }
        if machine.metadata.deletion_timestamp.is_some() {
            self.deleting.insert(name.clone());
        }
        let described = Described {
            uid: machine.metadata.uid,
            version,
            certificates: old.certificates,
            macs: machine.macs().to_vec(),
            reserved: machine.spec.reservations.clone(),
            control: Control::of(&machine.spec),
            uuid: identity.smbios_uuid,
            serial: identity.serial.clone(),
        };
        self.described.insert(name.clone(), described);
        self.put_certificates(machine);
    }

    /// The part of [`Self::put_machine`] that goes by the status.
    pub(in crate::engine) fn put_certificates(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        let version = machine.metadata.resource_version;
        if let Some(described) = self.described.get_mut(name) {
            if described.certificates > version {
                return;
            }
            described.certificates = version;
        }
        let enrolment = machine.status.as_ref().map(|status| &status.enrolment);
        match (machine.metadata.uid, enrolment.filter(|e| e.revoked_at.is_some())) {
            (Some(uid), Some(e)) => {
                let good = e.certificates.iter().map(|certificate| certificate.serial.clone()).collect();
                self.good_serials.insert(uid, good);
            }
            (Some(uid), None) => drop(self.good_serials.remove(&uid)),
            (None, _) => {}
        }
        self.discovered.put(machine);
    }

    fn drop_described(&mut self, name: &str, described: &Described) {
        self.reservations.remove(name, &described.reserved);
        for mac in &described.macs {
            if self.by_mac.get(mac).is_some_and(|owner| owner == name) {
                self.by_mac.remove(mac);
            }
        }
        if let Some(uuid) = described.uuid.filter(|uuid| self.by_uuid.get(uuid).is_some_and(|owner| owner == name)) {
            self.by_uuid.remove(&uuid);
        }
        if let Some(serial) = &described.serial
            && let Some(owners) = self.by_serial.get_mut(serial)
        {
            owners.remove(name);
            if owners.is_empty() {
                self.by_serial.remove(serial);
            }
        }
    }

    fn drop_uid(&mut self, uid: Uuid) {
        self.good_serials.remove(&uid);
        self.machine_names.remove(&uid);
    }

    /// Forgets a machine; one of the same name that was applied since stays.
    pub(in crate::engine) fn drop_machine(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        if let Some(uid) = machine.metadata.uid {
            self.drop_uid(uid);
        }
        if self.described.get(name).is_some_and(|described| described.uid != machine.metadata.uid) {
            return;
        }
        if let Some(described) = self.described.remove(name) {
            self.drop_described(name, &described);
        }
        self.deleting.remove(name);
        self.discovered.forget(name);
    }

    pub(in crate::engine) fn put_workflow(&mut self, workflow: &Workflow) {
        let name = &workflow.metadata.name;
        if let Some(uid) = workflow.metadata.uid {
            self.workflow_names.insert(uid, name.clone());
        }
        // Looked up before it is made: this runs with every event of a run.
        if !self.runs.get(&workflow.spec.machine).is_some_and(|runs| runs.contains(name)) {
            self.runs.entry(workflow.spec.machine.clone()).or_default().insert(name.clone());
        }
        if is_open(workflow) {
            self.active.insert(name.clone(), workflow.spec.machine.clone());
        } else {
            self.active.remove(name);
        }
        self.admission.note(workflow);
    }

    pub(in crate::engine) fn drop_workflow(&mut self, workflow: &Workflow) {
        self.active.remove(&workflow.metadata.name);
        self.admission.forget(&workflow.metadata.name);
        if let Some(uid) = workflow.metadata.uid {
            self.workflow_names.remove(&uid);
        }
        if let Some(runs) = self.runs.get_mut(&workflow.spec.machine) {
            runs.remove(&workflow.metadata.name);
            if runs.is_empty() {
                self.runs.remove(&workflow.spec.machine);
            }
        }
    }

    /// Forgets the machines and workflows that are not among these, which are all there are.
    pub(in crate::engine) fn retain(&mut self, all: &[Document]) {
        let stays: HashSet<_> = all.iter().map(|document| (document.kind(), &*document.metadata().name)).collect();
        let is_gone = |kind, name: &String| !stays.contains(&(kind, name.as_str()));
        let gone: Vec<_> = self.described.keys().filter(|name| is_gone(Kind::Machine, name)).cloned().collect();
        for name in gone {
            let Some(described) = self.described.remove(&name) else { continue };
            described.uid.into_iter().for_each(|uid| self.drop_uid(uid));
            self.drop_described(&name, &described);
            self.deleting.remove(&name);
            self.discovered.forget(&name);
        }
        self.workflow_names.retain(|_, name| !is_gone(Kind::Workflow, name));
        for runs in self.runs.values_mut() {
            runs.retain(|name| !is_gone(Kind::Workflow, name));
        }
        self.runs.retain(|_, runs| !runs.is_empty());
        let gone: Vec<_> = self.active.keys().filter(|name| is_gone(Kind::Workflow, name)).cloned().collect();
        for name in gone {
            self.active.remove(&name);
            self.admission.forget(&name);
        }
    }

    /// Runs of machines that have no document any more.
    pub(in crate::engine) fn runs_without_machine(&self) -> Vec<String> {
        let gone = self.runs.iter().filter(|(machine, _)| !self.described.contains_key(*machine));
        gone.flat_map(|(_, runs)| runs).cloned().collect()
    }

    /// Every run of a machine.
    pub(super) fn runs_of(&self, machine: &str) -> Vec<String> {
        self.runs.get(machine).into_iter().flatten().cloned().collect()
    }

    pub(in crate::engine) fn machine_of_mac(&self, mac: MacAddr) -> Option<String> {
        self.by_mac.get(&mac).cloned()
    }

    /// The machine, other than `name`, that this port is described or reserved for.
    pub(in crate::engine) fn owner_of_port(&self, mac: MacAddr, name: &str) -> Option<String> {
        let reserved = || self.reservations.machine_of_port(mac).map(str::to_owned);
        self.machine_of_mac(mac).or_else(reserved).filter(|owner| owner != name)
    }

    pub(in crate::engine) const fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    pub(in crate::engine) fn machine_of_uuid(&self, uuid: Uuid) -> Option<String> {
        self.by_uuid.get(&uuid).cloned()
    }

    /// None for an empty serial: that is no serial.
    pub(in crate::engine) fn machines_of_serial(&self, serial: &str) -> Vec<String> {
        let owners = self.by_serial.get(serial).filter(|_| !serial.is_empty());
        owners.map(|owners| owners.iter().cloned().collect()).unwrap_or_default()
    }

    /// Whether a certificate of that machine was taken back.
    pub(in crate::engine) fn is_revoked(&self, machine: Uuid, serial: &str) -> bool {
        self.good_serials.get(&machine).is_some_and(|good| !good.iter().any(|known| known == serial))
    }

    /// The machines whose power the coordinator controls, and by what; of those that are being deleted none.
    pub(in crate::engine) fn controls(&self) -> HashMap<String, Control> {
        let stays = |name: &str| !self.deleting.contains(name);
        let described = self.described.iter().filter(|(name, _)| stays(name));
        described.filter_map(|(name, described)| Some((name.clone(), described.control.clone()?))).collect()
    }

    pub(in crate::engine) const fn discovered(&self) -> &Discovered {
        &self.discovered
    }

    /// Whether a document has that uid; asked with every message of an agent.
    pub(in crate::engine) fn has_machine(&self, uid: Uuid) -> bool {
        self.machine_names.contains_key(&uid)
    }

    pub(in crate::engine) fn machine_name(&self, uid: Uuid) -> Option<String> {
        self.machine_names.get(&uid).cloned()
    }

    pub(in crate::engine) fn workflow_name(&self, uid: Uuid) -> Option<String> {
        self.workflow_names.get(&uid).cloned()
    }

    pub(in crate::engine) fn active(&self) -> Vec<(String, String)> {
        self.active.iter().map(|(workflow, machine)| (workflow.clone(), machine.clone())).collect()
    }

    pub(in crate::engine) fn deleting(&self) -> Vec<String> {
        self.deleting.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(uid: u128, version: u64, mac: &str) -> Machine {
        let document = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"identity": {"macs": [mac], "serial": mac, "smbiosUuid": Uuid::from_u128(uid)}}});
        let Document::Machine(mut machine) = Document::from_value(document).unwrap() else { panic!("a machine") };
        (machine.metadata.uid, machine.metadata.resource_version) = (Some(Uuid::from_u128(uid)), version);
        machine.into_inner()
    }

    const OLD: &str = "52:54:00:00:00:01";
    const NEW: &str = "52:54:00:00:00:02";

    fn owners(index: &Index) -> [bool; 4] {
        [OLD, NEW]
            .map(|mac| index.machine_of_mac(mac.parse().unwrap()).is_some())
            .into_iter()
            .chain([OLD, NEW].map(|serial| !index.machines_of_serial(serial).is_empty()))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    }

    #[test]
    fn a_reapplied_machine_outlives_its_deleted_predecessor() {
        let mut index = Index::new(1);
        let (first, second) = (machine(1, 5, OLD), machine(2, 9, NEW));
        index.put_machine(&first);
        index.put_machine(&second);
        index.drop_machine(&first);
        assert_eq!(owners(&index), [false, true, false, true]);
        assert_eq!(index.machine_name(Uuid::from_u128(1)), None);
        assert_eq!(index.machine_name(Uuid::from_u128(2)).as_deref(), Some("m"));
        index.drop_machine(&second);
        assert_eq!(owners(&index), [false; 4]);
        assert!(index.machine_names.is_empty() && index.described.is_empty() && index.by_uuid.is_empty());
    }

    #[test]
    fn an_older_notice_does_not_change_the_index() {
        let mut index = Index::new(1);
        let (older, newer) = (machine(1, 5, OLD), machine(1, 6, NEW));
        index.put_machine(&newer);
        index.put_machine(&older);
        assert_eq!(owners(&index), [false, true, false, true]);
        // A certificate that is newer than both says nothing of the addresses.
        index.put_certificates(&machine(1, 9, OLD));
        index.put_machine(&machine(1, 7, OLD));
        assert_eq!(owners(&index), [true, false, true, false]);
    }
}
