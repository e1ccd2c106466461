//! A step's documents: loaded before it, stored after it.

use landfall_api::{Document, Kind, Machine, Problem, Shared, Workflow};
use landfall_machine::{Effect, MachineState, Which};
use landfall_store::StoreError;

use super::{
    super::fleet::{CAS_TRIES, Live},
    Steps,
};

/// The documents as they were loaded, shared with the store.
pub(super) struct Loaded {
    pub(in crate::engine) machine: Shared<Machine>,
    pub(in crate::engine) newest: Option<Shared<Workflow>>,
    pub(in crate::engine) older: Option<Shared<Workflow>>,
}

impl Steps {
    pub(super) async fn load(&self, name: &str, workflow: Option<&str>) -> Result<Loaded, Problem> {
        let store = &self.fleet.store();
        let Some(machine) = store.machine(name).await? else {
            return Err(StoreError::NotFound { kind: Kind::Machine, name: name.to_owned() }.into());
        };
        let newest = machine.status.as_ref().and_then(|status| status.workflow.as_deref());
        let older = match workflow.filter(|workflow| newest != Some(workflow)) {
            Some(older) => store.workflow(older).await?,
            None => None,
        };
        let newest = match newest {
            Some(newest) => store.workflow(newest).await?,
            None => None,
        };
        Ok(Loaded { machine, newest, older })
    }

    /// Stores what the step says, in its order. What is unchanged is not written: most events say nothing new of the
    /// machine, and the store would only be asked to say so, after a sync.
    pub(super) async fn store_all(
        &self,
        loaded: &Loaded,
        state: &mut MachineState,
        effects: &[Effect],
    ) -> Result<(), StoreError> {
        let mut stored = 0;
        for effect in effects {
            let outcome = match effect {
                Effect::StoreMachine => self.store_machine(loaded, state, stored > 0).await,
                Effect::StoreWorkflow(Which::Newest) => {
                    self.store_workflow(loaded.newest.as_ref(), &mut state.newest).await
                }
                Effect::StoreWorkflow(Which::Older) => {
                    self.store_workflow(loaded.older.as_ref(), &mut state.older).await
                }
                _ => continue,
            };
            stored += usize::from(outcome?);
        }
        Ok(())
    }

    /// `begun`: another document of this step is stored already, so that the step cannot be made again. Then the status,
    /// which is written here alone, goes beside what another writer made of the rest.
    async fn store_machine(&self, loaded: &Loaded, state: &mut MachineState, begun: bool) -> Result<bool, StoreError> {
        if loaded.machine == state.machine {
            return Ok(false);
        }
        for _ in 0..CAS_TRIES {
            let document = Document::from(state.machine.clone());
            match self.fleet.store().documents().update(document).await {
                Ok(Document::Machine(machine)) => {
                    state.machine = machine;
                    return Ok(true);
                }
                Ok(_) => return Ok(true),
                Err(StoreError::Conflict { .. }) if begun => {
                    let name = &state.machine.metadata.name;
                    let Some(newer) = self.fleet.store().machine(name).await? else { return Ok(false) };
                    let (status, finalizers) = (state.machine.status.take(), state.machine.metadata.finalizers.clone());
                    state.machine = newer;
                    (state.machine.status, state.machine.metadata.finalizers) = (status, finalizers);
                }
                // It was deleted meanwhile: its workflow stands by itself.
                Err(StoreError::NotFound { .. }) if begun => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    async fn store_workflow(
        &self,
        before: Option<&Shared<Workflow>>,
        after: &mut Option<Shared<Workflow>>,
    ) -> Result<bool, StoreError> {
        // Given away, so that the store need not copy it; without an answer the step is made again from what is stored.
        let (Some(before), Some(given)) = (before, after.take()) else { return Ok(false) };
        let Document::Workflow(stored) = self.fleet.store().documents().update(given.into()).await? else {
            return Ok(true);
        };
        let after = &*after.insert(stored);
        self.fleet.index().put_workflow(after);
        self.telemetry.follow(after);
        self.wake_queue();
        let phase = |workflow: &Workflow| workflow.status.as_ref().map(|status| status.phase);
        if let (Some(from), Some(to)) = (phase(before), phase(after))
            && from != to
        {
            tracing::info!(
                workflow = %after.metadata.name, machine = %after.spec.machine, ?from, ?to, "the workflow moved on"
            );
        }
        Ok(true)
    }
}

impl Loaded {
    pub(in crate::engine) fn state(&self, live: &Live) -> MachineState {
        MachineState {
            machine: self.machine.clone(),
            newest: self.newest.clone(),
            older: self.older.clone(),
            session: live.session.clone(),
        }
    }
}
