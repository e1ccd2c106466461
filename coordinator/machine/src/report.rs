//! What agents say once their session is open, and what their silence says.

use landfall_api::{
    ConditionType as Type, ErrorCode, Problem, Reason,
    message::{ActionResult, EventBody, EventRecord, Vitals, WriteImageResult},
};

use crate::{
    advance::advance,
    connect::connect,
    context::Step,
    derive,
    effect::{Effect, Refusal, Tell, Which},
    epoch::Epoch,
    run,
};

/// An agent reported something, and the log holds it.
pub(crate) fn reported(
    step: &mut Step<'_>,
    epoch: Epoch,
    of: Which,
    events: Vec<(u64, EventRecord)>,
) -> Result<(), Refusal> {
    let now = step.now;
    let session = step.session(epoch)?;
    session.hears(now);
    // The agent of this session still works on its list: whatever it was settled with, it has it. Of the newest workflow
    // alone: what it still has to say of an older one says nothing about this one.
    if session.settling && of == Which::Newest {
        connect(step, true);
    }
    let events = judged(step, of, epoch.get(), events);
    for event in &events {
        if let run::Event::Agent { record, .. } = event {
            takes_in_receipt(step, &record.body);
        }
    }
    advance(step, of, events);
    Ok(())
}

/// What the log held beyond the status when the coordinator started. There is no session to inform: the agent
/// that comes back is.
pub(crate) fn replayed(step: &mut Step<'_>, events: Vec<(u64, EventRecord)>) {
    let epoch = step.state.newest.as_ref().and_then(|w| w.status.as_ref()).map_or(0, |status| status.epoch);
    let events = judged(step, Which::Newest, epoch, events);
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
        run::Event::Agent { epoch, position, record: Box::new(record) }
    };
    events.into_iter().map(judge).collect()
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

pub(crate) fn heartbeat(step: &mut Step<'_>, epoch: Epoch, vitals: Vitals) -> Result<(), Refusal> {
    let (limits, now) = (step.limits, step.now);
    let beat = step.session(epoch)?.beats(limits, vitals, now);
    if beat.renewed {
        step.send(Tell::LeaseRenewal { epoch, lease: limits.lease, counts_from: Some(vitals.uptime) });
    }
    if beat.noted {
        let status = step.state.machine.status.get_or_insert_with(derive::new_machine_status);
        status.last_heard = Some(now.wall);
        status.agent_peak_rss_bytes = status.agent_peak_rss_bytes.max(Some(vitals.peak_rss_bytes));
        step.sets(Type::Connected, true, Reason::Heard, "the agent is connected");
    }
    Ok(())
}

/// The stream of a session ended. Its lease, if it has one, runs on.
pub(crate) fn closed(step: &mut Step<'_>, epoch: Epoch, why: &str) {
    let now = step.now;
    let Ok(session) = step.session(epoch) else { return };
    session.cut();
    session.silent = true;
    let heard = now.wall_at(session.heard);
    step.effects.push(Effect::LeaveQueue);
    step.state.machine.status.get_or_insert_with(derive::new_machine_status).last_heard = Some(heard);
    step.sets(Type::Connected, false, Reason::Disconnected, why);
}

/// A fenced agent has stopped everything destructive; nothing of its lease is left.
pub(crate) fn fence_acknowledged(step: &mut Step<'_>, epoch: Epoch) {
    if step.session(epoch).is_ok() {
        step.release_lease();
    }
}

/// The agent has just become silent.
pub(crate) fn notes_silence(step: &mut Step<'_>) {
    let (limits, now) = (step.limits, step.now);
    let Some(session) = &mut step.state.session else { return };
    if !session.falls_silent(limits, now) {
        return;
    }
    let heard = now.wall_at(session.heard);
    step.state.machine.status.get_or_insert_with(derive::new_machine_status).last_heard = Some(heard);
    step.sets(Type::Connected, false, Reason::Silent, format!("the agent has not been heard since {heard}"));
}
