//! At the start: what the log holds beyond the statuses. One run's trouble keeps no other from going on.

use landfall_api::{ErrorCode, Problem, Workflow, message::EventBody};

use super::{super::shorten::given_up, Upkeep};
use landfall_machine::Input;
use landfall_store::LoggedEvent;

/// Events read at once.
const PAGE: usize = 512;

impl Upkeep {
    /// At the start: [`Upkeep::replay`]. A workflow that cannot be replayed ends, and does not prevent the start.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be written at all.
    pub(in crate::engine) async fn catch_up(&self, workflow: &Workflow) -> Result<(), Problem> {
        match self.replay(workflow).await {
            Ok(()) => Ok(()),
            Err(problem) => self.give_up(workflow, "cannot replay its events", problem).await,
        }
    }

    /// Ends a run that the coordinator cannot go on with, outside of any session.
    ///
    /// # Errors
    /// `problem`, if it is the store's: then every run has it, and none is to blame.
    pub(super) async fn give_up(&self, workflow: &Workflow, what: &str, problem: Problem) -> Result<(), Problem> {
        if problem.code == ErrorCode::StoreUnavailable {
            return Err(problem);
        }
        let name = &workflow.metadata.name;
        tracing::error!(workflow = %name, machine = %workflow.spec.machine, %problem, "the workflow was ended: {what}");
        let input = Input::GiveUp(Box::new(given_up(what, &problem)));
        if let Err(problem) = self.steps.hand_in(&workflow.spec.machine, input).await {
            tracing::error!(workflow = %name, %problem, "that could not be stored either; the others continue");
        }
        Ok(())
    }

    /// At the start: applies what the log holds beyond a run's status.
    async fn replay(&self, workflow: &Workflow) -> Result<(), Problem> {
        let (Some(uid), Some(status)) = (workflow.metadata.uid, &workflow.status) else { return Ok(()) };
        let (mut applied, mut replayed) = (status.applied, 0);
        loop {
            let page = self.fleet.store().events().list(uid, applied, PAGE).await?;
            let Some(last) = page.last() else { break };
            applied = last.position;
            replayed += page.len();
            // A receipt ends a step, as it did when it came: the machine keeps it, whatever comes after it.
            let is_receipt = |event: &LoggedEvent| matches!(event.record.body, EventBody::ReceiptWritten { .. });
            for events in page.split_inclusive(is_receipt) {
                let events = events.iter().map(|event| (event.position, event.record.clone())).collect();
                self.steps.hand_in(&workflow.spec.machine, Input::Replayed(events)).await?;
            }
        }
        if replayed > 0 {
            tracing::info!(workflow = %workflow.metadata.name, replayed, "replayed the events that the status did not \
                contain");
        } else {
            // A crash may have come between the workflow's document and its machine's.
            self.steps.hand_in(&workflow.spec.machine, Input::Replayed(Vec::new())).await?;
        }
        Ok(())
    }
}
