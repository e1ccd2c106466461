//! How far the store's knowledge reaches.
//!
//! A store that was put back from a copy does not know that it is old: it hands out the same names, generations and
//! epochs again, and holds requests that were carried out long ago. What gives it away: the coordinator notes once a
//! minute that it is there, and what was noted last is old; a machine carries a mark that this store has never seen; an
//! agent held an epoch that was never given, or goes on from reports that are not here. Then whatever was asked for before counts no more until a person decides.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{ConditionStatus, DiskReceipt, Machine, Problem, ReceiptState, Workflow, WorkflowPhase};

use super::{Engine, Hello, derive};
use landfall_store::{Store, StoreError};

/// The name under which it is noted that the coordinator was there.
const BEAT: &str = "store/alive";
/// How often that is noted.
const BEAT_EVERY: Duration = Duration::from_secs(60);
/// A coordinator that was away for longer does not know what became of the requests it holds.
pub(super) const BLIND_AFTER: Duration = Duration::from_secs(3600);

/// What the store may have missed: everything between the two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Horizon {
    /// The last moment it is known to have been written; absent if nothing says so.
    pub(super) as_of: Option<Timestamp>,
    /// When this process began to write it.
    pub(super) started: Timestamp,
    /// For how long an agent goes on without the coordinator.
    pub(super) lease: Duration,
}

impl Horizon {
    /// Whether requests that it holds are too old to be carried out.
    fn is_blind(&self) -> bool {
        // A beat from the future: the clock was set back, and a copy is never from the future.
        self.as_of
            .is_none_or(|as_of| as_of < self.started && self.started.duration_since(as_of).unsigned_abs() > BLIND_AFTER)
    }

    /// Whether this was written while nobody wrote the store, and for longer than an agent that the store itself has let
    /// begin could have gone on by its lease. (The commit of a run under way, made while the coordinator was down for a
    /// minute, is what a restart must take as it is.)
    fn misses(&self, receipt: &DiskReceipt) -> bool {
        let at = receipt.receipt.written_at;
        self.as_of.is_some_and(|as_of| {
            let away = self.started.duration_since(as_of).unsigned_abs();
            as_of < at && at < self.started && away > self.lease + BEAT_EVERY
        })
    }

    fn words(&self) -> String {
        match self.as_of {
            Some(as_of) => format!("the store knows nothing of the time from {as_of} to {}", self.started),
            None => format!("the store knows nothing of the time before {}", self.started),
        }
    }
}

/// A receipt that says more than the store knows, and why.
pub(super) fn newer<'h>(
    horizon: &Horizon,
    machine: &Machine,
    hello: &'h Hello,
    workflow: &Workflow,
) -> Option<(&'h DiskReceipt, &'static str)> {
    let run = workflow.status.as_ref().filter(|run| !run.phase.is_terminal())?;
    let own = |found: &&DiskReceipt| Some(found.receipt.workflow_uid) == workflow.metadata.uid;
    let known = |found: &DiskReceipt| {
        run.expected_receipts.iter().any(|r| r.disk.same_disk(&found.disk) && same_mark(r, found))
    };
    let never_begun = run.actions.iter().all(|action| action.attempt == 0);
    let held_by = machine.status.as_ref().and_then(|s| s.session.as_ref());
    let same_boot = held_by.is_some_and(|holder| holder.boot_id == hello.boot_id);
    hello.receipts.iter().filter(own).filter(|found| !known(found)).find_map(|found| {
        if never_begun {
            Some((found, "which this store has never begun"))
        } else if !same_boot && horizon.misses(found) {
            Some((found, "written while this store was not"))
        } else {
            None
        }
    })
}

fn same_mark(a: &DiskReceipt, b: &DiskReceipt) -> bool {
    (a.receipt.workflow_uid, a.receipt.action_index, a.receipt.state)
        == (b.receipt.workflow_uid, b.receipt.action_index, b.receipt.state)
}

/// Judges a machine's `StoreBehind` by what its agent says of itself.
pub(super) fn judge(machine: &mut Machine, hello: &Hello, workflow: Option<&Workflow>, at: (Timestamp, u64)) {
    let Some(status) = &mut machine.status else { return };
    let Some(run) = workflow.and_then(|w| w.status.as_ref()).filter(|run| !run.phase.is_terminal()) else { return };
    if hello.last_epoch > status.epoch {
        let message = format!(
            "its agent held epoch {}, which this store has never given: the store is an old copy",
            hello.last_epoch
        );
        return derive::set(&mut status.conditions, "StoreBehind", true, "EpochNeverGiven", message, at);
    }
    let open = derive::find(&status.conditions, "StoreBehind").filter(|c| c.status == ConditionStatus::Unknown);
    let Some(since) = open.map(|c| c.message.clone()) else { return };
    let same_boot = status.session.as_ref().is_some_and(|holder| holder.boot_id == hello.boot_id);
    let interrupted = hello.receipts.iter().any(|found| {
        found.receipt.state == ReceiptState::Intent
            && run.expected_receipts.iter().any(|r| r.disk.same_disk(&found.disk) && same_mark(r, found))
    });
    let (behind, reason, message) = if same_boot {
        (false, "SameAgent", "its agent was there all the time".to_owned())
    } else if interrupted {
        (false, "Interrupted", "its disk carries this very run, interrupted".to_owned())
    } else {
        (true, "MachineRestarted", since)
    };
    derive::set(&mut status.conditions, "StoreBehind", behind, reason, message, at);
}

/// For a store that was just put back from a copy: nothing says any more when it was last written, so that whatever it
/// holds of requests waits for a person.
///
/// # Errors
/// [`StoreError`] of the back end.
pub(crate) async fn forget_last_beat(store: &Store) -> Result<(), StoreError> {
    store.secrets().consume(BEAT, Timestamp::MIN).await.map(drop)
}

impl Engine {
    /// Reads when the store was last written.
    pub(super) async fn last_beat(store: &Store, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
        // `Timestamp::MIN`: a beat counts whatever the clock says now.
        let bytes = store.secrets().get(BEAT, Timestamp::MIN).await?;
        let read = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).and_then(|text| text.parse().ok());
        if read.is_none() {
            tracing::info!(%now, "nothing says when this store was last written");
        }
        Ok(read)
    }

    /// Notes that the coordinator is there, once in [`BEAT_EVERY`].
    pub(super) async fn beat(&self) -> Result<(), Problem> {
        let now = self.now();
        {
            let mut last = self.inner.beat.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if last.is_some_and(|last| now.duration_since(last).unsigned_abs() < BEAT_EVERY) {
                return Ok(());
            }
            *last = Some(now);
        }
        Ok(self.inner.store.secrets().put(BEAT, now.to_string().as_bytes(), Timestamp::MAX).await?)
    }

    /// At the start: what was asked for before a time of which the store knows nothing waits for a person; what was
    /// under way, for its agent.
    pub(super) async fn mark_what_is_behind(&self, workflows: &[Workflow]) -> Result<(), Problem> {
        let horizon = self.inner.horizon;
        if !horizon.is_blind() {
            return Ok(());
        }
        for workflow in workflows {
            let Some(run) = workflow.status.as_ref().filter(|run| !run.phase.is_terminal()) else { continue };
            let (status, reason, what) = match run.phase {
                WorkflowPhase::Pending => (ConditionStatus::True, "AskedBefore", "was asked for before that"),
                WorkflowPhase::Running => (ConditionStatus::Unknown, "AwaitsAgent", "was under way before that"),
                _ => continue,
            };
            let name = &workflow.metadata.name;
            let message = format!(
                "{}, and run \"{name}\" {what}; if it is still wanted: landfall provision {} --force, else: \
                 landfall cancel {name}",
                horizon.words(),
                workflow.spec.machine
            );
            tracing::warn!(machine = %workflow.spec.machine, workflow = %name, "{message}");
            let now = self.now();
            let marked = self
                .mutate_machine(&workflow.spec.machine, |machine| {
                    let at = (now, machine.metadata.generation);
                    let machine_status = machine.status.get_or_insert_with(derive::new_machine_status);
                    if machine_status.workflow.as_deref() == Some(name) {
                        derive::put(&mut machine_status.conditions, "StoreBehind", status, reason, &message, at);
                        derive::phase(machine);
                    }
                })
                .await;
            match marked {
                Err(problem) if problem.code == landfall_api::ErrorCode::NotFound => {}
                // Unmarked it could be carried out.
                Err(problem) => self.give_up(workflow, "its machine cannot be marked", problem).await?,
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// An agent goes on from reports that were acknowledged and are not here.
    pub(super) async fn mark_events_missing(&self, machine: &str, run: &str) -> Result<(), Problem> {
        let now = self.now();
        self.mutate_machine(machine, |machine| {
            let name = &machine.metadata.name;
            let message = format!(
                "its agent goes on from reports of run \"{run}\" that this store does not have: the store is an old \
                 copy. The run goes on to its end; if it has none, landfall provision {name} --force starts anew, and \
                 landfall cancel {run} ends it"
            );
            let at = (now, machine.metadata.generation);
            let under_way = self.index().is_active(run);
            let status = machine.status.get_or_insert_with(derive::new_machine_status);
            if under_way && status.workflow.as_deref() == Some(run) {
                derive::set(&mut status.conditions, "StoreBehind", true, "EventsMissing", message, at);
                derive::phase(machine);
            }
        })
        .await
        .map(drop)
    }
}
