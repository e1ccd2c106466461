//! Admission: how many installs run at once, and who is next.
//!
//! A workflow gets its place in the order with the person's request, and keeps it: the ticket is in its status. It
//! takes up room only while an agent works on it. So a machine that is powered off delays no other, and neither does
//! one whose workflow is paused or whose agent has gone: of the runs whose agent is there, those asked for first begin
//! first. A run that has begun takes its room again when it goes on, also where there is none left; it was let in once.

use std::time::Duration;

use futures::{StreamExt as _, future::BoxFuture};
use landfall_api::{Document, Problem};
use landfall_machine::turn::Standing;
use landfall_machine::{Input, turn};

use super::{super::fleet::PLACES, Steps};
use landfall_store::StoreError;

/// After a failed step the queue is checked again with the next tick at the latest.
const AGAIN: Duration = Duration::from_secs(1);

impl Steps {
    /// If there is room and an agent waits for it, lets it begin; at once, but under no other machine's lock.
    pub(in crate::engine) fn wake_queue(&self) {
        if self.fleet.index().admission.next().is_none() {
            return;
        }
        let engine = self.clone();
        // Boxed, for what it does may wake the queue again.
        let work: BoxFuture<'static, ()> = Box::pin(async move {
            if let Err(problem) = engine.admit().await {
                tracing::error!(%problem, "the queue could not advance; it is checked again in {} s", AGAIN.as_secs());
            }
        });
        tokio::spawn(work);
    }

    /// Starts every workflow for which there is room.
    pub(in crate::engine) async fn admit(&self) -> Result<(), Problem> {
        loop {
            // On a line of its own: in the loop's head the index would stay locked.
            let next = self.fleet.index().admission.next();
            let Some((workflow, machine)) = next else { return Ok(()) };
            let uid = self.fleet.store().machine(&machine).await?.and_then(|m| m.metadata.uid);
            let mut live = self.fleet.machines().lock(uid.unwrap_or_default()).await;
            let informed = if live.is_connected() {
                let looked = self.drive(&mut live, &machine, Input::LookAgain).await;
                self.or_cut(&mut live, looked)
            } else {
                self.fleet.index().admission.absent(&machine);
                Ok(())
            };
            // Held, in maintenance, or gone meanwhile: the next machine must not wait for it.
            if self.fleet.index().admission.next().is_some_and(|(same, _)| same == workflow) {
                self.fleet.index().admission.absent(&machine);
            }
            informed?;
        }
    }

    /// Writes down where those stand that wait; side by side, so that they share a commit.
    pub(in crate::engine) async fn show_queue(&self) -> Result<(), Problem> {
        let waiting = self.fleet.index().admission.waiting();
        let shown: Vec<_> = futures::stream::iter(waiting)
            .map(|(name, standing)| async move { self.show_place(&name, &standing).await })
            .buffer_unordered(PLACES)
            .collect()
            .await;
        shown.into_iter().collect()
    }

    async fn show_place(&self, name: &str, standing: &Standing) -> Result<(), Problem> {
        let Some(stored) = self.fleet.store().workflow(name).await? else { return Ok(()) };
        let mut shown = stored.clone();
        turn::show(&mut shown, standing, self.fleet.now());
        if shown == stored {
            return Ok(());
        }
        match self.fleet.store().documents().update(Document::from(shown)).await {
            // Another writer was faster and said something newer; the next look says this.
            Ok(_) | Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
