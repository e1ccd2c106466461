//! Stepping a run: the state machine applied to a stored workflow, persisted, its machine brought in line, its effects
//! carried out.

use landfall_api::{Document, ErrorCode, Kind, Machine, Problem, Workflow};

use super::{Engine, ToAgent, derive, live::Live};
use crate::{
    store::StoreError,
    workflow::{Effect, Event, step},
};

/// Writes that lose a compare-and-swap this often in a row give up: somebody else writes without end.
const CAS_TRIES: usize = 16;
/// Events read at once in a replay.
const PAGE: usize = 512;

/// A fault of the coordinator itself.
pub(super) fn internal(error: impl std::error::Error) -> Problem {
    Problem::new(ErrorCode::Internal, error.to_string()).caused_by(&error)
}

impl Engine {
    /// Applies one event to a run, under its machine's lock.
    pub(super) async fn advance(&self, live: &mut Live, workflow: &str, event: Event) -> Result<Workflow, Problem> {
        let (workflow, effects) = self.step_stored(workflow, event).await?;
        self.bring_machine_in_line(&workflow).await?;
        if live.session.as_ref().is_some_and(|s| s.leased) && !workflow.status.as_ref().is_some_and(is_running) {
            self.release_lease(live, &workflow.spec.machine).await?;
        }
        for effect in effects {
            self.carry_out(live, &workflow, effect).await?;
        }
        Ok(workflow)
    }

    async fn step_stored(&self, name: &str, event: Event) -> Result<(Workflow, Vec<Effect>), Problem> {
        let now = self.now();
        for _ in 0..CAS_TRIES {
            let Some(mut workflow) = self.inner.store.workflow(name).await? else {
                return Err(StoreError::NotFound { kind: Kind::Workflow, name: name.to_owned() }.into());
            };
            let (Some(uid), Some(status)) = (workflow.metadata.uid, workflow.status.as_ref()) else {
                return Err(Problem::new(
                    ErrorCode::Internal,
                    format!("workflow \"{name}\" was stored without a status"),
                ));
            };
            let before = status.phase;
            let (status, effects) = step(&self.context(uid), status, event.clone(), now);
            let after = status.phase;
            workflow.status = Some(status);
            derive::workflow(&mut workflow, now);
            match self.inner.store.documents().update(Document::Workflow(Box::new(workflow))).await {
                Ok(Document::Workflow(workflow)) => {
                    self.index().put_workflow(&workflow);
                    if before != after {
                        tracing::info!(workflow = name, machine = %workflow.spec.machine, from = ?before, to = ?after, "the run moved on");
                    }
                    return Ok((*workflow, effects));
                }
                Ok(_) => return Err(Problem::new(ErrorCode::Internal, "the store answered another kind of document")),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("workflow \"{name}\" is being changed without end")))
    }

    async fn bring_machine_in_line(&self, workflow: &Workflow) -> Result<(), Problem> {
        let now = self.now();
        let result = self
            .mutate_machine(&workflow.spec.machine, |machine| {
                // An older run's story must not cover the newest one's.
                let newest = machine.status.as_ref().and_then(|s| s.workflow.as_deref());
                if newest == Some(workflow.metadata.name.as_str()) {
                    derive::machine(machine, Some(workflow), now);
                }
            })
            .await;
        match result {
            // The machine was deleted in mid-run: the run stands by itself.
            Err(problem) if problem.code == ErrorCode::NotFound => Ok(()),
            other => other.map(drop),
        }
    }

    /// Changes a machine document by compare-and-swap.
    pub(super) async fn mutate_machine(
        &self,
        name: &str,
        change: impl Fn(&mut Machine) + Send,
    ) -> Result<Machine, Problem> {
        for _ in 0..CAS_TRIES {
            let Some(mut machine) = self.inner.store.machine(name).await? else {
                return Err(StoreError::NotFound { kind: Kind::Machine, name: name.to_owned() }.into());
            };
            change(&mut machine);
            match self.inner.store.documents().update(Document::Machine(Box::new(machine))).await {
                Ok(Document::Machine(machine)) => return Ok(*machine),
                Ok(_) => return Err(Problem::new(ErrorCode::Internal, "the store answered another kind of document")),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("machine \"{name}\" is being changed without end")))
    }

    async fn carry_out(&self, live: &mut Live, workflow: &Workflow, effect: Effect) -> Result<(), Problem> {
        match effect {
            Effect::Assign { start_index, start_attempt } => {
                self.take_lease(live, &workflow.spec.machine).await?;
                let Some(epoch) = live.session.as_ref().map(|s| s.epoch) else { return Ok(()) };
                let assignment = self.assignment(workflow, epoch, start_index, start_attempt).await?;
                tracing::info!(
                    workflow = %workflow.metadata.name, machine = %workflow.spec.machine, epoch, start_index,
                    start_attempt, "assigned"
                );
                live.send(ToAgent::Assign(Box::new(assignment)));
            }
            Effect::RenewLease => {
                self.take_lease(live, &workflow.spec.machine).await?;
                let Some(epoch) = live.session.as_ref().map(|s| s.epoch) else { return Ok(()) };
                live.send(ToAgent::LeaseRenewal { epoch, lease: self.inner.settings.lease });
            }
            Effect::Idle { boot_disk } => live.send(ToAgent::Idle { boot_disk }),
            Effect::StopAgent { reason } => {
                if let Some(workflow_uid) = workflow.metadata.uid {
                    live.send(ToAgent::Cancel { workflow_uid, reason });
                }
            }
        }
        Ok(())
    }

    /// At the start: applies what the log holds beyond a run's status.
    pub(super) async fn replay(&self, workflow: &Workflow) -> Result<(), Problem> {
        let (Some(uid), Some(status)) = (workflow.metadata.uid, &workflow.status) else { return Ok(()) };
        let (mut applied, epoch, mut replayed) = (status.applied, status.epoch, 0);
        loop {
            let page = self.inner.store.events().list(uid, applied, PAGE).await?;
            let Some(last) = page.last() else { break };
            applied = last.position;
            for event in page {
                let event = Event::Agent { epoch, position: event.position, record: Box::new(event.record) };
                // Effects need a session, and at the start there is none: the agent that comes back gets them.
                self.step_stored(&workflow.metadata.name, event).await?;
                replayed += 1;
            }
        }
        if replayed > 0 {
            tracing::info!(workflow = %workflow.metadata.name, replayed, "replayed what the log held beyond the status");
        }
        if let Some(workflow) = self.inner.store.workflow(&workflow.metadata.name).await? {
            self.bring_machine_in_line(&workflow).await?;
        }
        Ok(())
    }
}

pub(super) fn is_running(status: &landfall_api::WorkflowStatus) -> bool {
    status.phase == landfall_api::WorkflowPhase::Running
}
