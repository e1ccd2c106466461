//! The queue of installs: their order, and which of them run. Pure: the caller passes in the state of agents and
//! workflows.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use landfall_api::{ActionStatus, Purpose, Workflow, WorkflowStatus};
use landfall_machine::{is_running, run::frontier, turn::Standing, waits};

/// Runs whose place in the queue is written down anew in one look; those behind them show an older one meanwhile.
pub(in crate::engine) const PLACES: usize = 64;

/// The order of asking: the ticket, and the name for runs of an older version, which have none.
type Place = (u64, String);

/// What a run that asked is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not begun.
    Waits,
    /// It takes up room.
    Works,
    /// It has begun, but no agent works on it: a person paused it, or its agent has gone.
    Rests,
}

#[derive(Debug, Clone)]
struct Asked {
    machine: String,
    stage: Stage,
    /// Its agent is there and waits.
    present: bool,
}

impl Asked {
    fn works(&self) -> bool {
        self.stage == Stage::Works
    }

    fn is_ready(&self) -> bool {
        self.stage == Stage::Waits && self.present
    }
}

/// Every install that is asked for or under way.
pub(in crate::engine) struct Admission {
    limit: usize,
    runs: BTreeMap<Place, Asked>,
    places: HashMap<String, Place>,
    /// The places of each machine's runs.
    machines: HashMap<String, BTreeSet<Place>>,
    /// How many work.
    working: usize,
    /// Those that wait and whose agent is there.
    ready: BTreeSet<Place>,
    last_ticket: u64,
}

/// Whether anything of a run can be fetched before a person says more.
fn fetches(status: &WorkflowStatus) -> bool {
    let at = frontier(status);
    // What is under way when a run is paused goes on to its end.
    let may = |action: &ActionStatus| !action.holds() && (status.paused.is_none() || action.is_under_way());
    at.is_empty() || at.into_iter().filter_map(|index| status.action(index)).any(may)
}

impl Admission {
    pub(in crate::engine) fn new(limit: usize) -> Self {
        Self {
            limit,
            runs: BTreeMap::new(),
            places: HashMap::new(),
            machines: HashMap::new(),
            working: 0,
            ready: BTreeSet::new(),
            last_ticket: 0,
        }
    }

    /// So many may run at once from now on; those that run already go on.
    pub(in crate::engine) const fn allow(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// How many more may be at work than are.
    pub(in crate::engine) const fn places(&self) -> usize {
        self.limit.saturating_sub(self.working)
    }

    /// The next place in the order.
    pub(in crate::engine) fn ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Changes one run, and what is counted of all with it.
    fn change(&mut self, place: &Place, change: impl FnOnce(&mut Asked)) {
        let Some(asked) = self.runs.get_mut(place) else { return };
        let worked = asked.works();
        change(asked);
        self.working = self.working - usize::from(worked) + usize::from(asked.works());
        if asked.is_ready() {
            self.ready.insert(place.clone());
        } else {
            self.ready.remove(place);
        }
    }

    /// Takes in what a run has become.
    pub(in crate::engine) fn note(&mut self, workflow: &Workflow) {
        let (name, Some(status)) = (&workflow.metadata.name, &workflow.status) else { return };
        self.last_ticket = self.last_ticket.max(status.ticket);
        let stage = match (waits(workflow), is_running(workflow)) {
            (true, _) => None,
            (_, true) => Some(if fetches(status) { Stage::Works } else { Stage::Rests }),
            // Nothing is fetched any more.
            _ => return self.forget(name),
        };
        if workflow.spec.purpose != Purpose::Provision {
            return;
        }
        let place = match self.places.get(name) {
            Some(place) => place.clone(),
            None => self.add((status.ticket, name.clone()), &workflow.spec.machine),
        };
        if let Some(stage) = stage {
            self.change(&place, |asked| asked.stage = stage);
        }
    }

    fn add(&mut self, place: Place, machine: &str) -> Place {
        let asked = Asked { machine: machine.to_owned(), stage: Stage::Waits, present: false };
        self.runs.insert(place.clone(), asked);
        self.places.insert(place.1.clone(), place.clone());
        self.machines.entry(machine.to_owned()).or_default().insert(place.clone());
        place
    }

    pub(in crate::engine) fn forget(&mut self, workflow: &str) {
        let Some(place) = self.places.remove(workflow) else { return };
        self.ready.remove(&place);
        let Some(asked) = self.runs.remove(&place) else { return };
        self.working -= usize::from(asked.works());
        if let Some(places) = self.machines.get_mut(&asked.machine) {
            places.remove(&place);
            if places.is_empty() {
                self.machines.remove(&asked.machine);
            }
        }
    }

    /// A run's agent is there: whether it may begin, and if so it counts as running from now on.
    pub(in crate::engine) fn begin(&mut self, workflow: &str) -> bool {
        let Some(place) = self.places.get(workflow).cloned() else { return true };
        let free = self.limit.saturating_sub(self.working);
        let has_turn = self.ready.range(..place.clone()).take(free).count() < free;
        self.change(&place, |asked| {
            asked.present = true;
            if asked.stage == Stage::Waits && has_turn {
                asked.stage = Stage::Works;
            }
        });
        self.runs.get(&place).is_none_or(|asked| asked.stage != Stage::Waits)
    }

    /// It did not begin after all, or its agent has gone.
    pub(in crate::engine) fn absent(&mut self, machine: &str) {
        for place in self.machines.get(machine).cloned().unwrap_or_default() {
            self.change(&place, |asked| asked.present = false);
        }
    }

    /// Gives back what [`Admission::begin`] took, for a run that is not under way.
    pub(in crate::engine) fn did_not_begin(&mut self, workflow: &str) {
        if let Some(place) = self.places.get(workflow).cloned() {
            self.change(&place, |asked| asked.stage = Stage::Waits);
        }
    }

    /// No agent works on a workflow that has begun: its agent has gone, and its lease has ended.
    pub(in crate::engine) fn rest(&mut self, workflow: &str) {
        if let Some(place) = self.places.get(workflow).cloned() {
            self.change(&place, |asked| {
                if asked.works() {
                    asked.stage = Stage::Rests;
                }
            });
        }
    }

    /// The first whose agent waits, if there is room.
    pub(in crate::engine) fn next(&self) -> Option<(String, String)> {
        let ready = self.ready.first().filter(|_| self.working < self.limit)?;
        self.runs.get(ready).map(|run| (ready.1.clone(), run.machine.clone()))
    }

    /// Where a run stands that has not begun; `None` for any other.
    pub(in crate::engine) fn standing(&self, workflow: &str) -> Option<Standing> {
        let place = self.places.get(workflow)?;
        self.runs.get(place).filter(|run| run.stage == Stage::Waits)?;
        let before = self.runs.range(..place.clone()).filter(|(_, run)| run.stage == Stage::Waits).count();
        Some(self.after(before))
    }

    fn after(&self, before: usize) -> Standing {
        let free = self.limit.saturating_sub(self.working);
        if before < free {
            return Standing::Admitted;
        }
        Standing::Queued { place: before + 1 - free, running: self.working }
    }

    /// Those that have not begun, in their order, and where they stand.
    pub(in crate::engine) fn waiting(&self) -> Vec<(String, Standing)> {
        let waiting = self.runs.iter().filter(|(_, run)| run.stage == Stage::Waits);
        waiting.take(PLACES).enumerate().map(|(n, ((_, workflow), _))| (workflow.clone(), self.after(n))).collect()
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{API_VERSION, Kind, Metadata, WorkflowPhase, WorkflowSpec};

    use super::*;

    fn run(name: &str, ticket: u64, phase: WorkflowPhase) -> Workflow {
        Workflow {
            api_version: API_VERSION.into(),
            kind: Kind::Workflow,
            metadata: Metadata { name: name.into(), ..Metadata::default() },
            spec: WorkflowSpec { machine: format!("m-{name}"), ..WorkflowSpec::default() },
            status: Some(WorkflowStatus { phase, ticket, ..WorkflowStatus::default() }),
        }
    }

    fn queue(limit: usize, names: &[&str]) -> Admission {
        let mut queue = Admission::new(limit);
        for name in names {
            let ticket = queue.ticket();
            queue.note(&run(name, ticket, WorkflowPhase::Pending));
        }
        queue
    }

    #[test]
    fn the_queue_respects_its_limit_and_order() {
        let mut queue = queue(2, &["a", "b", "c", "d"]);
        assert_eq!(queue.standing("b"), Some(Standing::Admitted));
        assert_eq!(queue.standing("d"), Some(Standing::Queued { place: 2, running: 0 }));
        assert!(queue.begin("a") && queue.begin("b"));
        assert!(!queue.begin("d") && !queue.begin("c"));
        assert_eq!(queue.standing("c"), Some(Standing::Queued { place: 1, running: 2 }));
        assert_eq!(queue.next(), None);
        queue.note(&run("b", 2, WorkflowPhase::Failed));
        assert_eq!(queue.next().unwrap().0, "c", "not d, which came first");
        assert!(!queue.begin("d") && queue.begin("c"));
        queue.note(&run("a", 1, WorkflowPhase::Rebooting));
        assert!(queue.begin("d"), "nothing is fetched by a");
    }

    #[test]
    fn a_powered_off_machine_does_not_block_the_queue() {
        let mut queue = queue(1, &["off", "on", "third"]);
        assert!(queue.begin("on"));
        assert_eq!(queue.standing("off"), Some(Standing::Queued { place: 1, running: 1 }));
        assert!(!queue.begin("third"));
        queue.note(&run("on", 2, WorkflowPhase::Succeeded));
        assert_eq!(queue.next().unwrap().0, "third");
    }

    #[test]
    fn cancelled_and_deleted_workflows_leave_the_queue() {
        let mut queue = queue(1, &["a", "b", "c"]);
        assert!(queue.begin("a") && !queue.begin("b") && !queue.begin("c"));
        queue.note(&run("b", 2, WorkflowPhase::Cancelled));
        assert_eq!(queue.standing("c"), Some(Standing::Queued { place: 1, running: 1 }));
        queue.note(&run("a", 1, WorkflowPhase::Cancelled));
        queue.absent("m-c");
        assert_eq!(queue.next(), None, "its agent has gone");
        assert!(queue.begin("c"));
        queue.did_not_begin("c");
        assert_eq!(queue.next().unwrap().0, "c", "its agent is still there, and is asked again");
        queue.absent("m-c");
        assert!(queue.next().is_none() && queue.begin("c"));
    }

    #[test]
    fn the_queues_counts_always_match_its_entries() {
        let mut queue = queue(3, &["a", "b", "c", "d", "e", "f"]);
        let phases = [WorkflowPhase::Pending, WorkflowPhase::Running, WorkflowPhase::Failed];
        let mut dice = 7_u64;
        for _ in 0..5000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = (dice >> 33) as usize;
            let name = ["a", "b", "c", "d", "e", "f"][n % 6];
            match (n / 6) % 6 {
                0 => queue.note(&run(name, 1 + (n % 6) as u64, phases[(n / 36) % 3])),
                1 => drop(queue.begin(name)),
                2 => queue.absent(&format!("m-{name}")),
                3 => queue.did_not_begin(name),
                4 => queue.rest(name),
                _ => queue.forget(name),
            }
            assert_eq!(queue.working, queue.runs.values().filter(|run| run.works()).count());
            let ready: Vec<_> = queue.runs.iter().filter(|(_, run)| run.is_ready()).map(|(place, _)| place).collect();
            assert!(queue.ready.iter().eq(ready));
            assert_eq!(queue.places.len(), queue.runs.len());
            assert_eq!(queue.machines.values().map(BTreeSet::len).sum::<usize>(), queue.runs.len());
        }
    }

    #[test]
    fn the_order_survives_a_restart_and_deprovisioning_takes_no_place() {
        let mut again = Admission::new(1);
        again.note(&run("z", 1, WorkflowPhase::Running));
        again.note(&run("b", 7, WorkflowPhase::Pending));
        again.note(&run("a", 9, WorkflowPhase::Pending));
        assert_eq!(again.ticket(), 10);
        assert_eq!(again.standing("b"), Some(Standing::Queued { place: 1, running: 1 }));
        assert_eq!(again.standing("a"), Some(Standing::Queued { place: 2, running: 1 }));
        let mut clearing = run("clear", 11, WorkflowPhase::Pending);
        clearing.spec.purpose = Purpose::Deprovision;
        again.note(&clearing);
        assert!(again.begin("clear") && again.standing("clear").is_none());
    }
}
