//! A run's state machine: (state, event, now) in, (state, effects) out. No I/O, no clock.
//!
//! What it promises, whatever arrives in whatever order: a terminal state never changes (a late phone-home is only
//! noted); no action is started twice under one attempt number; once a disk is known to carry this run's `done`
//! receipt, that disk is never written by this run again; every state but `Pending` has a deadline.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{
    ActionSpec, ActionState, ActionStatus, Authority, DiskReceipt, ErrorCode, Problem, Progress, ReceiptState,
    WorkflowPhase, WorkflowStatus,
};
use uuid::Uuid;

use super::{
    event::{ActionResult, EventBody, EventRecord},
    policy,
};

/// How often one action may be interrupted (power, a dead session) before the run gives up. Interruptions use up no
/// retry; without this bound a machine that dies in every attempt would try for ever.
pub const MAX_INTERRUPTIONS: u32 = 20;

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
        /// It outlived its last session and still works on this very run.
        still_running: bool,
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
    /// The installed system phoned home.
    PhonedHome,
    /// Time passed.
    Tick,
}

/// What is to be done about it.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send the list, from this action and under this attempt number.
    Assign {
        /// Index of the first action to do.
        start_index: u32,
        /// Its attempt.
        start_attempt: u32,
    },
    /// The agent has the list already; let it go on.
    RenewLease,
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
pub fn step(context: &Context, state: &WorkflowStatus, event: Event, now: Timestamp) -> (WorkflowStatus, Vec<Effect>) {
    let mut run = Run { context, state: state.clone(), effects: Vec::new(), now };
    match event {
        Event::AgentConnected { epoch, receipts, still_running } => run.connected(epoch, &receipts, still_running),
        Event::Agent { epoch, position, record } => run.reported(epoch, position, &record),
        Event::Cancelled(authority) => run.cancelled(&authority),
        Event::PhonedHome => run.phoned_home(),
        Event::Tick => run.tick(),
    }
    (run.state, run.effects)
}

struct Run<'c> {
    context: &'c Context,
    state: WorkflowStatus,
    effects: Vec<Effect>,
    now: Timestamp,
}

impl Run<'_> {
    /// The first action that has not succeeded.
    fn current(&self) -> Option<usize> {
        self.state.actions.iter().position(|a| a.state != ActionState::Succeeded)
    }

    fn connected(&mut self, epoch: u64, receipts: &[DiskReceipt], still_running: bool) {
        if epoch <= self.state.epoch && self.state.epoch != 0 {
            return;
        }
        match self.state.phase {
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
        let own = |r: &&DiskReceipt| r.receipt.workflow_uid == self.context.workflow_uid;
        let own: Vec<DiskReceipt> = receipts.iter().filter(own).cloned().collect();
        let lost = self.known_done().find(|known| {
            let (index, disk) = (known.receipt.action_index, &known.disk);
            !own.iter().any(|r| is_done(r) && r.receipt.action_index == index && r.disk.same_disk(disk))
        });
        if let Some(lost) = lost {
            let problem = Problem::new(
                ErrorCode::ReceiptMismatch,
                format!("disk {} was installed by this run and no longer carries its receipt", disk_name(lost)),
            )
            .hint("find out who changed the disk; provision again with --force to write it anew");
            return self.fail(problem);
        }
        for receipt in own {
            self.note_receipt(&receipt);
            if is_done(&receipt) {
                self.installed_before(receipt.receipt.action_index);
            }
        }
        if self.state.phase == WorkflowPhase::Pending {
            self.state.phase = WorkflowPhase::Running;
            self.state.started_at = Some(self.now);
        } else if still_running {
            return self.effects.push(Effect::RenewLease);
        }
        self.assign();
    }

    fn assign(&mut self) {
        let Some(index) = self.current() else { return self.end(WorkflowPhase::Succeeded) };
        let action = &mut self.state.actions[index];
        action.attempt += 1;
        if action.attempt - action.failures > MAX_INTERRUPTIONS {
            let name = action.action.name.clone();
            return self.fail(
                Problem::new(
                    ErrorCode::LimitReached,
                    format!("action \"{name}\" was interrupted {MAX_INTERRUPTIONS} times and never ended"),
                )
                .hint("the machine loses power or its agent dies in this action; look at its console"),
            );
        }
        action.state = ActionState::Running;
        action.started_at = None;
        action.ended_at = None;
        let start_attempt = action.attempt;
        self.set_deadline(index);
        // Cannot truncate: lists are bounded far below.
        self.effects.push(Effect::Assign { start_index: index as u32, start_attempt });
    }

    fn reported(&mut self, epoch: u64, position: u64, record: &EventRecord) {
        self.state.applied = self.state.applied.max(position);
        let index = record.action_index as usize;
        let stale = epoch < self.state.epoch
            || self.state.phase != WorkflowPhase::Running
            || self.current() != Some(index)
            || record.workflow_uid != self.context.workflow_uid;
        if stale {
            return;
        }
        let action = &mut self.state.actions[index];
        // The agent retries by itself: its next attempt may begin once the one before has failed.
        let retry = record.attempt == action.attempt + 1 && action.ended_at.is_some();
        match &record.body {
            EventBody::Started if retry || (record.attempt == action.attempt && action.ended_at.is_none()) => {
                action.state = ActionState::Running;
                action.attempt = record.attempt;
                action.started_at = Some(self.now);
                action.ended_at = None;
                self.set_deadline(index);
            }
            _ if record.attempt != action.attempt || action.ended_at.is_some() => {}
            EventBody::Started => {}
            EventBody::Finished { result } => {
                self.note_result(index, result);
                self.finished(index);
            }
            EventBody::Failed { problem, retryable } => self.failed(index, problem, *retryable),
            EventBody::ReceiptWritten { receipt } => self.note_receipt(receipt),
        }
    }

    /// Progress is thinned on its way, so what a write came to stands in its result alone.
    fn note_result(&mut self, index: usize, result: &ActionResult) {
        if let ActionResult::WriteImage { written: true, stored_bytes, raw_bytes, written_bytes, elapsed_ms, .. } =
            *result
        {
            self.state.actions[index].progress = Some(Progress {
                stored_bytes,
                stored_total: stored_bytes,
                raw_bytes,
                raw_total: raw_bytes,
                written_bytes,
                bytes_per_second: raw_bytes.saturating_mul(1000) / elapsed_ms.max(1),
                stage: "done".to_owned(),
                ..Progress::default()
            });
        }
    }

    fn finished(&mut self, index: usize) {
        self.succeed(index);
        let action = &self.state.actions[index];
        if matches!(action.action.spec, ActionSpec::Reboot(_)) {
            return self.rebooting();
        }
        if index + 1 == self.state.actions.len() {
            return self.end(WorkflowPhase::Succeeded);
        }
        let next = &mut self.state.actions[index + 1];
        // The agent goes on by itself, under this number; whoever comes after an interruption gets the next one.
        next.attempt += 1;
        self.set_deadline(index + 1);
    }

    fn failed(&mut self, index: usize, problem: &Problem, retryable: bool) {
        let done = self.known_done().any(|r| r.receipt.action_index as usize == index);
        let action = &mut self.state.actions[index];
        if problem.code == ErrorCode::LeaseExpired {
            // An interruption, not a failure: the agent has let go of its list and waits to be given it again.
            action.problem = Some(problem.clone());
            if done {
                self.succeed(index);
            }
            return self.assign();
        }
        action.failures += 1;
        action.ended_at = Some(self.now);
        action.problem = Some(problem.clone());
        let again = retryable && !done && action.failures < policy::max_attempts(&action.action);
        if again { self.set_deadline(index) } else { self.fail(problem.clone()) }
    }

    fn rebooting(&mut self) {
        self.state.rebooted_at = Some(self.now);
        match policy::phone_home(&self.state.actions, self.context.phone_home_deadline) {
            Some(deadline) => {
                self.state.phase = WorkflowPhase::Rebooting;
                self.state.deadline = after(self.now, deadline);
            }
            None => self.end(WorkflowPhase::Succeeded),
        }
    }

    fn cancelled(&mut self, authority: &Authority) {
        if self.state.phase.is_terminal() {
            return;
        }
        let reason = format!("cancelled by {}", authority.person);
        let had_agent = self.state.phase == WorkflowPhase::Running;
        self.state.problem = Some(Problem::new(ErrorCode::Cancelled, reason.clone()));
        self.skip_rest(ActionState::Skipped);
        self.end(WorkflowPhase::Cancelled);
        if had_agent {
            self.effects.push(Effect::StopAgent { reason });
        }
    }

    fn phoned_home(&mut self) {
        self.state.phoned_home_at.get_or_insert(self.now);
        // Also while `Running`: the reboot's own report may have been lost, and only a system that this run installed
        // has its token.
        if matches!(self.state.phase, WorkflowPhase::Running | WorkflowPhase::Rebooting) {
            for index in 0..self.state.actions.len() {
                if self.state.actions[index].state != ActionState::Succeeded {
                    self.succeed(index);
                }
            }
            self.state.rebooted_at.get_or_insert(self.now);
            self.end(WorkflowPhase::Succeeded);
        }
    }

    fn tick(&mut self) {
        if self.state.deadline.is_none_or(|deadline| deadline > self.now) {
            return;
        }
        match self.state.phase {
            WorkflowPhase::Running => {
                let waits = self.waits_for();
                self.fail(
                    Problem::new(ErrorCode::Timeout, format!("{waits} did not happen by its deadline"))
                        .hint("the machine may have lost power or network; look at its console, then provision again"),
                );
            }
            WorkflowPhase::Rebooting => {
                self.fail(Problem::new(ErrorCode::NoPhoneHome, "the installed system did not phone home in time").hint(
                    "it was installed and is never installed again by itself; look at its console. If it phones home \
                     later, the machine is set right",
                ))
            }
            _ => {}
        }
    }

    /// What a running run waits for, as the subject of a sentence.
    fn waits_for(&self) -> String {
        match self.current() {
            Some(index) => {
                let action = &self.state.actions[index];
                let what = if action.started_at.is_none() { "beginning" } else { "end" };
                format!("the {what} of attempt {} of action \"{}\"", action.attempt.max(1), action.action.name)
            }
            None => "the reboot".to_owned(),
        }
    }

    fn fail(&mut self, problem: Problem) {
        let had_agent = self.state.phase == WorkflowPhase::Running;
        let reason = problem.message.clone();
        if had_agent && let Some(index) = self.current() {
            self.state.actions[index].problem.get_or_insert_with(|| problem.clone());
        }
        self.state.problem = Some(problem);
        self.skip_rest(ActionState::Failed);
        self.end(WorkflowPhase::Failed);
        if had_agent {
            self.effects.push(Effect::StopAgent { reason });
        }
    }

    /// The action under way becomes `state`, those after it are skipped.
    fn skip_rest(&mut self, state: ActionState) {
        let Some(index) = self.current() else { return };
        for (n, action) in self.state.actions.iter_mut().enumerate().skip(index) {
            action.state = if n == index && action.attempt > 0 { state } else { ActionState::Skipped };
            if n == index {
                action.ended_at = Some(self.now);
            }
        }
    }

    fn end(&mut self, phase: WorkflowPhase) {
        self.state.phase = phase;
        self.state.ended_at = Some(self.now);
        self.state.deadline = None;
    }

    fn succeed(&mut self, index: usize) {
        let action = &mut self.state.actions[index];
        action.state = ActionState::Succeeded;
        action.ended_at = Some(self.now);
    }

    /// A `done` receipt of this run says that its action, and so all before it, had succeeded.
    fn installed_before(&mut self, action_index: u32) {
        let index = action_index as usize;
        let is_write = self.state.actions.get(index).is_some_and(is_write);
        for n in 0..=index {
            if is_write && self.state.actions[n].state != ActionState::Succeeded {
                self.succeed(n);
            }
        }
    }

    /// The receipts by which this run is known to have committed a disk.
    fn known_done(&self) -> impl Iterator<Item = &DiskReceipt> {
        let uid = self.context.workflow_uid;
        self.state.expected_receipts.iter().filter(move |r| r.receipt.workflow_uid == uid && is_done(r))
    }

    /// A receipt of this run takes the place of whatever was known of its disk; `done` is never taken back.
    fn note_receipt(&mut self, new: &DiskReceipt) {
        if new.receipt.workflow_uid != self.context.workflow_uid {
            return;
        }
        let same = |known: &DiskReceipt| known.disk.same_disk(&new.disk);
        if self.known_done().any(|known| same(known) && known.receipt.action_index == new.receipt.action_index) {
            return;
        }
        self.state.expected_receipts.retain(|known| !same(known));
        self.state.expected_receipts.push(new.clone());
    }

    fn set_deadline(&mut self, index: usize) {
        let action = &self.state.actions[index];
        let allowed = policy::allowed(&action.action, action.failures);
        // Twice the lease: an agent that is cut off may act for one, and needs time to come back.
        self.state.deadline = after(self.now, allowed + 2 * self.context.lease);
    }
}

fn is_done(receipt: &DiskReceipt) -> bool {
    receipt.receipt.state == ReceiptState::Done
}

fn is_write(action: &ActionStatus) -> bool {
    matches!(action.action.spec, ActionSpec::WriteImage(_))
}

fn disk_name(receipt: &DiskReceipt) -> &str {
    let disk = &receipt.disk;
    [&disk.name, &disk.serial, &disk.wwn, &disk.path].into_iter().find(|s| !s.is_empty()).map_or("?", String::as_str)
}

/// `now + duration`, or the end of time: a deadline that cannot be written down is never "now".
fn after(now: Timestamp, duration: Duration) -> Option<Timestamp> {
    Some(now.checked_add(duration).unwrap_or(Timestamp::MAX))
}
