//! What must be found without reading every document: machines by address and uid, runs by uid, runs under way.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use landfall_api::{EnrolmentStatus, MacAddr, Machine, Workflow};
use uuid::Uuid;

use super::admission::Admission;

pub(super) struct Index {
    by_mac: HashMap<MacAddr, String>,
    by_uuid: HashMap<Uuid, String>,
    /// Serial numbers are less unique than they should be.
    by_serial: HashMap<String, BTreeSet<String>>,
    /// What each machine stands under in the two above, to take it out again.
    described: HashMap<String, (Option<Uuid>, Option<String>)>,
    /// Of machines whose certificates were ever revoked: the serials that are good.
    good_serials: HashMap<Uuid, Vec<String>>,
    /// Discovered machines that nobody has let in.
    strangers: BTreeSet<String>,
    machine_names: HashMap<Uuid, String>,
    workflow_names: HashMap<Uuid, String>,
    /// Every run of a machine, by the machine's name.
    runs: HashMap<String, BTreeSet<String>>,
    /// Runs that are not terminal, with their machine's name.
    active: BTreeMap<String, String>,
    /// Machines whose documents are to go.
    deleting: BTreeSet<String>,
    /// Installs that wait or run.
    pub(super) admission: Admission,
}

impl Index {
    /// Empty; `parallel_installs` may run at once.
    pub(super) fn new(parallel_installs: usize) -> Self {
        Self {
            by_mac: HashMap::new(),
            by_uuid: HashMap::new(),
            by_serial: HashMap::new(),
            described: HashMap::new(),
            good_serials: HashMap::new(),
            strangers: BTreeSet::new(),
            runs: HashMap::new(),
            machine_names: HashMap::new(),
            workflow_names: HashMap::new(),
            active: BTreeMap::new(),
            deleting: BTreeSet::new(),
            admission: Admission::new(parallel_installs),
        }
    }

    pub(super) fn put_machine(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        self.by_mac.retain(|_, owner| owner != name);
        self.by_mac.extend(machine.spec.identity.macs.iter().map(|mac| (*mac, name.clone())));
        if let Some(uid) = machine.metadata.uid {
            self.machine_names.insert(uid, name.clone());
        }
        if machine.metadata.deletion_timestamp.is_some() {
            self.deleting.insert(name.clone());
        }
        self.drop_described(name);
        let (uuid, serial) = (machine.spec.identity.smbios_uuid, machine.spec.identity.serial.clone());
        self.by_uuid.extend(uuid.map(|uuid| (uuid, name.clone())));
        if let Some(serial) = &serial {
            self.by_serial.entry(serial.clone()).or_default().insert(name.clone());
        }
        self.described.insert(name.clone(), (uuid, serial));
        self.put_certificates(machine);
    }

    /// The part of [`Self::put_machine`] that goes by the status.
    pub(super) fn put_certificates(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        let enrolment = machine.status.as_ref().map(|status| &status.enrolment);
        match (machine.metadata.uid, enrolment.filter(|e| e.revoked_at.is_some())) {
            (Some(uid), Some(e)) => {
                let good = e.certificates.iter().map(|certificate| certificate.serial.clone()).collect();
                self.good_serials.insert(uid, good);
            }
            (Some(uid), None) => drop(self.good_serials.remove(&uid)),
            (None, _) => {}
        }
        if enrolment.is_some_and(EnrolmentStatus::is_stranger) {
            self.strangers.insert(name.clone());
        } else {
            self.strangers.remove(name);
        }
    }

    fn drop_described(&mut self, name: &str) {
        let Some((uuid, serial)) = self.described.remove(name) else { return };
        if let Some(uuid) = uuid.filter(|uuid| self.by_uuid.get(uuid).is_some_and(|owner| owner == name)) {
            self.by_uuid.remove(&uuid);
        }
        if let Some(serial) = serial
            && let Some(owners) = self.by_serial.get_mut(&serial)
        {
            owners.remove(name);
            if owners.is_empty() {
                self.by_serial.remove(&serial);
            }
        }
    }

    pub(super) fn drop_machine(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        self.deleting.remove(name);
        self.drop_described(name);
        self.strangers.remove(name);
        if let Some(uid) = machine.metadata.uid {
            self.good_serials.remove(&uid);
        }
        self.by_mac.retain(|_, owner| owner != name);
        self.machine_names.retain(|_, known| known != name);
    }

    pub(super) fn put_workflow(&mut self, workflow: &Workflow) {
        let name = &workflow.metadata.name;
        if let Some(uid) = workflow.metadata.uid {
            self.workflow_names.insert(uid, name.clone());
        }
        // Looked up before it is made: this runs with every event of a run.
        if !self.runs.get(&workflow.spec.machine).is_some_and(|runs| runs.contains(name)) {
            self.runs.entry(workflow.spec.machine.clone()).or_default().insert(name.clone());
        }
        if workflow.status.as_ref().is_some_and(|s| !s.phase.is_terminal()) {
            self.active.insert(name.clone(), workflow.spec.machine.clone());
        } else {
            self.active.remove(name);
        }
        self.admission.note(workflow);
    }

    pub(super) fn drop_workflow(&mut self, workflow: &Workflow) {
        self.active.remove(&workflow.metadata.name);
        self.admission.forget(&workflow.metadata.name);
        self.workflow_names.retain(|_, known| *known != workflow.metadata.name);
        if let Some(runs) = self.runs.get_mut(&workflow.spec.machine) {
            runs.remove(&workflow.metadata.name);
            if runs.is_empty() {
                self.runs.remove(&workflow.spec.machine);
            }
        }
    }

    /// Every run of a machine.
    pub(super) fn runs_of(&self, machine: &str) -> Vec<String> {
        self.runs.get(machine).into_iter().flatten().cloned().collect()
    }

    pub(super) fn machine_of_mac(&self, mac: MacAddr) -> Option<String> {
        self.by_mac.get(&mac).cloned()
    }

    pub(super) fn machine_of_uuid(&self, uuid: Uuid) -> Option<String> {
        self.by_uuid.get(&uuid).cloned()
    }

    /// None for an empty serial: that is no serial.
    pub(super) fn machines_of_serial(&self, serial: &str) -> Vec<String> {
        let owners = self.by_serial.get(serial).filter(|_| !serial.is_empty());
        owners.map(|owners| owners.iter().cloned().collect()).unwrap_or_default()
    }

    /// Whether a certificate of that machine was taken back.
    pub(super) fn is_revoked(&self, machine: Uuid, serial: &str) -> bool {
        self.good_serials.get(&machine).is_some_and(|good| !good.iter().any(|known| known == serial))
    }

    pub(super) fn strangers(&self) -> &BTreeSet<String> {
        &self.strangers
    }

    pub(super) fn machine_name(&self, uid: Uuid) -> Option<String> {
        self.machine_names.get(&uid).cloned()
    }

    pub(super) fn workflow_name(&self, uid: Uuid) -> Option<String> {
        self.workflow_names.get(&uid).cloned()
    }

    /// Whether the run has not ended.
    pub(super) fn is_active(&self, workflow: &str) -> bool {
        self.active.contains_key(workflow)
    }

    pub(super) fn active(&self) -> Vec<(String, String)> {
        self.active.iter().map(|(workflow, machine)| (workflow.clone(), machine.clone())).collect()
    }

    pub(super) fn deleting(&self) -> Vec<String> {
        self.deleting.iter().cloned().collect()
    }
}
