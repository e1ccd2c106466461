//! A workflow moves on: what its agent reported is judged, its own state machine steps, the machine's document follows,
//! and the lease with it.

use landfall_api::message::{ActionResult, EventBody, EventRecord, WriteImageResult};
use landfall_api::{
    ActionSpec, ActionState, ActionStatus, ConditionType as Type, ErrorCode, Problem, Reason, WorkflowPhase,
    WorkflowStatus,
};

use crate::context::Step;
use crate::effect::{Effect, Tell, Which};
use crate::epoch::Epoch;
use crate::run::Context;
use crate::{derive, run};

/// The protocol revision from which agents can be paused.
pub(crate) const CONTROL_PROTOCOL: u32 = 2;

/// An agent reported something, and the log holds it.
pub(crate) fn reported(step: &mut Step<'_>, epoch: Epoch, of: Which, events: Vec<(u64, EventRecord)>) {
    takes_in_late(step, of, &events);
    let events = judged(step, of, epoch.get(), events);
    take_in_receipts(step, &events);
    advance(step, of, events);
}

/// What the log held beyond the status when the coordinator started. There is no session to inform: the agent
/// that comes back is.
pub(crate) fn replayed(step: &mut Step<'_>, events: Vec<(u64, EventRecord)>) {
    let epoch = step.state.newest.as_ref().and_then(|w| w.status.as_ref()).map_or(0, |status| status.epoch);
    let events = judged(step, Which::Newest, epoch, events);
    take_in_receipts(step, &events);
    advance(step, Which::Newest, events);
}

/// The events as they count. The result of another kind of action proves nothing of this one: a write would count as
/// done without its receipt.
fn judged(step: &Step<'_>, of: Which, epoch: u64, events: Vec<(u64, EventRecord)>) -> Vec<run::Event> {
    let status = step.state.workflow(of).and_then(|workflow| workflow.status.as_ref());
    let judge = |(position, mut record): (u64, EventRecord)| {
        if let EventBody::Finished { result } = &record.body
            && let Some(action) = status.and_then(|status| status.action(record.action_index as usize))
            && !result.is_of(&action.action.spec)
        {
            let (name, kind) = (&action.action.name, action.action.spec.key());
            let message = format!("the agent reported the result of another kind of action for \"{name}\" ({kind})");
            let problem = Problem::new(ErrorCode::VersionSkew, message)
                .hint("build the boot image from the coordinator's release, then provision the machine again");
            record.body = EventBody::Failed { problem, retryable: false };
        }
        // An action without a condition is never left out.
        if record.body == EventBody::Skipped
            && let Some(action) = status.and_then(|status| status.action(record.action_index as usize))
            && action.action.when.is_none()
        {
            let message = format!("the agent left \"{}\" out, which has no condition", action.action.name);
            let problem = Problem::new(ErrorCode::VersionSkew, message)
                .hint("build the boot image from the coordinator's release, then provision the machine again");
            record.body = EventBody::Failed { problem, retryable: false };
        }
        run::Event::Agent { epoch, position, record: Box::new(record) }
    };
    events.into_iter().map(judge).collect()
}

/// What an agent did to its disks before it heard that its workflow has ended: the workflow stays as it is, and the machine's
/// document says what the disks carry. Otherwise the next workflow would expect what was there before.
fn takes_in_late(step: &mut Step<'_>, of: Which, events: &[(u64, EventRecord)]) {
    let (Which::Newest, Some(status)) = (of, step.newest_status()) else { return };
    if !status.phase.is_terminal() {
        return;
    }
    let (applied, mut changed) = (status.applied, false);
    let machine = step.state.machine.status.get_or_insert_default();
    for (_, record) in events.iter().filter(|(position, _)| *position > applied) {
        let (disk, receipt) = match &record.body {
            EventBody::ReceiptWritten { receipt }
            | EventBody::Finished {
                result: ActionResult::WriteImage(WriteImageResult { receipt: Some(receipt), .. }),
            } => (&receipt.disk, Some(receipt)),
            EventBody::DiskWiped { report } => (&report.disk, None),
            _ => continue,
        };
        machine.receipts.retain(|known| !known.disk.same_disk(disk));
        machine.receipts.extend(receipt.cloned());
        changed = true;
    }
    if changed {
        step.stores_machine();
    }
}

fn take_in_receipts(step: &mut Step<'_>, events: &[run::Event]) {
    for event in events {
        if let run::Event::Agent { record, .. } = event {
            takes_in_receipt(step, &record.body);
        }
    }
}

fn takes_in_receipt(step: &mut Step<'_>, body: &EventBody) {
    if let EventBody::ReceiptWritten { receipt }
    | EventBody::Finished { result: ActionResult::WriteImage(WriteImageResult { receipt: Some(receipt), .. }) } =
        body
        && let Some(session) = &mut step.state.session
    {
        session.wrote(receipt);
    }
    // `NoReceipt`: the image left no room for one, so from now on only a person starts an install of this machine.
    match body {
        EventBody::Finished { result: ActionResult::WriteImage(WriteImageResult { receipt: Some(_), .. }) } => {
            step.sets(Type::NoReceipt, false, Reason::Written, "the disk carries its receipt");
        }
        EventBody::Finished { result: ActionResult::WriteImage(WriteImageResult { receipt: None, .. }) } => {
            let message = "the image's partition table has no room for a receipt";
            step.sets(Type::NoReceipt, true, Reason::NoRoom, message);
        }
        _ => {}
    }
}

/// Applies events to a workflow in their order.
pub(crate) fn advance(step: &mut Step<'_>, which: Which, events: Vec<run::Event>) {
    let (limits, now) = (step.limits, step.now);
    let Some(workflow) = step.state.workflow_mut(which) else { return };
    let before = workflow.clone();
    let (Some(uid), Some(status)) = (workflow.metadata.uid, workflow.status.take()) else { return };
    let context = Context { workflow_uid: uid, lease: limits.lease, phone_home_deadline: limits.phone_home_deadline };
    let moved = !status.phase.is_terminal();
    let (mut status, mut effects, mut stopped) = (status, Vec::new(), None);
    for (n, event) in events.iter().enumerate() {
        let (next, asked) = run::step(&context, status, event, now.wall);
        status = next;
        effects.extend(asked);
        if stopped.is_none() && !is_running(&status) {
            stopped = Some(n);
        }
    }
    // Most events move an action on, and say nothing of the machine: its document is not even copied.
    // (Without an event the start asks whether the two are in line.)
    let same = before.status.as_ref().is_some_and(|before| derive::says_the_same(before, &status));
    let is_news = events.is_empty() || !same;
    workflow.status = Some(status);
    derive::workflow(workflow, now.wall);
    step.stores_workflow(which);
    if is_news {
        brings_machine_in_line(step, which, moved);
    }
    if let Some(by) = stopped {
        let (led, rest) = events.split_at(by);
        // Made again rather than kept: few batches end a workflow.
        let again = |status, event| run::step(&context, status, event, now.wall).0;
        let was = before.status.clone().map(|first| led.iter().fold(first, again)).filter(is_running);
        stops(step, uid, was.as_ref(), rest);
    }
    let is_said = effects.iter().any(|effect| matches!(effect, run::Effect::Idle { .. }));
    for effect in effects {
        carries_out(step, which, uid, effect);
    }
    // An agent that was to end with its workflow waits for it.
    let has_ended = moved && step.phase(Which::Newest).is_some_and(WorkflowPhase::is_terminal);
    if which == Which::Newest && has_ended && !is_said {
        step.idles(false);
    }
}

/// `moved`: the workflow had not ended, so what it says of the disks is news; else the agent's own word is newer.
fn brings_machine_in_line(step: &mut Step<'_>, which: Which, moved: bool) {
    let now = step.now.wall;
    // An older workflow's story must not cover the newest one's.
    let (Which::Newest, Some(workflow)) = (which, &step.state.newest) else { return };
    let machine = &mut step.state.machine;
    if moved {
        derive::receipts(machine, workflow);
        derive::wiped(machine, workflow);
        derive::tested(machine, workflow);
    }
    derive::conditions(machine, Some(workflow), now);
    step.stores_machine();
}

/// A workflow's document is stored before its machine's. Where a crash or a failing disk came between, the machine still counts
/// as at work on a workflow that has ended: what it missed is taken in by whatever happens next.
pub(crate) fn catches_up(step: &mut Step<'_>) {
    let Some(workflow) = &step.state.newest else { return };
    if derive::is_behind(&step.state.machine, workflow) {
        brings_machine_in_line(step, Which::Newest, true);
    }
}

/// The workflow has ceased to run. An agent that is only asked to stop may act until it says that it has, or until its
/// lease ends.
fn stops(step: &mut Step<'_>, uid: uuid::Uuid, before: Option<&WorkflowStatus>, events: &[run::Event]) {
    let Some(session) = step.state.session.as_mut().filter(|session| session.lease.is_held()) else { return };
    if let Some(before) = before {
        session.lease.stop(uid, before);
    }
    let Some(stopping) = session.lease.stopping(uid) else { return };
    if events.iter().any(|event| stopping.hears(event)) {
        step.release_lease();
    }
}

fn carries_out(step: &mut Step<'_>, of: Which, workflow_uid: uuid::Uuid, effect: run::Effect) {
    match effect {
        run::Effect::Assign { starts } => {
            // One that waits is given the list when it need not any more.
            if step.state.session.as_ref().is_some_and(|session| !session.waits) {
                step.take_lease();
                step.effects.push(Effect::Assign { of, starts });
            }
        }
        run::Effect::RenewLease => {
            step.take_lease();
            let Some(session) = &step.state.session else { return };
            let (epoch, counts_from, lease) = (session.epoch, session.counts_from(), step.limits.lease);
            step.send(Tell::LeaseRenewal { epoch, lease, counts_from });
        }
        run::Effect::Control => controls(step, of, workflow_uid),
        run::Effect::Idle { boot_disk } => step.idles(boot_disk),
        run::Effect::StopAgent { reason } => step.send(Tell::Cancel { workflow_uid, reason }),
    }
}

/// An older agent knows of neither pause nor release, and is never handed a list that has a hold. Where no person has
/// asked for anything yet, no agent can believe anything else.
fn controls(step: &mut Step<'_>, of: Which, workflow_uid: uuid::Uuid) {
    let Some(workflow) = step.state.workflow(of).filter(|w| !w.spec.requests.is_empty()) else { return };
    let Some(status) = &workflow.status else { return };
    if step.state.session.as_ref().is_some_and(|s| s.protocol >= CONTROL_PROTOCOL) {
        let (paused, released) = (status.paused.is_some(), released_holds(status));
        step.send(Tell::Control { workflow_uid, paused, released });
    }
}

/// The list cannot be made, so the agent never hears of its lease; the workflow ends.
pub(crate) fn cannot_assign(step: &mut Step<'_>, which: Which, problem: Box<Problem>) {
    step.release_lease();
    advance(step, which, vec![run::Event::GivenUp(problem)]);
}

/// Whether an agent may be at work on it.
pub(crate) fn is_running(status: &WorkflowStatus) -> bool {
    status.phase == WorkflowPhase::Running
}

/// Indices of the holds that a person let the workflow go past.
fn released_holds(status: &WorkflowStatus) -> Vec<u32> {
    let actions = status.actions.iter().chain(&status.on_failure).zip(0u32..);
    let released = |a: &ActionStatus| matches!(a.action.spec, ActionSpec::Hold(_)) && a.state == ActionState::Succeeded;
    actions.filter(|(action, _)| released(action)).map(|(_, index)| index).collect()
}
