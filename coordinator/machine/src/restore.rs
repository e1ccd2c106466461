//! How far the store's knowledge reaches.
//!
//! A store that was put back from a copy does not know that it is old: it hands out the same names, generations and
//! epochs again, and holds requests that were carried out long ago. What gives it away: the coordinator notes once a
//! minute that it is there, and what was noted last is old; a machine carries a receipt that this store has never seen; an
//! agent held an epoch that was never given, or goes on from reports that are not here. Then what was asked for before
//! counts no more until a person decides.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_api::message::Hello;
use landfall_api::{
    ConditionStatus, ConditionType as Type, DiskReceipt, Machine, Reason, ReceiptState, Workflow, WorkflowPhase,
    WorkflowStatus,
};

use crate::{derive, time::Steady};

/// How often the coordinator notes that it is there.
pub const BEAT_EVERY: Duration = Duration::from_secs(60);
/// A coordinator that was away for longer does not know what became of the requests it holds.
const BLIND_AFTER: Duration = Duration::from_secs(3600);

/// What the store may have missed: everything between the two.
#[derive(Debug, Clone, Copy)]
pub struct Horizon {
    /// The last moment it is known to have been written; absent if nothing says so.
    pub as_of: Option<Timestamp>,
    /// When this process began to write it.
    pub started: Timestamp,
    /// For how long an agent goes on without the coordinator.
    pub lease: Duration,
}

impl Horizon {
    /// Whether requests that it holds are too old to be carried out.
    pub fn is_blind(&self) -> bool {
        // A beat from the future: the clock was set back, and a copy is never from the future.
        self.as_of
            .is_none_or(|as_of| as_of < self.started && self.started.duration_since(as_of).unsigned_abs() > BLIND_AFTER)
    }

    /// Whether this was written while no coordinator wrote the store, and for longer than an agent that the store itself has
    /// let begin could have gone on by its lease. (The commit of a workflow under way, made while the coordinator was down
    /// for a minute, is what a restart must take as it is.) Where nothing says when the store was last written, that is any
    /// moment before the start.
    fn misses(&self, receipt: &DiskReceipt) -> bool {
        let at = receipt.receipt.written_at;
        at < self.started
            && self.as_of.is_none_or(|as_of| {
                let away = self.started.duration_since(as_of).unsigned_abs();
                as_of < at && away > self.lease + BEAT_EVERY
            })
    }

    /// For how long the coordinator was away, if it was for longer than it takes to start again; negative where the clock was
    /// set back meanwhile. `last_heard`: the newest moment that the machine's own document knows of, where nothing says when the
    /// store was last written.
    pub(crate) fn away(&self, last_heard: Option<Timestamp>) -> Option<SignedDuration> {
        let away = self.started.duration_since(self.as_of.or(last_heard)?);
        (away.unsigned_abs() > 2 * BEAT_EVERY).then_some(away)
    }

    /// Until when agents may be acting on leases that this store does not know: it was put back from a copy, and the process
    /// before this one gave them since the copy was made. None of them is younger than this process.
    pub const fn unknown_leases_end(&self) -> Steady {
        Steady::START.plus(self.lease)
    }

    /// Whether there may be such leases still: nothing says when the store was last written, which is how `restore` leaves it.
    /// (A coordinator that was only away, for however long, knows every lease.)
    pub fn misses_leases(&self, now: Steady) -> bool {
        self.as_of.is_none() && now < self.unknown_leases_end()
    }

    fn words(&self) -> String {
        match self.as_of {
            Some(as_of) => format!("the store has no data for the time from {as_of} to {}", self.started),
            None => format!("the store has no data for the time before {}", self.started),
        }
    }
}

/// A receipt that says more than the store knows, and why. `same_boot`: its agent is the one whose disks the store heard of
/// last.
pub(crate) fn newer<'h>(
    horizon: &Horizon, receipts: &'h [DiskReceipt], same_boot: bool, workflow: &Workflow,
) -> Option<(&'h DiskReceipt, &'static str)> {
    let run = workflow.status.as_ref().filter(|run| !run.phase.is_terminal())?;
    let own = |found: &&DiskReceipt| Some(found.receipt.workflow_uid) == workflow.metadata.uid;
    let never_begun = run.actions.iter().all(|action| action.attempt == 0);
    receipts.iter().filter(own).filter(|found| !expects(run, found)).find_map(|found| {
        if never_begun {
            Some((found, "which this store has never begun"))
        } else if !same_boot && horizon.misses(found) {
            Some((found, "written while this store was not"))
        } else {
            None
        }
    })
}

fn expects(run: &WorkflowStatus, found: &DiskReceipt) -> bool {
    let of = |r: &DiskReceipt| (r.receipt.workflow_uid, r.receipt.action_index, r.receipt.state);
    run.expected_receipts.iter().any(|r| r.disk.same_disk(&found.disk) && of(r) == of(found))
}

/// Marks a machine whose agent held an epoch that the store never gave as `StoreBehind`.
pub(crate) fn judge_epoch(machine: &mut Machine, hello: &Hello, workflow: Option<&Workflow>, at: (Timestamp, u64)) {
    let open = workflow.and_then(|w| w.status.as_ref()).is_some_and(|run| !run.phase.is_terminal());
    let Some(status) = machine.status.as_mut().filter(|status| open && hello.last_epoch > status.epoch) else { return };
    let message = format!(
        "its agent held epoch {}, which this store has never assigned: the store is an old copy",
        hello.last_epoch
    );
    derive::set(&mut status.conditions, Type::StoreBehind, true, Reason::EpochNeverGiven, message, at);
}

/// Judges a machine's `StoreBehind`, where that waits for its agent, by what its disks carry.
pub(crate) fn judge_disks(
    machine: &mut Machine, receipts: &[DiskReceipt], same_boot: bool, workflow: Option<&Workflow>, at: (Timestamp, u64),
) {
    let Some(status) = &mut machine.status else { return };
    let Some(run) = workflow.and_then(|w| w.status.as_ref()).filter(|run| !run.phase.is_terminal()) else { return };
    let open = derive::find(&status.conditions, &Type::StoreBehind).filter(|c| c.status == ConditionStatus::Unknown);
    let Some(since) = open.map(|c| c.message.clone()) else { return };
    let interrupted = receipts.iter().any(|found| found.receipt.state == ReceiptState::Intent && expects(run, found));
    let (behind, reason, message) = if same_boot {
        (false, Reason::SameAgent, "its agent was connected all the time".to_owned())
    } else if interrupted {
        (false, Reason::Interrupted, "its disk carries the receipt of this interrupted workflow".to_owned())
    } else {
        (true, Reason::MachineRestarted, since)
    };
    derive::set(&mut status.conditions, Type::StoreBehind, behind, reason, message, at);
}

/// At the start after a time of which the store knows nothing: what was asked for before it waits for a person; what was
/// under way, for its agent. Says whether the machine is marked.
pub fn mark_behind(machine: &mut Machine, workflow: &Workflow, horizon: &Horizon, now: Timestamp) -> bool {
    if !horizon.is_blind() {
        return false;
    }
    let name = &workflow.metadata.name;
    let (status, reason, what) = match workflow.status.as_ref().map(|run| run.phase) {
        Some(WorkflowPhase::Pending) => {
            let what = format!("was requested before that; to let it begin use landfall confirm {name}");
            (ConditionStatus::True, Reason::AskedBefore, what)
        }
        Some(WorkflowPhase::Running) => {
            let machine = &workflow.spec.machine;
            let what = format!("was running before that; to run it anyway use landfall provision {machine} --force");
            (ConditionStatus::Unknown, Reason::AwaitsAgent, what)
        }
        _ => return false,
    };
    let message = format!("{}, and workflow \"{name}\" {what}, else landfall cancel {name}", horizon.words());
    let at = (now, machine.metadata.generation);
    let machine_status = machine.status.get_or_insert_default();
    derive::put(&mut machine_status.conditions, Type::StoreBehind, status, reason, &message, at);
    derive::phase(machine);
    true
}

/// An agent goes on from reports that were acknowledged and are not here.
pub(crate) fn mark_events_missing(machine: &mut Machine, workflow: &Workflow, now: Timestamp) {
    if workflow.status.as_ref().is_none_or(|run| run.phase.is_terminal()) {
        return;
    }
    let (name, run) = (&machine.metadata.name, &workflow.metadata.name);
    let message = format!(
        "its agent continues from reports of workflow \"{run}\" that this store does not have: the store is an old \
            copy. The workflow continues to its end; if it does not end, use landfall provision {name} --force for a \
            new one, or landfall cancel {run}"
    );
    let at = (now, machine.metadata.generation);
    let status = machine.status.get_or_insert_default();
    derive::set(&mut status.conditions, Type::StoreBehind, true, Reason::EventsMissing, message, at);
    derive::phase(machine);
}

#[cfg(test)]
mod tests {
    use landfall_api::{
        API_VERSION, Action, ActionStatus, Condition, DiskId, Kind, MachineSpec, Metadata, Receipt, SessionHolder,
        WorkflowSpec,
    };
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const RUN: Uuid = Uuid::from_u128(7);
    const LEASE: Duration = Duration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    /// Started at 10,000 s.
    fn horizon(as_of: Option<i64>) -> Horizon {
        Horizon { as_of: as_of.map(at), started: at(10_000), lease: LEASE }
    }

    fn receipt(state: ReceiptState, written_at: i64) -> DiskReceipt {
        let disk = DiskId { serial: "x".into(), size_bytes: 1 << 30, ..DiskId::default() };
        let receipt = Receipt {
            machine_uid: Uuid::from_u128(1),
            workflow_uid: RUN,
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state,
            written_at: at(written_at),
        };
        DiskReceipt { disk, receipt }
    }

    /// Its newest session is of boot "a".
    fn machine() -> Machine {
        let mut status = landfall_api::MachineStatus::default();
        let holder = SessionHolder { boot_id: "a".into(), ..SessionHolder::default() };
        (status.epoch, status.session) = (4, Some(holder));
        Machine {
            api_version: API_VERSION.into(),
            kind: Kind::Machine,
            metadata: Metadata { name: "m".into(), generation: 1, ..Metadata::default() },
            spec: MachineSpec::default(),
            status: Some(status),
        }
    }

    fn workflow(phase: WorkflowPhase, attempt: u32, expected: Vec<DiskReceipt>) -> Workflow {
        let action: Action = serde_json::from_value(json!({"name": "a", "hold": {"message": "look"}})).unwrap();
        let status = WorkflowStatus {
            phase,
            actions: vec![ActionStatus { attempt, ..ActionStatus::pending(action) }],
            expected_receipts: expected,
            ..WorkflowStatus::default()
        };
        Workflow {
            api_version: API_VERSION.into(),
            kind: Kind::Workflow,
            metadata: Metadata { name: "w".into(), uid: Some(RUN), ..Metadata::default() },
            spec: WorkflowSpec { machine: "m".into(), ..WorkflowSpec::default() },
            status: Some(status),
        }
    }

    fn behind(machine: &Machine) -> Option<&Condition> {
        derive::find(&machine.status.as_ref()?.conditions, &Type::StoreBehind)
    }

    #[test]
    fn more_than_an_hour_away_is_blind() {
        assert!(horizon(None).is_blind());
        assert!(!horizon(Some(6400)).is_blind() && horizon(Some(6399)).is_blind());
        assert!(!horizon(Some(20_000)).is_blind(), "a copy is never from the future");
    }

    #[test]
    fn away_counts_from_the_newest_moment_that_is_known() {
        let away = |as_of, heard: Option<i64>| horizon(as_of).away(heard.map(at)).map(|away| away.as_secs());
        assert_eq!(away(Some(9880), None), None, "as long as it takes to start again");
        assert_eq!(away(Some(9879), Some(9999)), Some(121));
        assert_eq!((away(None, Some(9000)), away(None, None)), (Some(1000), None));
        assert_eq!(away(Some(10_120), None), None);
        assert_eq!(away(Some(20_000), None), Some(-10_000), "the clock was set back");
    }

    #[test]
    fn a_receipt_written_while_the_store_was_not_is_missed() {
        let misses = |as_of, written| horizon(as_of).misses(&receipt(ReceiptState::Done, written));
        assert!(!misses(Some(9000), 9000) && misses(Some(9000), 9001));
        assert!(misses(Some(9000), 9999) && !misses(Some(9000), 10_000));
        assert!(!misses(Some(9880), 9900) && misses(Some(9879), 9900), "an agent goes on for a lease");
        assert!(misses(None, 0) && !misses(None, 10_000));
    }

    #[test]
    fn only_an_undated_store_misses_leases_and_only_for_one() {
        let steady = |second| Steady::after_start(Duration::from_secs(second));
        assert!(horizon(None).misses_leases(steady(59)) && !horizon(None).misses_leases(steady(60)));
        assert!(!horizon(Some(0)).misses_leases(steady(0)));
    }

    #[test]
    fn a_newer_receipt_is_the_workflows_own_and_unexpected() {
        let (none, done) = (Vec::new, receipt(ReceiptState::Done, 9500));
        let found = |boot, run: &Workflow| {
            newer(&horizon(Some(9000)), std::slice::from_ref(&done), boot == "a", run).map(|(_, what)| what)
        };
        assert_eq!(found("a", &workflow(WorkflowPhase::Pending, 0, none())), Some("which this store has never begun"));
        let running = |expected| workflow(WorkflowPhase::Running, 1, expected);
        assert_eq!(found("b", &running(none())), Some("written while this store was not"));
        assert_eq!(found("a", &running(none())), None, "its agent is there to tell");
        assert_eq!(found("b", &running(vec![done.clone()])), None);
        let begun = receipt(ReceiptState::Intent, 9500);
        assert!(found("b", &running(vec![begun])).is_some(), "another state");
        assert_eq!(found("b", &workflow(WorkflowPhase::Failed, 1, none())), None);
        let other = Workflow { metadata: Metadata::default(), ..running(none()) };
        assert_eq!(found("b", &other), None);
    }

    #[test]
    fn what_was_under_way_is_judged_by_its_agent() {
        let judged = |boot, receipts: Vec<DiskReceipt>, expected| {
            let (mut machine, run) = (machine(), workflow(WorkflowPhase::Running, 1, expected));
            assert!(mark_behind(&mut machine, &run, &horizon(None), at(10_000)));
            assert_eq!(behind(&machine).unwrap().status, ConditionStatus::Unknown);
            judge_disks(&mut machine, &receipts, boot == "a", Some(&run), (at(10_001), 1));
            let condition = behind(&machine).unwrap();
            (condition.status == ConditionStatus::True, condition.reason.clone())
        };
        let begun = || vec![receipt(ReceiptState::Intent, 9500)];
        assert_eq!(judged("a", Vec::new(), Vec::new()), (false, Reason::SameAgent));
        assert_eq!(judged("b", begun(), begun()), (false, Reason::Interrupted));
        assert_eq!(judged("b", begun(), Vec::new()), (true, Reason::MachineRestarted));
        let done = || vec![receipt(ReceiptState::Done, 9500)];
        assert_eq!(judged("b", done(), done()), (true, Reason::MachineRestarted));
    }

    #[test]
    fn an_epoch_never_given_marks_an_open_workflow_alone() {
        let marked = |last_epoch, phase| {
            let (mut machine, run) = (machine(), workflow(phase, 1, Vec::new()));
            let hello = Hello { boot_id: "a".into(), last_epoch, ..Hello::default() };
            judge_epoch(&mut machine, &hello, Some(&run), (at(10_001), 1));
            behind(&machine).map(|condition| condition.reason.clone())
        };
        assert_eq!(marked(5, WorkflowPhase::Running), Some(Reason::EpochNeverGiven));
        assert_eq!(marked(4, WorkflowPhase::Running), None);
        assert_eq!(marked(5, WorkflowPhase::Failed), None);
    }

    #[test]
    fn only_what_is_open_is_marked_behind() {
        let marked = |as_of, phase| {
            let mut machine = machine();
            let marked = mark_behind(&mut machine, &workflow(phase, 0, Vec::new()), &horizon(as_of), at(10_000));
            assert_eq!(marked, behind(&machine).is_some());
            behind(&machine).map(|condition| condition.reason.clone())
        };
        assert_eq!(marked(None, WorkflowPhase::Pending), Some(Reason::AskedBefore));
        assert_eq!(marked(Some(0), WorkflowPhase::Running), Some(Reason::AwaitsAgent));
        assert_eq!(marked(None, WorkflowPhase::Rebooting), None);
        assert_eq!(marked(Some(9999), WorkflowPhase::Pending), None);
    }

    #[test]
    fn missing_events_mark_what_is_open() {
        let marked = |phase| {
            let mut machine = machine();
            mark_events_missing(&mut machine, &workflow(phase, 1, Vec::new()), at(10_000));
            behind(&machine).map(|condition| condition.reason.clone())
        };
        assert_eq!(marked(WorkflowPhase::Running), Some(Reason::EventsMissing));
        assert_eq!(marked(WorkflowPhase::Succeeded), None);
    }
}
