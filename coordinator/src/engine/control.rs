//! A person's requests about a run there is: pause it, let it go on, go on where it failed. Each records who asked.

use std::collections::BTreeMap;

use landfall_api::{
    Authority, Document, ErrorCode, Kind, Problem, RunRequest, RunRequestKind, Workflow, WorkflowPhase, WorkflowSpec,
    WorkflowStatus,
};
use landfall_machine::run::{Event, retry_of};
use tokio::sync::OwnedMutexGuard;

use super::{
    Engine,
    drive::{CAS_TRIES, CONTROL_PROTOCOL},
    live::Live,
    provision::believed,
};
use landfall_store::StoreError;

/// Requests a run's document remembers.
const KEPT_REQUESTS: usize = 16;

impl Engine {
    /// Pauses a run: the action under way goes on to its end, and no other begins.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `WorkflowEnded`, `Conflict` (it is paused, or past what can be paused), or
    /// `VersionSkew` (its agent is too old to be paused).
    pub async fn pause(&self, workflow: &str, authority: Authority) -> Result<Workflow, Problem> {
        let (mut live, status) = self.under_way(workflow).await?;
        let refuse =
            |message: String| Err(Problem::new(ErrorCode::Conflict, message).at(format!("Workflow/{workflow}")));
        if let Some(pause) = &status.paused {
            return refuse(format!("workflow \"{workflow}\" was paused by {} at {}", pause.by, pause.since));
        }
        if status.phase == WorkflowPhase::Rebooting {
            return refuse(format!(
                "every action of workflow \"{workflow}\" has been done: there is nothing left to pause"
            ));
        }
        if status.ending.is_some() {
            return refuse(format!("workflow \"{workflow}\" has failed and is doing what follows a failure"));
        }
        let protocol = live.session.as_ref().filter(|s| s.to_agent.is_some()).map(|s| s.protocol);
        if status.phase == WorkflowPhase::Running
            && let Some(protocol) = protocol.filter(|p| *p < CONTROL_PROTOCOL)
        {
            let message = format!("the machine's agent speaks protocol {protocol}, and knows no pause");
            let hint = "build a new boot image; this run can be stopped with landfall cancel";
            return Err(Problem::new(ErrorCode::VersionSkew, message).hint(hint));
        }
        self.record(workflow, RunRequestKind::Pause, &authority).await?;
        self.advance(&mut live, workflow, Event::Paused(authority)).await
    }

    /// Lets a run go on: lifts its pause, or without one lets it go past the `hold` it stands at.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `WorkflowEnded`, or `Conflict` if it waits for no person.
    pub async fn resume(&self, workflow: &str, authority: Authority) -> Result<Workflow, Problem> {
        let (mut live, status) = self.under_way(workflow).await?;
        let holds = status.actions.iter().chain(&status.on_failure).any(landfall_api::ActionStatus::holds);
        if status.paused.is_none() && !holds {
            let message = format!("workflow \"{workflow}\" is not paused and stands at no hold");
            return Err(Problem::new(ErrorCode::Conflict, message).at(format!("Workflow/{workflow}")));
        }
        self.record(workflow, RunRequestKind::Resume, &authority).await?;
        let workflow = self.advance(&mut live, workflow, Event::Resumed).await?;
        // An agent that came while the run was paused before its beginning waits to hear of it.
        let waits = workflow.status.as_ref().is_some_and(|s| s.phase == WorkflowPhase::Pending);
        if waits && live.session.as_ref().is_some_and(|s| s.to_agent.is_some()) {
            self.connect(&mut live, Some(&workflow), false).await?;
        }
        Ok(workflow)
    }

    /// A new run that goes on where this one failed or was cancelled, with the same pinned list.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `MachineBusy`, `Conflict` (it has not ended, or the machine has had another run
    /// since), `WorkflowEnded` (nothing failed), `ReceiptMismatch`, `LimitReached`.
    pub async fn retry(&self, workflow: &str, authority: Authority) -> Result<Workflow, Problem> {
        let Some(found) = self.inner.store.workflow(workflow).await? else {
            return Err(self.not_found(Kind::Workflow, workflow).await);
        };
        let machine = found.spec.machine.clone();
        // What it says without the lock; judged again below.
        retry_of(&found, 0, Vec::new())?;
        let (live, described) = self.idle_machine(&machine, authority.force).await?;
        let status = described.status.as_ref();
        if let Some(newer) = status.and_then(|s| s.workflow.as_deref()).filter(|newest| *newest != workflow) {
            let message = format!("machine \"{machine}\" has had another run since: \"{newer}\"");
            let hint = format!("retry that one, or start anew: landfall provision {machine}");
            return Err(Problem::new(ErrorCode::Conflict, message).hint(hint).at(format!("Workflow/{workflow}")));
        }
        let Some(found) = self.inner.store.workflow(workflow).await? else {
            return Err(self.not_found(Kind::Workflow, workflow).await);
        };
        let receipts = believed(&live, &described, authority.force);
        let status = retry_of(&found, described.metadata.generation, receipts)?;
        let spec = WorkflowSpec {
            authority: Some(authority),
            cancel: None,
            requests: Vec::new(),
            retry_of: Some(workflow.to_owned()),
            ..found.spec
        };
        self.launch(live, BTreeMap::new(), spec, status).await
    }

    /// A run that has not ended, with its machine locked.
    async fn under_way(&self, name: &str) -> Result<(OwnedMutexGuard<Live>, WorkflowStatus), Problem> {
        let Some(found) = self.inner.store.workflow(name).await? else {
            return Err(self.not_found(Kind::Workflow, name).await);
        };
        let machine = self.inner.store.machine(&found.spec.machine).await?;
        let uid = machine.and_then(|m| m.metadata.uid).or(found.metadata.uid).unwrap_or_default();
        let live = self.inner.machines.lock(uid).await;
        let Some(found) = self.inner.store.workflow(name).await? else {
            return Err(self.not_found(Kind::Workflow, name).await);
        };
        match found.status {
            Some(status) if !status.phase.is_terminal() => Ok((live, status)),
            status => {
                let how = status.map(|s| format!(": {:?}", s.phase)).unwrap_or_default();
                let message = format!("workflow \"{name}\" has ended already{how}");
                Err(Problem::new(ErrorCode::WorkflowEnded, message).at(format!("Workflow/{name}")))
            }
        }
    }

    async fn record(&self, workflow: &str, what: RunRequestKind, by: &Authority) -> Result<(), Problem> {
        tracing::info!(workflow, person = %by.person, ?what, "asked for");
        self.mutate_run(workflow, |spec| {
            spec.requests.push(RunRequest { what, by: by.clone() });
            let excess = spec.requests.len().saturating_sub(KEPT_REQUESTS);
            spec.requests.drain(..excess);
        })
        .await
    }

    /// Changes a run's spec by compare-and-swap: its status may change at the same moment.
    pub(super) async fn mutate_run(
        &self,
        name: &str,
        change: impl Fn(&mut WorkflowSpec) + Send,
    ) -> Result<(), Problem> {
        for _ in 0..CAS_TRIES {
            let Some(mut run) = self.inner.store.workflow(name).await? else {
                return Err(self.not_found(Kind::Workflow, name).await);
            };
            change(&mut run.spec);
            match self.inner.store.documents().update(Document::Workflow(Box::new(run))).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("workflow \"{name}\" is being changed without end")))
    }
}
