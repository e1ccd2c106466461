//! A machine's life beyond its workflows: taken over as it is, let go, deleted.

use landfall_api::{Authority, Document, Kind, Machine, Problem, Shared};
use landfall_machine::{Input, life::what_stays};
use landfall_store::StoreError;

use super::{super::steps::Driven, Requests};

impl Requests {
    /// Adopts a machine without a change: it counts as provisioned, its receipts are accepted, and workflows run on it
    /// only on request of a person. This ends a hold, and a workflow that the hold kept from beginning. A pool has it no more.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `MachineBusy` (a run is under way) or `Conflict` (it is being deleted).
    pub async fn adopt(&self, name: &str, by: Authority) -> Result<Shared<Machine>, Problem> {
        let person = by.person.clone();
        let uid = self.fleet.described(name).await?.metadata.uid.unwrap_or_default();
        let mut live = self.fleet.machines().lock(uid).await;
        self.steps.drive(&mut live, name, Input::Adopt(by)).await.map_err(|refused| refused.problem)?;
        // A pool has it no more. Under the lock: nothing begins for the pool in between.
        let out = |machine: &mut Machine| {
            if let Some(status) = &mut machine.status {
                status.pool = None;
            }
        };
        let adopted = self.fleet.mutate_machine(name, out).await?;
        tracing::info!(machine = name, person, "adopted");
        Ok(adopted)
    }

    /// Clears a machine's identity alarm in a person's name.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, or `Conflict` if it has none.
    pub async fn confirm_identity(&self, name: &str, by: Authority) -> Result<Shared<Machine>, Problem> {
        let person = by.person.clone();
        let confirmed = self.ask_machine(name, None, Input::ConfirmIdentity(by)).await?;
        tracing::info!(machine = name, person, "its identity was confirmed");
        Ok(confirmed.state.machine)
    }

    /// Hands a person's request to a machine.
    async fn ask_machine(&self, name: &str, version: Option<u64>, input: Input) -> Result<Driven, Problem> {
        let uid = self.fleet.described(name).await?.metadata.uid.unwrap_or_default();
        let mut live = self.fleet.machines().lock(uid).await;
        let stored = self.fleet.described(name).await?.metadata.resource_version;
        if let Some(given) = version.filter(|version| *version != stored) {
            return Err(StoreError::Conflict { kind: Kind::Machine, name: name.to_owned(), stored, given }.into());
        }
        self.steps.drive(&mut live, name, input).await.map_err(|refused| refused.problem)
    }

    /// Stops managing a machine: its workflow is cancelled, its disks stay unchanged, and the document is removed as
    /// soon as no agent can still act. Returns the document and, for people, what stays on the machine.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`.
    pub async fn detach(&self, name: &str, by: Authority) -> Result<(Document, Vec<String>), Problem> {
        let machine = self.fleet.described(name).await?;
        let newest = self.fleet.current_workflow(&machine).await?;
        let stays = what_stays(&machine, newest.as_deref());
        let document = self.delete_machine(name, &by, None).await?;
        Ok((document, stays))
    }

    /// Deletes a machine at any moment. While an agent may still act, the document stays with a condition, and is
    /// removed with the agent's acknowledgement or at the end of its lease. `version`: of the document that is meant, where that
    /// matters.
    pub(in crate::engine) async fn delete_machine(
        &self, name: &str, by: &Authority, version: Option<u64>,
    ) -> Result<Document, Problem> {
        let deleted = self.ask_machine(name, version, Input::Delete(by.clone())).await?;
        tracing::info!(machine = name, by = %by.person, "deleted, or to be deleted as soon as its agent has stopped");
        Ok(deleted.deleted.unwrap_or_else(|| Document::from(deleted.state.machine)))
    }

    /// What time does for machines that are to go.
    pub(in crate::engine) async fn finish_deletions(&self) -> Result<(), Problem> {
        // On a line of its own: in the loop's head the index would stay locked.
        let names = self.fleet.index().deleting();
        let mut outcome = Ok(());
        for name in names {
            if !self.fleet.has_named(&name).await? {
                continue;
            }
            outcome = outcome.and(self.steps.hand_in(&name, Input::Tick).await);
        }
        outcome
    }
}
