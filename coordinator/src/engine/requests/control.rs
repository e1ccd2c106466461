//! A person's requests about a workflow there is: stop it, pause it, let it go on, go on where it failed.

use std::collections::BTreeMap;

use landfall_api::{Authority, ErrorCode, Kind, PoolClaim, Problem, Purpose, Shared, Workflow, WorkflowSpec};
use landfall_machine::run::{retry_of, still_phones_home};
use landfall_machine::{Input, MachineState, Which};

use super::{Requests, believed};
use crate::engine::assignments::lays_out;

impl Requests {
    /// Stops a workflow; the agent is notified at once.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` or `WorkflowEnded`.
    pub async fn cancel(&self, workflow: &str, authority: Authority) -> Result<Shared<Workflow>, Problem> {
        self.ask(workflow, |which| Input::Cancel(which, authority.clone())).await
    }

    /// Pauses a run: the action under way goes on to its end, and no other begins.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `WorkflowEnded`, `Conflict` (it is paused, or past what can be paused), or
    /// `VersionSkew` (its agent is too old to be paused).
    pub async fn pause(&self, workflow: &str, authority: Authority) -> Result<Shared<Workflow>, Problem> {
        self.ask(workflow, |which| Input::Pause(which, authority.clone())).await
    }

    /// Lets a run go on: lifts its pause, or without one lets it go past the `hold` it stands at.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `WorkflowEnded`, or `Conflict` if it waits for no person.
    pub async fn resume(&self, workflow: &str, authority: Authority) -> Result<Shared<Workflow>, Problem> {
        self.ask(workflow, |which| Input::Resume(which, authority.clone())).await
    }

    /// Lets a workflow begin that is held since a long absence of the coordinator. Nothing is forced.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `WorkflowEnded`, or `Conflict` if it does not wait for a confirmation, or if its
    /// machine carries a receipt that the store does not know.
    pub async fn confirm(&self, workflow: &str, authority: Authority) -> Result<Shared<Workflow>, Problem> {
        self.ask(workflow, |which| Input::Confirm(which, authority.clone())).await
    }

    /// Hands a person's request to the machine of a workflow; answers the workflow as it is then.
    async fn ask(
        &self, workflow: &str, input: impl Fn(Which) -> Input + Send + Sync,
    ) -> Result<Shared<Workflow>, Problem> {
        let Some(found) = self.fleet.store().workflow(workflow).await? else {
            return Err(self.fleet.not_found(Kind::Workflow, workflow).await);
        };
        let machine = &found.spec.machine;
        let Some(uid) = self.fleet.store().machine(machine).await?.and_then(|machine| machine.metadata.uid) else {
            let message = format!("workflow \"{workflow}\" has ended already: its machine was deleted");
            return Err(Problem::new(ErrorCode::WorkflowEnded, message).at(format!("Workflow/{workflow}")));
        };
        let mut live = self.fleet.machines().lock(uid).await;
        if self.fleet.store().workflow(workflow).await?.is_none() {
            return Err(self.fleet.not_found(Kind::Workflow, workflow).await);
        }
        let asked = |_: &MachineState, which| input(which);
        let driven =
            self.steps.drive_of(&mut live, machine, Some(workflow), asked).await.map_err(|refused| refused.problem)?;
        let named = |document: &Shared<Workflow>| document.metadata.name == workflow;
        let MachineState { newest, older, .. } = driven.state;
        newest
            .into_iter()
            .chain(older)
            .find(named)
            .ok_or_else(|| Problem::new(ErrorCode::NotFound, format!("workflow \"{workflow}\" was dropped just now")))
    }

    /// A new run that goes on where this one failed or was cancelled, with the same pinned list.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `MachineBusy`, `Conflict` (it has not ended, or the machine has had another run
    /// since), `WorkflowEnded` (nothing failed), `NoToolsLayer`, `ReceiptMismatch`, `LimitReached`.
    pub async fn retry(&self, workflow: &str, authority: Authority) -> Result<Shared<Workflow>, Problem> {
        let Some(found) = self.fleet.store().workflow(workflow).await? else {
            return Err(self.fleet.not_found(Kind::Workflow, workflow).await);
        };
        let machine = found.spec.machine.clone();
        // What it says without the lock; judged again below.
        retry_of(&found, 0, Vec::new())?;
        let (live, described) = self.idle_machine(&machine, authority.force).await?;
        let status = described.status.as_ref();
        if let Some(newer) = status.and_then(|s| s.workflow.as_deref()).filter(|newest| *newest != workflow) {
            let message = format!("machine \"{machine}\" has a newer workflow: \"{newer}\"");
            let hint = format!("retry that one, or start a new one: landfall provision {machine}");
            return Err(Problem::new(ErrorCode::Conflict, message).hint(hint).at(format!("Workflow/{workflow}")));
        }
        let Some(found) = self.fleet.store().workflow(workflow).await? else {
            return Err(self.fleet.not_found(Kind::Workflow, workflow).await);
        };
        still_phones_home(&found)?;
        if let Some(claim) = status.and_then(|status| status.pool.as_ref())
            && let Some(wanted) = not_of(claim, &found)
        {
            let message = format!("machine \"{machine}\" is of pool \"{}\", which wants {wanted}", claim.name);
            let hint = format!("take it out of the pool first: landfall release {machine}");
            return Err(Problem::new(ErrorCode::Conflict, message).hint(hint).at(format!("Machine/{machine}")));
        }
        let receipts = believed(&live, &described, authority.force);
        let status = retry_of(&found, described.metadata.generation, receipts)?;
        let left = status.actions.iter().filter(|pinned| !pinned.is_over());
        let lays_out = lays_out(status.actions.iter().map(|pinned| &*pinned.action));
        self.fleet.settings().tools_for(&described, lays_out, left.map(|pinned| &*pinned.action))?;
        let spec = WorkflowSpec {
            authority: Some(authority),
            cancel: None,
            requests: Vec::new(),
            retry_of: Some(workflow.to_owned()),
            ..found.spec.clone()
        };
        self.launch((live, &described), BTreeMap::new(), spec, status).await
    }
}

/// What a pool wants of its machine, where it is not what the workflow does.
fn not_of(claim: &PoolClaim, workflow: &Workflow) -> Option<String> {
    let (spec, wanted) = (&workflow.spec, &claim.wanted);
    if claim.released.is_some() {
        return (spec.purpose != Purpose::Deprovision).then(|| "it cleared".into());
    }
    let same = spec.purpose == Purpose::Provision
        && claim.before.as_ref() != Some(&workflow.metadata.name)
        && spec.template == wanted.template
        && spec.parameters == wanted.parameters;
    (!same).then(|| format!("template {}", wanted.template))
}
