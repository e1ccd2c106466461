//! What must hold, judged with full knowledge: every violation ends the simulation of its seed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_api::message::{ActionRef, EventBody};
use landfall_api::{Machine, Workflow, WorkflowPhase, WorkflowStatus};
use landfall_session::LeaseWatch;
use landfall_store::StoreError;
use tokio::time::Instant;
use uuid::Uuid;

/// Where an agent is to begin, it hears of that sooner than this. A coordinator counts it for a lease.
const SOON: Duration = Duration::from_secs(30);
/// A workflow that waits has less news than this.
const STEADY: u32 = 100;

/// Shared by all who take part.
#[derive(Clone)]
pub(crate) struct Truth(Arc<Mutex<Known>>);

pub(crate) struct Known {
    begun: Instant,
    pub(crate) violations: Vec<String>,
    /// What happened, in order; two runs of one seed have the same.
    pub(crate) trace: String,
    /// Which computer of a machine writes at this moment.
    writers: BTreeMap<Uuid, u64>,
    /// The newest number that the coordinator acknowledged, of each attempt, and what each number said.
    pub(crate) acked: HashMap<ActionRef, BTreeMap<u64, &'static str>>,
    /// The highest epoch that any agent of a machine was welcomed with.
    welcomed: BTreeMap<String, u64>,
    pub(crate) crashes: u32,
    /// Coordinators that lost their store to the next one.
    pub(crate) takeovers: u32,
    /// Statuses that a crash took back to what the disk had.
    pub(crate) taken_back: u32,
    /// How often another one of several coordinators led.
    pub(crate) leads: u32,
    /// How often a machine went on at another one of them.
    pub(crate) moves: u32,
    pub(crate) commits: u32,
    /// The epoch of the newest session of each workflow's machine, as it is stored.
    taken_up: BTreeMap<Uuid, u64>,
    /// How often what an older session reported was refused by the store alone.
    pub(crate) fenced: u32,
    /// Workflows that have begun.
    started: BTreeSet<Uuid>,
    /// How often each was written before.
    waiting: BTreeMap<Uuid, u32>,
    /// Those that have begun, and of which no agent has heard yet.
    beginning: BTreeMap<Uuid, Instant>,
    /// The leases by which computers work on workflows.
    leases: BTreeMap<(Uuid, u64), LeaseWatch>,
    /// On how many of them agents may work.
    pub(crate) limit: usize,
}

impl Truth {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Known {
            begun: Instant::now(),
            violations: Vec::new(),
            trace: String::new(),
            writers: BTreeMap::new(),
            acked: HashMap::new(),
            welcomed: BTreeMap::new(),
            crashes: 0,
            takeovers: 0,
            taken_back: 0,
            leads: 0,
            moves: 0,
            commits: 0,
            taken_up: BTreeMap::new(),
            fenced: 0,
            started: BTreeSet::new(),
            waiting: BTreeMap::new(),
            beginning: BTreeMap::new(),
            leases: BTreeMap::new(),
            limit: usize::MAX,
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
    pub(crate) fn writing(&self, machine: Uuid, computer: u64) -> Writing {
        self.with(|known| {
            if let Some(other) = known.writers.insert(machine, computer) {
                known.violated(format!("two writers at once: computers {other} and {computer}"));
            }
        });
        Writing(self.clone(), machine)
    }

    /// An agent works on a workflow, or works no more.
    pub(crate) fn works(&self, workflow: Uuid, computer: u64, lease: Option<LeaseWatch>) {
        self.with(|known| {
            known.beginning.remove(&workflow);
            match lease {
                Some(lease) => drop(known.leases.insert((workflow, computer), lease)),
                None => drop(known.leases.remove(&(workflow, computer))),
            }
        });
    }

    pub(crate) fn welcomed(&self, machine: &str, epoch: u64) {
        self.with(|known| {
            let newest = known.welcomed.get(machine).copied().unwrap_or_default();
            if epoch <= newest {
                known.violated(format!("epoch {epoch} of {machine} was given out after {newest}"));
            }
            known.welcomed.insert(machine.to_owned(), epoch.max(newest));
        });
    }

    /// A machine's document was replaced. `workflow`: its newest.
    pub(crate) fn machine_changed(&self, old: &Machine, new: &Machine, workflow: Option<Uuid>) {
        let epoch = |machine: &Machine| machine.status.as_ref().map_or(0, |status| status.epoch);
        let (name, before, after) = (&new.metadata.name, epoch(old), epoch(new));
        self.with(|known| {
            if after < before {
                known.violated(format!("the stored epoch of {name} fell from {before} to {after}"));
            }
            if after == before && owner(old) != owner(new) {
                known.violated(format!("{name} has another coordinator in the same epoch {after}"));
            }
            known.taken_up.extend(workflow.map(|of| (of, after)));
            known.moves += u32::from(owner(old).is_some() && owner(old) != owner(new));
            known.saw(&format!("{name} epoch {after} {}", owner(new).unwrap_or_default()));
        });
    }

    /// What a session of that epoch reported of these workflows came to the store.
    pub(crate) fn appended(&self, workflows: &[Uuid], epoch: u64, outcome: &Result<Vec<u64>, StoreError>) {
        self.with(|known| {
            let newer = workflows.iter().filter_map(|of| known.taken_up.get(of)).copied().find(|newer| *newer > epoch);
            match (outcome, newer) {
                (Ok(_), Some(newer)) => {
                    known.violated(format!("an event of session {epoch} was stored after session {newer} had begun"));
                }
                (Err(StoreError::NewerEpoch { .. }), _) => known.fenced += 1,
                _ => {}
            }
        });
    }

    /// A workflow was replaced. `by`: the URL of the coordinator that did, where there are several; `machine` is as it is stored then.
    pub(crate) fn workflow_changed(&self, by: Option<&str>, machine: &Machine, old: &Workflow, new: &Workflow) {
        let (uid, name) = (new.metadata.uid.unwrap(), &new.spec.machine);
        let Some(old) = &old.status else { return };
        let Some(new) = &new.status else { return self.violated(format!("a workflow of {name} lost its status")) };
        self.with(|known| {
            let end = |status: &WorkflowStatus| {
                (status.phase, status.ended_at, status.actions.clone(), status.problem.clone())
            };
            if old.phase.is_terminal() && end(old) != end(new) {
                known.violated(format!("a terminal state changed from {:?} to {:?}", old.phase, new.phase));
            }
            let actions =
                |status: &WorkflowStatus| status.actions.iter().map(|a| (a.state, a.attempt)).collect::<Vec<_>>();
            let (before, after) = (actions(old), actions(new));
            // A person, or the installed system, may come to any coordinator.
            let asked = matches!(new.phase, WorkflowPhase::Cancelled | WorkflowPhase::Succeeded);
            if let Some(by) = by.filter(|by| Some(*by) != owner(machine) && before != after && !asked) {
                known.violated(format!("{by} wrote what the agent of {name} did, at {:?}", owner(machine)));
            }
            if by.is_some() && old.phase == WorkflowPhase::Pending && new.phase == WorkflowPhase::Running {
                if !known.started.insert(uid) {
                    known.violated(format!("a workflow of {name} began twice"));
                }
                let works = known.leases.iter().filter(|(_, lease)| lease.is_valid()).map(|((of, _), _)| *of);
                let begins = known.beginning.iter().filter(|(_, at)| at.elapsed() < SOON).map(|(of, _)| *of);
                let others: BTreeSet<_> = works.chain(begins).filter(|of| *of != uid).collect();
                if others.len() >= known.limit {
                    known.violated(format!(
                        "a workflow began beside {}, {} may be under way",
                        others.len(),
                        known.limit
                    ));
                }
                known.beginning.insert(uid, Instant::now());
            }
            if by.is_some() && old.phase == WorkflowPhase::Running && new.phase == WorkflowPhase::Pending {
                known.violated(format!("a workflow of {name} is as if it had not begun"));
            }
            if new.phase != WorkflowPhase::Running {
                known.leases.retain(|(of, _), _| *of != uid);
                known.beginning.remove(&uid);
            }
            if [old.phase, new.phase] == [WorkflowPhase::Pending; 2] {
                let written = known.waiting.entry(uid).or_default();
                *written += 1;
                if *written == STEADY {
                    known.violated(format!("a workflow of {name} that waits was written {STEADY} times"));
                }
            }
            known.saw(&format!("workflow of {name} {:?} {after:?}", new.phase));
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
pub(crate) struct Writing(Truth, Uuid);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.with(|known| known.writers.remove(&self.1));
    }
}

/// The URL of the coordinator that has the machine's session.
fn owner(machine: &Machine) -> Option<&str> {
    machine.status.as_ref()?.session.as_ref()?.coordinator.as_deref()
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
