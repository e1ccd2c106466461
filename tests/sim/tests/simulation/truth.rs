//! What must hold, judged with full knowledge: every violation ends the simulation of its seed.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_api::message::{ActionRef, EventBody};
use landfall_api::{Document, WorkflowPhase};
use tokio::time::Instant;
use uuid::Uuid;

/// Shared by all who take part.
#[derive(Clone)]
pub(crate) struct Truth(Arc<Mutex<Known>>);

pub(crate) struct Known {
    begun: Instant,
    pub(crate) violations: Vec<String>,
    /// What happened, in order; two runs of one seed have the same.
    pub(crate) trace: String,
    /// Which computer writes at this moment.
    writer: Option<u64>,
    /// The newest number that the coordinator acknowledged, of each attempt, and what each number said.
    pub(crate) acked: HashMap<ActionRef, BTreeMap<u64, &'static str>>,
    /// The highest epoch that any agent was welcomed with.
    welcomed: u64,
    pub(crate) crashes: u32,
    /// Coordinators that lost their store to the next one.
    pub(crate) takeovers: u32,
    /// Statuses that a crash took back to what the disk had.
    pub(crate) taken_back: u32,
    pub(crate) commits: u32,
}

impl Truth {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Known {
            begun: Instant::now(),
            violations: Vec::new(),
            trace: String::new(),
            writer: None,
            acked: HashMap::new(),
            welcomed: 0,
            crashes: 0,
            takeovers: 0,
            taken_back: 0,
            commits: 0,
        })))
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn saw(&self, what: impl AsRef<str>) {
        self.with(|known| known.saw(what.as_ref()));
    }

    pub(crate) fn violated(&self, what: impl Into<String>) {
        self.with(|known| known.violated(what.into()));
    }

    /// A computer begins to write; what is returned ends it, also when the computer loses its power.
    pub(crate) fn writing(&self, computer: u64) -> Writing {
        self.with(|known| {
            if let Some(other) = known.writer.replace(computer) {
                known.violated(format!("two writers at once: computers {other} and {computer}"));
            }
        });
        Writing(self.clone())
    }

    pub(crate) fn welcomed(&self, epoch: u64) {
        self.with(|known| {
            if epoch <= known.welcomed {
                known.violated(format!("epoch {epoch} was given out after {}", known.welcomed));
            }
            known.welcomed = known.welcomed.max(epoch);
        });
    }

    /// A document was replaced.
    pub(crate) fn changed(&self, before: &Document, after: &Document) {
        self.with(|known| match (before, after) {
            (Document::Machine(old), Document::Machine(new)) => {
                let epoch = |status: &Option<landfall_api::MachineStatus>| status.as_ref().map_or(0, |s| s.epoch);
                let (old, new) = (epoch(&old.status), epoch(&new.status));
                if new < old {
                    known.violated(format!("the stored epoch fell from {old} to {new}"));
                }
                known.saw(&format!("machine epoch {new}"));
            }
            (Document::Workflow(old), Document::Workflow(new)) => {
                let (Some(old), Some(new)) = (&old.status, &new.status) else { return };
                if old.phase.is_terminal() && (old.phase, old.ended_at) != (new.phase, new.ended_at) {
                    known.violated(format!("a terminal state changed from {:?} to {:?}", old.phase, new.phase));
                }
                let actions: Vec<_> = new.actions.iter().map(|a| (a.state, a.attempt)).collect();
                known.saw(&format!("workflow {:?} {actions:?}", new.phase));
            }
            _ => {}
        });
    }

    /// The workflow has ended: everything acknowledged must be in its log, and success must be on a disk.
    pub(crate) fn ended(
        &self, run: Uuid, phase: WorkflowPhase, logged: &HashMap<(ActionRef, u64), &'static str>, installed: bool,
    ) {
        self.with(|known| {
            if phase == WorkflowPhase::Succeeded && !installed {
                known.violated("the workflow succeeded, but no disk carries its receipt".into());
            }
            let lost: Vec<_> = known
                .acked
                .iter()
                .filter(|(action, _)| action.workflow_uid == run)
                .flat_map(|(action, events)| events.iter().map(move |(seq, what)| (*action, *seq, *what)))
                .filter(|(action, seq, what)| logged.get(&(*action, *seq)) != Some(what))
                .collect();
            for (action, seq, what) in lost {
                let logged = logged.get(&(action, seq));
                known.violated(format!(
                    "event {seq} ({what}) of action {}, attempt {} was acknowledged, but the log has {logged:?}",
                    action.action_index, action.attempt
                ));
            }
        });
    }
}

impl Known {
    fn saw(&mut self, what: &str) {
        let _infallible = writeln!(self.trace, "{:>9} {what}", self.begun.elapsed().as_millis());
    }
    fn violated(&mut self, what: String) {
        self.saw(&format!("VIOLATION: {what}"));
        self.violations.push(what);
    }
}

/// Held while a computer writes.
pub(crate) struct Writing(Truth);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.with(|known| known.writer = None);
    }
}

/// An event in a word.
pub(crate) fn word(kind: &EventBody) -> &'static str {
    match kind {
        EventBody::Started => "started",
        EventBody::Finished { .. } => "finished",
        EventBody::Failed { .. } => "failed",
        EventBody::Skipped => "skipped",
        EventBody::ReceiptWritten { .. } => "receiptWritten",
        EventBody::DiskWiped { .. } => "diskWiped",
        EventBody::HealthTested { .. } => "healthTested",
    }
}
