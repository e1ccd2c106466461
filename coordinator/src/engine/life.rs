//! A machine's life beyond its workflows: taken over as it is, let go, deleted.

use landfall_api::{Authority, Document, ErrorCode, Kind, Machine, Problem, Shared};
use landfall_machine::{
    Input,
    life::{AGENT, what_stays},
};

use landfall_store::StoreError;

use super::{Engine, derive, drive::Driven, live::Live};

impl Engine {
    /// Adopts a machine without a change: it counts as provisioned, its receipts are accepted, and workflows run on it
    /// only on request of a person. This ends a hold, and a workflow that the hold kept from beginning.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `MachineBusy` (a run is under way) or `Conflict` (it is being deleted).
    pub async fn adopt(&self, name: &str, by: Authority) -> Result<Shared<Machine>, Problem> {
        let person = by.person.clone();
        let adopted = self.ask_machine(name, Input::Adopt(by)).await?;
        tracing::info!(machine = name, person, "adopted");
        Ok(adopted.state.machine)
    }

    /// Clears a machine's identity alarm in a person's name.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, or `Conflict` if it has none.
    pub async fn confirm_identity(&self, name: &str, by: Authority) -> Result<Shared<Machine>, Problem> {
        let person = by.person.clone();
        let confirmed = self.ask_machine(name, Input::ConfirmIdentity(by)).await?;
        tracing::info!(machine = name, person, "its identity was confirmed");
        Ok(confirmed.state.machine)
    }

    /// Hands a person's request to a machine.
    async fn ask_machine(&self, name: &str, input: Input) -> Result<Driven, Problem> {
        let uid = self.described(name).await?.metadata.uid.unwrap_or_default();
        let mut live = self.inner.machines.lock(uid).await;
        self.described(name).await?;
        self.drive(&mut live, name, input).await.map_err(|refused| refused.problem)
    }

    /// Stops managing a machine: its workflow is cancelled, its disks stay unchanged, and the document is removed as
    /// soon as no agent can still act. Returns the document and, for people, what stays on the machine.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`.
    pub async fn detach(&self, name: &str, by: Authority) -> Result<(Document, Vec<String>), Problem> {
        let machine = self.described(name).await?;
        let newest = self.current_workflow(&machine).await?;
        let stays = what_stays(&machine, newest.as_deref());
        let document = self.delete_machine(name, &by).await?;
        Ok((document, stays))
    }

    /// Deletes a machine at any moment. While an agent may still act, the document stays with a condition, and is
    /// removed with the agent's acknowledgement or at the end of its lease.
    pub(super) async fn delete_machine(&self, name: &str, by: &Authority) -> Result<Document, Problem> {
        let deleted = self.ask_machine(name, Input::Delete(by.clone())).await?;
        tracing::info!(machine = name, by = %by.person, "deleted, or to be deleted as soon as its agent has stopped");
        Ok(deleted.deleted.unwrap_or_else(|| Document::from(deleted.state.machine)))
    }

    /// The document carries a finalizer, so this only marks it.
    pub(super) async fn mark_deleted(&self, name: &str) -> Result<Document, Problem> {
        self.inner.store.documents().delete(Kind::Machine, name).await?;
        let marked = self.mutate_machine(name, derive::phase).await?;
        self.index().put_machine(&marked);
        Ok(Document::from(marked))
    }

    /// Removes the document and all rights of its certificate.
    pub(super) async fn remove_machine(&self, live: &mut Live, machine: &Shared<Machine>) -> Result<Document, Problem> {
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
            match self.mutate_machine(name, unbind).await {
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
            match self.inner.store.documents().delete(Kind::Machine, name).await {
                // Another request was faster.
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        {
            let mut index = self.index();
            index.drop_machine(machine);
            index.admission.absent(name);
        }
        live.cut();
        if let Some(uid) = machine.metadata.uid {
            self.inner.machines.forget(uid);
        }
        tracing::info!(machine = %name, "deleted");
        Ok(Document::from(last))
    }

    /// What time does for machines that are to go.
    pub(super) async fn finish_deletions(&self) -> Result<(), Problem> {
        // On a line of its own: in the loop's head the index would stay locked.
        let names = self.index().deleting();
        let mut outcome = Ok(());
        for name in names {
            outcome = outcome.and(self.hand_in(&name, Input::Tick).await);
        }
        outcome
    }

    /// The machine of that name.
    pub(super) async fn described(&self, name: &str) -> Result<Shared<Machine>, Problem> {
        match self.inner.store.machine(name).await? {
            Some(machine) => Ok(machine),
            None => Err(self.not_found(Kind::Machine, name).await),
        }
    }
}
