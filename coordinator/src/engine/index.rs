//! What must be found without reading every document: machines by address and uid, runs by uid, runs under way.

use std::collections::{BTreeMap, HashMap};

use landfall_api::{MacAddr, Machine, Workflow};
use uuid::Uuid;

#[derive(Default)]
pub(super) struct Index {
    by_mac: HashMap<MacAddr, String>,
    machine_names: HashMap<Uuid, String>,
    workflow_names: HashMap<Uuid, String>,
    /// Runs that are not terminal, with their machine's name.
    active: BTreeMap<String, String>,
}

impl Index {
    pub(super) fn put_machine(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        self.by_mac.retain(|_, owner| owner != name);
        self.by_mac.extend(machine.spec.identity.macs.iter().map(|mac| (*mac, name.clone())));
        if let Some(uid) = machine.metadata.uid {
            self.machine_names.insert(uid, name.clone());
        }
    }

    pub(super) fn drop_machine(&mut self, machine: &Machine) {
        let name = &machine.metadata.name;
        self.by_mac.retain(|_, owner| owner != name);
        self.machine_names.retain(|_, known| known != name);
    }

    pub(super) fn put_workflow(&mut self, workflow: &Workflow) {
        let name = &workflow.metadata.name;
        if let Some(uid) = workflow.metadata.uid {
            self.workflow_names.insert(uid, name.clone());
        }
        if workflow.status.as_ref().is_some_and(|s| !s.phase.is_terminal()) {
            self.active.insert(name.clone(), workflow.spec.machine.clone());
        } else {
            self.active.remove(name);
        }
    }

    pub(super) fn drop_workflow(&mut self, workflow: &Workflow) {
        self.active.remove(&workflow.metadata.name);
        self.workflow_names.retain(|_, known| *known != workflow.metadata.name);
    }

    pub(super) fn machine_of_mac(&self, mac: MacAddr) -> Option<String> {
        self.by_mac.get(&mac).cloned()
    }

    pub(super) fn machine_name(&self, uid: Uuid) -> Option<String> {
        self.machine_names.get(&uid).cloned()
    }

    pub(super) fn workflow_name(&self, uid: Uuid) -> Option<String> {
        self.workflow_names.get(&uid).cloned()
    }

    pub(super) fn active(&self) -> Vec<(String, String)> {
        self.active.iter().map(|(workflow, machine)| (workflow.clone(), machine.clone())).collect()
    }
}
