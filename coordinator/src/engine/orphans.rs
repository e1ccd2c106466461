//! Runs that a crash left behind before their machine knew of them.
//!
//! A run and its machine's word of it are two documents, and no transaction spans both. The run comes first, so a crash in
//! between leaves one that nothing would ever start and nothing end. Nobody was told of it: whoever asked got no answer,
//! and asks again. So it goes at the next start.

use landfall_api::{Problem, Workflow, WorkflowPhase};

use super::Engine;

impl Engine {
    /// Drops runs that have not begun and that their machine does not name. To be called before anybody may ask for one.
    ///
    /// # Errors
    /// [`Problem`] as the store answers.
    pub(super) async fn drop_orphans(&self, workflows: &[Workflow]) -> Result<(), Problem> {
        for run in workflows {
            if run.status.as_ref().is_none_or(|status| status.phase != WorkflowPhase::Pending) {
                continue;
            }
            let machine = self.inner.store.machine(&run.spec.machine).await?;
            let newest = machine.and_then(|machine| machine.status).and_then(|status| status.workflow);
            if newest.as_ref() != Some(&run.metadata.name) {
                tracing::warn!(
                    workflow = %run.metadata.name, machine = %run.spec.machine,
                    "a run that was being asked for when the coordinator ended is dropped: nobody was told of it"
                );
                self.forget_workflow(run).await?;
            }
        }
        Ok(())
    }
}
