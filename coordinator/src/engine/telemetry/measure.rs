//! How long actions take, counted when they end.

use std::time::Duration;

use landfall_api::Workflow;
use landfall_api::message::{ActionResult, EventBody};

use super::Telemetry;
use landfall_edge::metrics::metrics;

impl Telemetry {
    /// Counts an attempt that has just ended; `workflow` is the run after it.
    pub(in crate::engine) fn measure(&self, workflow: &Workflow, index: u32, body: &EventBody) {
        let outcome = match body {
            EventBody::Finished { .. } => "succeeded",
            EventBody::Failed { .. } => "failed",
            _ => return,
        };
        if let EventBody::Finished { result: ActionResult::WriteImage(wrote) } = body {
            metrics().image_stored_bytes.add(wrote.stored_bytes);
            metrics().image_written_bytes.add(wrote.written_bytes);
        }
        if let Some(uid) = workflow.metadata.uid {
            self.waiting.close_stage((uid, index), outcome == "succeeded", self.fleet.now());
        }
        let Some(action) = workflow.status.as_ref().and_then(|s| s.action(index as usize)) else { return };
        if let (Some(began), Some(ended)) = (action.started_at, action.ended_at)
            && let Ok(took) = Duration::try_from(ended.duration_since(began))
        {
            let labels = [("kind", action.action.spec.key()), ("outcome", outcome)];
            metrics().action_seconds.of(&labels).took(took);
        }
    }
}
