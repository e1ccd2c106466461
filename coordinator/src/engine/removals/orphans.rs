//! Runs that a crash left behind before their machine knew of them.
//!
//! A run and its machine's word of it are two documents, and no transaction spans both. The run comes first, so a crash
//! in between leaves one that nothing would ever start and nothing end. The caller got no answer and will ask again. So
//! it is removed at the next start.

use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_api::{ErrorCode, Kind, Problem, Shared, Workflow};
use landfall_machine::waits;

use super::Removals;

/// Runs that were made and are to go again, where the store refused that too. Bounded by the requests that failed so.
#[derive(Default)]
pub(super) struct TakenBack(Mutex<Vec<Shared<Workflow>>>);

impl TakenBack {
    fn runs(&self) -> MutexGuard<'_, Vec<Shared<Workflow>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Removals {
    /// Drops runs that have not begun and that their machine does not name. Called before requests are accepted.
    ///
    /// # Errors
    /// [`Problem`] as the store answers.
    pub(in crate::engine) async fn drop_orphans(&self, workflows: &[Shared<Workflow>]) -> Result<(), Problem> {
        for run in workflows.iter().filter(|run| waits(run)) {
            if self.fleet.store().is_unreadable(Kind::Machine, &run.spec.machine) {
                continue;
            }
            let machine = self.fleet.store().machine(&run.spec.machine).await?;
            let newest = machine.and_then(|machine| machine.status.as_ref()?.workflow.clone());
            if newest.as_ref() != Some(&run.metadata.name) {
                tracing::warn!(
                    workflow = %run.metadata.name, machine = %run.spec.machine,
                    "a workflow whose request was interrupted by the coordinator's end is dropped; its caller got no answer"
                );
                self.forget_workflow(run).await?;
            }
        }
        Ok(())
    }

    /// Drops a workflow that its machine does not know; the caller gets the error. If the store refuses, the next tick
    /// retries.
    pub(in crate::engine) async fn take_back(&self, run: &Shared<Workflow>) {
        if let Err(problem) = self.forget_workflow(run).await {
            tracing::warn!(workflow = %run.metadata.name, %problem, "an unreferenced workflow stays until the next \
                tick");
            self.taken_back.runs().push(run.clone());
        }
    }

    /// Tries again what [`Removals::take_back`] could not do.
    pub(in crate::engine) async fn take_back_again(&self) -> Result<(), Problem> {
        let runs = std::mem::take(&mut *self.taken_back.runs());
        let mut outcome = Ok(());
        for run in runs {
            match self.forget_workflow(&run).await {
                Ok(_) => {}
                Err(problem) if problem.code == ErrorCode::NotFound => {}
                Err(problem) => {
                    self.taken_back.runs().push(run);
                    outcome = outcome.and(Err(problem));
                }
            }
        }
        outcome
    }
}
