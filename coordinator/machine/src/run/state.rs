//! A run's state machine: (state, event, now) in, (state, effects) out. No I/O, no clock.
//!
//! What it promises, whatever arrives in whatever order: a terminal state never changes (a late phone-home is only
//! noted); no action is started twice under one attempt number; once a disk is known to carry this run's `done`
//! receipt, that disk is never written by this run again, unless a layout of several disks was interrupted; every state has a deadline but `Pending`, which waits for a
//! person to power the machine on and says so in a condition.
//!
//! This file has what agents and time do to a run; [`super::control`] what persons do; [`super::ending`] how it ends.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_api::message::{EventBody, EventRecord, Start};
use landfall_api::{
    ActionOutcome, ActionState, Authority, DiskReceipt, ErrorCode, Problem, WorkflowPhase, WorkflowStatus,
};
use uuid::Uuid;

use super::frontier::{frontier, is_write, needs, up_to};
use super::receipts::{disk_name, is_done, is_own, known_done, may_be_done, may_be_open, note_receipt};
use super::results::{leave_out, note_late_result, note_result};
use super::{policy, restarts};

/// What stays the same for the whole run.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The run.
    pub workflow_uid: Uuid,
    /// How long an agent may act unheard; a deadline leaves room for it.
    pub lease: Duration,
    /// For templates that name no deadline of their own.
    pub phone_home_deadline: Duration,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// An agent holds the machine's newest session.
    AgentConnected {
        /// The session's epoch.
        epoch: u64,
        /// Every receipt it found.
        receipts: Vec<DiskReceipt>,
        /// It outlived its last session and still holds this very run's list.
        still_running: bool,
        /// The protocol revision it speaks.
        protocol: u32,
    },
    /// The machine has booted again, and no action asked for that: what was under way was interrupted.
    Rebooted {
        /// The kernel's id of this boot.
        boot_id: String,
    },
    /// The agent reported something, and the log holds it.
    Agent {
        /// The epoch of the session it came by.
        epoch: u64,
        /// Its position in the log.
        position: u64,
        /// What it reported.
        record: Box<EventRecord>,
    },
    /// A person stopped the run.
    Cancelled(Authority),
    /// A person wants no other action begun.
    Paused(Authority),
    /// A person lets it go on: after a pause, else past the hold it stands at.
    Resumed,
    /// The installed system phoned home.
    PhonedHome,
    /// Time passed.
    Tick,
    /// The coordinator cannot go on with it.
    GivenUp(Box<Problem>),
    /// The clock was set forward by so much, or back: time that did not pass.
    ClockSet(SignedDuration),
}

/// What is to be done about it.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send the list, to be begun at these actions at once: one a branch.
    Assign {
        /// Never empty; by index.
        starts: Vec<Start>,
    },
    /// The agent has the list already; let it go on.
    RenewLease,
    /// Tell the agent what persons want of its list: whether it is paused, which holds are released.
    Control,
    /// Tell the agent that there is nothing to do.
    Idle {
        /// Boot the own disk now.
        boot_disk: bool,
    },
    /// Tell the agent to stop this run.
    StopAgent {
        /// Why, for the console.
        reason: String,
    },
}

/// Applies one event.
pub fn step(context: &Context, state: WorkflowStatus, event: &Event, now: Timestamp) -> (WorkflowStatus, Vec<Effect>) {
    let mut run = Run { context, state, effects: Vec::new(), now };
    match event {
        Event::AgentConnected { epoch, receipts, still_running, protocol } => {
            run.connected(*epoch, receipts, *still_running, *protocol);
        }
        Event::Rebooted { boot_id } => restarts::note(&mut run.state, boot_id, now),
        Event::Agent { epoch, position, record } => run.reported(*epoch, *position, record),
        Event::Cancelled(authority) => run.cancelled(authority),
        Event::Paused(authority) => run.paused(authority),
        Event::Resumed => run.resumed(),
        Event::PhonedHome => run.phoned_home(),
        Event::Tick => run.tick(),
        Event::GivenUp(problem) => run.given_up((**problem).clone()),
        Event::ClockSet(by) => run.clock_set(*by),
    }
    run.set_deadline();
    (run.state, run.effects)
}

pub(super) struct Run<'c> {
    pub(super) context: &'c Context,
    pub(super) state: WorkflowStatus,
    pub(super) effects: Vec<Effect>,
    pub(super) now: Timestamp,
}

impl Run<'_> {
    fn connected(&mut self, epoch: u64, receipts: &[DiskReceipt], still_running: bool, protocol: u32) {
        if epoch <= self.state.epoch && self.state.epoch != 0 {
            return;
        }
        match self.state.phase {
            WorkflowPhase::Pending if self.state.paused.is_some() => {
                return self.effects.push(Effect::Idle { boot_disk: false });
            }
            WorkflowPhase::Pending | WorkflowPhase::Running => {}
            // Netbooted again before it phoned home: what was installed is to start.
            WorkflowPhase::Rebooting | WorkflowPhase::Succeeded => {
                return self.effects.push(Effect::Idle { boot_disk: true });
            }
            WorkflowPhase::Failed | WorkflowPhase::Cancelled => {
                return self.effects.push(Effect::Idle { boot_disk: false });
            }
        }
        self.state.epoch = epoch;
        if protocol < needs(&self.state) {
            return self.too_old(protocol);
        }
        if self.state.ending.is_some() {
            return self.connected_while_ending(still_running);
        }
        let own: Vec<DiskReceipt> =
            receipts.iter().filter(|r| is_own(self.context.workflow_uid, &self.state, r)).cloned().collect();
        let lost = known_done(self.context.workflow_uid, &self.state).find(|known| {
            let (index, disk) = (known.receipt.action_index, &known.disk);
            let open = may_be_open(&self.state, index as usize);
            let stands = |r: &&DiskReceipt| r.receipt.action_index == index && r.disk.same_disk(disk);
            !own.iter().filter(stands).any(|r| is_done(r) || open)
        });
        if let Some(lost) = lost {
            let problem = Problem::new(
                ErrorCode::ReceiptMismatch,
                format!("disk {} was installed by this workflow and no longer carries its receipt", disk_name(lost)),
            )
            .hint("find out what changed the disk; to write it again, provision with --force");
            return self.fail(problem);
        }
        if let Some(problem) = may_be_done(self.context.workflow_uid, &self.state, &own).filter(|_| !still_running) {
            return self.fail(problem);
        }
        for receipt in own {
            note_receipt(self.context.workflow_uid, &mut self.state, &receipt);
            if is_done(&receipt) {
                self.installed_before(receipt.receipt.action_index);
            }
        }
        if self.state.phase == WorkflowPhase::Pending {
            self.state.phase = WorkflowPhase::Running;
            self.state.started_at = Some(self.now);
            let whole = policy::whole(&self.state, self.context.lease, self.context.phone_home_deadline);
            self.state.end_by = Some(after(self.now, whole));
        } else if still_running {
            self.state.held_under = epoch;
            self.goes_on();
            return self.effects.extend([Effect::RenewLease, Effect::Control]);
        }
        if self.state.paused.is_some() {
            self.interrupted();
            return self.effects.push(Effect::Idle { boot_disk: false });
        }
        self.assign();
    }

    /// A receipt may have shown an action's end before the agent's own report does: it goes on with the next of that
    /// branch, or with the next stage, under the number that [`Self::finished`] would have given it. Were that left to
    /// the report, an agent that comes after an interruption would be given the same number again, and its events be taken for
    /// repeats.
    fn goes_on(&mut self) {
        for index in frontier(&self.state) {
            if let Some(action) = self.state.action_mut(index).filter(|action| action.attempt == 0) {
                action.attempt = 1;
                self.allow(index);
            }
        }
    }

    /// No agent holds the list any more: what was under way is begun anew, under the next number, when it goes on.
    fn interrupted(&mut self) {
        self.state.held_under = 0;
        for index in frontier(&self.state) {
            if let Some(action) = self.state.action_mut(index) {
                action.deadline = None;
                // That it has begun is what forbids another attempt.
                if !policy::runs_once(&action.action) {
                    action.started_at = None;
                }
            }
        }
    }

    /// A receipt may have come by itself, while no agent held the list: what it says is done is not ordered again.
    fn take_in_receipts(&mut self) {
        if self.state.ending.is_none() {
            let done: Vec<u32> =
                known_done(self.context.workflow_uid, &self.state).map(|r| r.receipt.action_index).collect();
            for index in done {
                self.installed_before(index);
            }
        }
    }

    pub(super) fn assign(&mut self) {
        self.take_in_receipts();
        let at = frontier(&self.state);
        if at.is_empty() {
            return self.nothing_left();
        }
        let mut starts = Vec::with_capacity(at.len());
        for index in at {
            let Some(action) = self.state.action_mut(index) else { continue };
            if let Some(problem) = restarts::too_many(action) {
                return self.fail(problem);
            }
            action.attempt += 1;
            action.state = ActionState::Running;
            action.started_at = None;
            action.ended_at = None;
            // Cannot truncate: lists are bounded far below.
            starts.push(Start { index: index as u32, attempt: action.attempt });
            self.allow(index);
        }
        self.state.held_under = self.state.epoch;
        self.effects.push(Effect::Assign { starts });
    }

    fn reported(&mut self, epoch: u64, position: u64, record: &EventRecord) {
        self.state.applied = self.state.applied.max(position);
        let index = record.action_index as usize;
        if record.workflow_uid == self.context.workflow_uid && epoch >= self.state.epoch {
            note_late_result(&mut self.state, index, record);
        }
        let stale = epoch < self.state.epoch
            || self.state.phase != WorkflowPhase::Running
            || record.workflow_uid != self.context.workflow_uid
            || !frontier(&self.state).contains(&index);
        let now = self.now;
        let Some(action) = self.state.action_mut(index).filter(|_| !stale) else { return };
        // The agent retries by itself: its next attempt may begin once the one before has failed.
        let retry = record.attempt == action.attempt + 1 && action.ended_at.is_some();
        match &record.body {
            EventBody::Started if retry || (record.attempt == action.attempt && action.ended_at.is_none()) => {
                action.state = ActionState::Running;
                action.attempt = record.attempt;
                action.started_at = Some(now);
                action.moved_at = Some(now);
                action.ended_at = None;
                self.allow(index);
            }
            _ if record.attempt != action.attempt || action.ended_at.is_some() => {}
            EventBody::Started => {}
            EventBody::Finished { result } => {
                note_result(self.context.workflow_uid, &mut self.state, index, result);
                self.finished(index);
            }
            EventBody::Skipped => {
                let before = frontier(&self.state);
                leave_out(&mut self.state, index, now);
                self.moves_on(&before);
            }
            EventBody::Failed { problem, retryable } => self.failed(index, problem, *retryable),
            EventBody::ReceiptWritten { receipt } => note_receipt(self.context.workflow_uid, &mut self.state, receipt),
            EventBody::DiskWiped { report } => {
                // What is wiped carries no mark.
                self.state.expected_receipts.retain(|known| !report.disk.same_disk(&known.disk));
                let wiped = &mut self.state.wiped;
                wiped.retain(|known| !known.disk.same_disk(&report.disk));
                wiped.push(report.clone());
                wiped.drain(..wiped.len().saturating_sub(policy::MAX_WIPED));
            }
            EventBody::HealthTested { report } => {
                let tested = &mut self.state.tested;
                tested.retain(|known| !known.same_part(report));
                tested.push(report.clone());
                tested.drain(..tested.len().saturating_sub(policy::MAX_TESTED));
            }
        }
    }

    pub(super) fn finished(&mut self, index: usize) {
        let before = frontier(&self.state);
        self.succeed(index);
        self.moves_on(&before);
    }

    /// The agent goes on by itself with what stands at the front now, and did not before.
    fn moves_on(&mut self, before: &[usize]) {
        let at = frontier(&self.state);
        if at.is_empty() {
            return self.nothing_left();
        }
        for next in at.into_iter().filter(|next| !before.contains(next)) {
            // The agent goes on by itself, under this number; an agent that comes after an interruption gets the next one.
            if let Some(action) = self.state.action_mut(next) {
                action.attempt += 1;
            }
            self.allow(next);
        }
    }

    fn failed(&mut self, index: usize, problem: &Problem, retryable: bool) {
        // The receipt of a layout's first disk says nothing of its others.
        let writes = self.state.action(index).is_some_and(is_write);
        let done = writes
            && known_done(self.context.workflow_uid, &self.state).any(|r| r.receipt.action_index as usize == index);
        let (now, ending) = (self.now, self.state.ending);
        let Some(action) = self.state.action_mut(index) else { return };
        action.problem = Some(problem.clone());
        if problem.code == ErrorCode::LeaseExpired && ending.is_none() {
            // An interruption, not a failure: the agent has let go of its list and waits to be given it again.
            if done {
                self.succeed(index);
            }
            return if self.state.paused.is_some() { self.interrupted() } else { self.assign() };
        }
        action.failures += 1;
        action.ended_at = Some(now);
        let again = retryable && !done && action.failures < policy::max_attempts(&action.action);
        match ending {
            _ if again => self.allow(index),
            None => self.fail(problem.clone()),
            // What is done after a failure changes nothing of how the run ends.
            Some(phase) => {
                action.state = ActionState::Failed;
                self.end(phase);
            }
        }
    }

    fn tick(&mut self) {
        if self.state.deadline.is_none_or(|deadline| deadline > self.now) {
            return;
        }
        let now = self.now;
        let over = |limit: Option<Timestamp>| limit.is_some_and(|limit| limit <= now);
        let looked = "read its console, then provision it again, or continue with landfall retry";
        match (self.state.phase, self.state.ending, &self.state.paused) {
            (_, Some(phase), _) => self.end(phase),
            (WorkflowPhase::Pending | WorkflowPhase::Running, None, Some(pause)) if over(Some(pause.until)) => {
                let message = format!("it was paused by {} and not resumed within 7 days", pause.by);
                self.fail(Problem::new(ErrorCode::Timeout, message).hint("continue with landfall retry"));
            }
            (WorkflowPhase::Running, None, None) if over(self.state.end_by) => {
                let message = format!(
                    "the workflow did not end within its timeout; it waited for {}",
                    self.waits_for()
                );
                let hint = "increase the template's timeout, or find the slow step with landfall events";
                self.fail(Problem::new(ErrorCode::Timeout, message).hint(hint));
            }
            (WorkflowPhase::Running, None, _) => {
                let message = format!("{} did not happen by its deadline", self.waits_for());
                let hint = format!("the machine may have lost power or network; {looked}");
                // The agent that let it pass is not there to do what follows a failure.
                self.fail_unheard(Problem::new(ErrorCode::Timeout, message).hint(hint));
            }
            (WorkflowPhase::Rebooting, ..) => {
                self.fail(Problem::new(ErrorCode::NoPhoneHome, "the installed system did not phone home in time").hint(
                    "it is installed, and only a person can install it again; read its console, and check its network, its \
                        clock and its time server. If it phones home later, the machine becomes Provisioned",
                ))
            }
            _ => {}
        }
    }

    /// What had time left before has as much of it now.
    fn clock_set(&mut self, by: SignedDuration) {
        if self.state.phase.is_terminal() {
            return;
        }
        let later = |at: &mut Option<Timestamp>| *at = at.map(|at| moved(at, by));
        later(&mut self.state.deadline);
        later(&mut self.state.end_by);
        if let Some(pause) = &mut self.state.paused {
            (pause.since, pause.until) = (moved(pause.since, by), moved(pause.until, by));
        }
        for action in self.state.actions.iter_mut().chain(&mut self.state.on_failure) {
            later(&mut action.deadline);
            if action.is_under_way() {
                later(&mut action.moved_at);
            }
        }
    }

    /// What a running workflow waits for, as the subject of a sentence: the next deadline.
    pub(super) fn waits_for(&self) -> String {
        let due = |index: &usize| self.state.action(*index).and_then(|a| a.deadline).unwrap_or(Timestamp::MAX);
        match frontier(&self.state).into_iter().min_by_key(due).and_then(|index| self.state.action(index)) {
            Some(action) => {
                let what = if action.started_at.is_none() { "beginning" } else { "end" };
                format!("the {what} of attempt {} of action \"{}\"", action.attempt.max(1), action.action.name)
            }
            None => "the reboot".to_owned(),
        }
    }

    pub(super) fn succeed(&mut self, index: usize) {
        let now = self.now;
        if let Some(action) = self.state.action_mut(index) {
            action.state = ActionState::Succeeded;
            action.ended_at = Some(now);
            action.deadline = None;
        }
    }

    /// A `done` receipt of this run says that its action, and so all before it, had succeeded.
    fn installed_before(&mut self, action_index: u32) {
        let index = action_index as usize;
        if !self.state.actions.get(index).is_some_and(is_write) {
            return;
        }
        for n in up_to(&self.state, index) {
            if self.state.actions.get(n).is_some_and(|a| !a.is_over()) {
                self.succeed(n);
            }
        }
        // Its own condition held; how those before it ended is not known.
        if let Some(action) = self.state.actions.get_mut(index).filter(|action| action.action.when.is_some()) {
            action.outcome.get_or_insert_with(ActionOutcome::done);
        }
    }

    /// Gives an action its time, from now.
    pub(super) fn allow(&mut self, index: usize) {
        let (now, lease, paused) = (self.now, self.context.lease, self.state.paused.is_some());
        let Some(action) = self.state.action_mut(index) else { return };
        if paused && !action.is_under_way() {
            // It may not begin; the pause has an end of its own.
            action.deadline = None;
            return;
        }
        let allowed = policy::allowed(&action.action, action.failures);
        // Twice the lease: an agent that is cut off may act for one, and needs time to come back.
        action.deadline = Some(after(now, allowed + 2 * lease));
    }

    /// The run's deadline is the nearest of all it stands under.
    fn set_deadline(&mut self) {
        let state = &self.state;
        let actions = || frontier(state).into_iter().filter_map(|index| state.action(index)?.deadline);
        let paused = state.paused.as_ref().map(|pause| pause.until);
        self.state.deadline = match state.phase {
            WorkflowPhase::Pending => paused,
            WorkflowPhase::Running if state.ending.is_some() => actions().min(),
            WorkflowPhase::Running => actions().chain(paused.or(state.end_by)).min(),
            // Set when the machine went down.
            WorkflowPhase::Rebooting => state.deadline,
            WorkflowPhase::Succeeded | WorkflowPhase::Failed | WorkflowPhase::Cancelled => None,
        };
    }
}

/// `now + duration`, or the end of time: a deadline that cannot be written down is never "now".
pub(super) fn after(now: Timestamp, duration: Duration) -> Timestamp {
    now.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// `at` on a clock that was set forward by so much, or back.
fn moved(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}
