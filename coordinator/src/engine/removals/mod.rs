//! What is removed, and all that goes with it: workflows with their events and logs, machines with their rights.

mod retention;

use std::sync::Arc;

use landfall_api::{Document, ErrorCode, Kind, Machine, Metadata, Problem, Shared, Workflow};
use landfall_machine::{derive, has_ended, life::AGENT};
use landfall_store::StoreError;

use super::fleet::{CAS_TRIES, Fleet, Live, contended};
use super::telemetry::Telemetry;

/// Terminal runs kept for each machine; older ones are dropped, with their events.
const KEPT_RUNS: usize = 20;

/// Removes workflows and machines.
pub(in crate::engine) struct Removals {
    fleet: Arc<Fleet>,
    telemetry: Arc<Telemetry>,
}

impl Removals {
    pub(in crate::engine) fn new(fleet: Arc<Fleet>, telemetry: Arc<Telemetry>) -> Self {
        Self { fleet, telemetry }
    }

    pub(in crate::engine) async fn drop_old_runs(&self, machine: &str) -> Result<(), Problem> {
        let mut runs = self.fleet.workflows_of(machine).await?;
        runs.retain(|workflow| has_ended(workflow));
        runs.sort_by_key(|w| w.metadata.creation_timestamp);
        let excess = runs.len().saturating_sub(KEPT_RUNS);
        for old in runs.into_iter().take(excess) {
            self.forget_workflow(&old).await?;
        }
        Ok(())
    }

    pub(in crate::engine) async fn forget_workflow(&self, workflow: &Workflow) -> Result<Document, Problem> {
        self.forget_workflow_if(workflow, None).await
    }

    /// `version`: of the document that is meant, where that matters.
    pub(in crate::engine) async fn forget_workflow_if(
        &self, workflow: &Workflow, version: Option<u64>,
    ) -> Result<Document, Problem> {
        let name = &workflow.metadata.name;
        let gone = self.fleet.store().documents().delete_if(Kind::Workflow, name, version).await?;
        self.fleet.index().drop_workflow(workflow);
        if let Some(uid) = workflow.metadata.uid {
            self.fleet.store().events().forget(uid).await?;
            self.telemetry.forget(uid);
        }
        Ok(gone)
    }

    /// The document carries a finalizer, so this only marks it.
    pub(in crate::engine) async fn mark_deleted(&self, machine: &Machine) -> Result<Document, Problem> {
        let name = &machine.metadata.name;
        self.delete_same(machine).await?;
        let marked = self.fleet.mutate_machine(name, derive::phase).await?;
        self.fleet.index().put_machine(&marked);
        Ok(Document::from(marked))
    }

    /// Deletes the machine's document as it is now, but none of another machine that has its name meanwhile.
    async fn delete_same(&self, machine: &Machine) -> Result<(), Problem> {
        let Metadata { name, uid, .. } = &machine.metadata;
        for _ in 0..CAS_TRIES {
            let found = self.fleet.store().machine(name).await?.filter(|found| found.metadata.uid == *uid);
            let Some(found) = found else {
                return Err(StoreError::NotFound { kind: Kind::Machine, name: name.clone() }.into());
            };
            let version = Some(found.metadata.resource_version);
            match self.fleet.store().documents().delete_if(Kind::Machine, name, version).await {
                Err(StoreError::Conflict { .. }) => {}
                outcome => return outcome.map(drop).map_err(Problem::from),
            }
        }
        Err(contended(name))
    }

    /// Removes the document and all rights of its certificate.
    pub(in crate::engine) async fn remove_machine(
        &self, live: &mut Live, machine: &Shared<Machine>,
    ) -> Result<Document, Problem> {
        let name = &machine.metadata.name;
        let mut last = machine.clone();
        let mut is_there = true;
        if !machine.metadata.finalizers.is_empty() {
            let uid = machine.metadata.uid;
            let unbind = |found: &mut Machine| {
                if found.metadata.uid == uid {
                    found.metadata.finalizers.retain(|f| f != AGENT);
                }
            };
            match self.fleet.mutate_machine(name, unbind).await {
                Ok(machine) => {
                    // A deleted document is removed with its last finalizer; a document with its name is now another
                    // one.
                    let ended = machine.metadata.deletion_timestamp.is_some() && machine.metadata.finalizers.is_empty();
                    is_there = machine.metadata.uid == uid && !ended;
                    if machine.metadata.uid == uid {
                        last = machine;
                    }
                }
                Err(problem) if problem.code == ErrorCode::NotFound => is_there = false,
                Err(problem) => return Err(problem),
            }
        }
        if is_there {
            match self.delete_same(machine).await {
                // Another request was faster.
                Err(problem) if problem.code != ErrorCode::NotFound => return Err(problem),
                _ => {}
            }
        }
        {
            let mut index = self.fleet.index();
            index.drop_machine(machine);
            index.admission.absent(name);
        }
        live.cut();
        if let Some(uid) = machine.metadata.uid {
            self.fleet.machines().forget(uid);
        }
        tracing::info!(machine = %name, "deleted");
        Ok(Document::from(last))
    }
}
