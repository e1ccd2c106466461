//! What persons do to a run: pause, resume, hold, cancel, retry.

use landfall_api::{ActionState, SuccessOn, Workflow};

use super::*;
use crate::run::{retry_of, still_phones_home};

const DAY: i64 = 24 * 3600;

fn pause() -> Event {
    Event::Paused(person())
}

#[test]
fn a_pause_lets_the_current_action_end_and_suspends_deadlines() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    let end_by = story.state.end_by;
    assert_eq!(story.then(pause()), [Effect::Control]);
    assert!(story.state.deadline < story.state.paused.as_ref().map(|p| p.until), "the action under way keeps its own");
    story.then(report(1, 0, 1, finished(0)));
    assert_eq!(story.state.actions[0].state, ActionState::Succeeded);
    assert_eq!(story.state.deadline, story.state.paused.as_ref().map(|p| p.until), "the next action has not begun");
    story.now += 2 * DAY;
    story.then(Event::Tick);
    assert_eq!(story.state.phase, WorkflowPhase::Running);
    assert_eq!(story.then(Event::Resumed), [Effect::Control]);
    // Two days, and the seconds between the two requests.
    assert_eq!(story.state.end_by, end_by.map(|end| end + Duration::from_secs(2 * DAY as u64 + 3)));
    assert!(story.state.deadline > Some(at(story.now)));
    story.then(report(1, 1, 1, EventBody::Started));
    assert!(story.state.actions[1].is_under_way());
}

#[test]
fn a_pause_has_an_end_too() {
    for begun in [false, true] {
        let mut story = Story::new();
        if begun {
            story.then(connected(1, vec![]));
        }
        story.then(pause());
        story.now += 7 * DAY;
        story.then(Event::Tick);
        assert_eq!(story.state.problem.as_ref().unwrap().code, ErrorCode::Timeout);
        assert!(story.state.problem.unwrap().message.contains("paused by ann"));
    }
}

#[test]
fn an_agent_of_a_paused_workflow_waits_for_the_resume() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(pause());
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Intent)])), [Effect::Idle { boot_disk: false }]);
    assert_eq!(story.then(Event::Resumed), assign(0, 2));
    // One that still holds the list learns of the pause and keeps it.
    story.then(report(2, 0, 2, EventBody::Started));
    story.then(pause());
    let back = Event::AgentConnected { epoch: 3, receipts: vec![], still_running: true, protocol: 2 };
    assert_eq!(story.then(back), [Effect::RenewLease, Effect::Control]);
    assert_eq!(story.then(Event::Resumed), [Effect::Control]);
}

#[test]
fn a_run_paused_before_its_beginning_does_not_begin() {
    let mut story = Story::new();
    story.then(pause());
    assert_eq!(story.then(connected(1, vec![])), [Effect::Idle { boot_disk: false }]);
    assert_eq!(story.state.phase, WorkflowPhase::Pending);
    story.then(Event::Resumed);
    assert_eq!(story.then(connected(1, vec![])), assign(0, 1), "the engine says again that it is there");
}

#[test]
fn a_lease_that_expires_during_a_pause_is_no_failure() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(pause());
    assert_eq!(story.then(report(1, 0, 1, lease_expired())), []);
    assert_eq!(story.then(Event::Resumed), assign(0, 2));
}

fn with_hold() -> Story {
    let actions = json!([{"name": "look", "hold": {"message": "check the cables"}}, {"name": "seed", "cloudInit": {}}]);
    let mut story = Story::of(list(actions));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story
}

#[test]
fn a_resume_ends_a_hold_with_or_without_the_agent() {
    let mut story = with_hold();
    assert!(story.state.actions[0].holds());
    assert_eq!(story.then(Event::Resumed), [Effect::Control]);
    assert_eq!(story.state.actions[0].state, ActionState::Succeeded);
    // The agent's own word comes late and changes nothing.
    story.then(report(1, 0, 1, EventBody::Finished { result: ActionResult::Hold }));
    assert_eq!(story.state.actions[1].attempt, 1);
    // An agent that lost power meanwhile is not held again.
    assert_eq!(story.then(connected(2, vec![])), assign(1, 2));
}

#[test]
fn a_resume_ends_a_pause_before_a_hold() {
    let mut story = with_hold();
    story.then(pause());
    story.then(Event::Resumed);
    assert!(story.state.actions[0].holds() && story.state.paused.is_none());
    story.then(Event::Resumed);
    assert!(!story.state.actions[0].holds());
}

#[test]
fn a_hold_has_a_deadline_of_its_own() {
    let mut story = with_hold();
    assert!(story.state.deadline >= Some(at(story.now + DAY - 1)));
    story.now += 2 * DAY;
    story.then(Event::Tick);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
}

pub(super) fn ended(story: &Story) -> Workflow {
    let tree = json!({"apiVersion": landfall_api::API_VERSION, "kind": "Workflow", "metadata": {"name": "run", "uid": RUN},
        "spec": {"machine": "m1", "template": "os"}, "status": story.state});
    serde_json::from_value(tree).unwrap()
}

fn failed_at_the_seed() -> Story {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    story.then(report(1, 0, 1, finished(0)));
    story.then(report(1, 1, 1, EventBody::Started));
    story.then(report(1, 1, 1, failed(false)));
    story
}

#[test]
fn a_retry_begins_at_the_failed_action() {
    let old = failed_at_the_seed();
    let status = retry_of(&ended(&old), 2, vec![receipt(ReceiptState::Done)]).unwrap();
    assert!(status.actions[0].taken_over && status.takes_over == [RUN]);
    let mut new = Story::of(status);
    assert_eq!(new.then(connected(1, vec![receipt(ReceiptState::Done)])), assign(1, 1));
    assert_eq!(old.state.phase, WorkflowPhase::Failed);
}

#[test]
fn a_retry_takes_over_a_committed_write() {
    let mut old = Story::new();
    old.then(connected(1, vec![]));
    old.then(report(1, 0, 1, EventBody::Started));
    old.then(Event::Cancelled(person()));
    // Known from the receipts that the store has of the machine, or found only when the agent comes: never written again.
    let mut new = Story::of(retry_of(&ended(&old), 2, vec![]).unwrap());
    let uid = Uuid::from_u128(8);
    let context = Context { workflow_uid: uid, ..CONTEXT };
    let (state, effects) = step(&context, new.state.clone(), &connected(1, vec![receipt(ReceiptState::Done)]), at(1));
    assert_eq!(effects, assign(1, 1));
    // And a disk that has lost the mark since stops the run.
    new.state = state;
    let (state, _) = step(&context, new.state.clone(), &connected(2, vec![]), at(2));
    assert_eq!(state.problem.unwrap().code, ErrorCode::ReceiptMismatch);
}

#[test]
fn a_committed_write_that_failed_is_not_repeated() {
    let mut old = Story::new();
    old.then(connected(1, vec![]));
    old.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    old.then(report(1, 0, 1, failed(true)));
    let status = retry_of(&ended(&old), 2, vec![]).unwrap();
    assert!(status.actions[0].taken_over && !status.actions[1].taken_over);
}

#[test]
fn what_has_not_failed_is_not_retried() {
    let code = |story: &Story| retry_of(&ended(story), 1, vec![]).unwrap_err().code;
    assert_eq!(code(&Story::new()), ErrorCode::Conflict);
    let mut story = Story::installed();
    story.now += 901;
    story.then(Event::Tick);
    assert_eq!(story.state.problem.as_ref().unwrap().code, ErrorCode::NoPhoneHome);
    assert_eq!(code(&story), ErrorCode::WorkflowEnded, "a missing phone-home is no reason to do anything again");
    let mut story = failed_at_the_seed();
    story.state.takes_over = (0..16).map(|n| Uuid::from_u128(100 + n)).collect();
    assert_eq!(code(&story), ErrorCode::LimitReached);
}

#[test]
fn no_retry_waits_for_a_system_that_has_phoned_home() {
    let write = json!({"name": "write", "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}});
    let (seed, exec) =
        (json!({"name": "seed", "cloudInit": {}}), json!({"name": "run", "exec": {"command": ["true"]}}));
    let mut story = Story::of(list(json!([write, seed, exec, {"name": "restart", "reboot": {}}])));
    story.then(connected(1, vec![]));
    (0..2).for_each(|index| drop(story.does(1, index, 1)));
    story.then(report(1, 2, 1, EventBody::Started));
    story.then(report(1, 2, 1, failed(false)));
    let after = |story: &Story| still_phones_home(&ended(story)).map_err(|problem| problem.code);
    assert_eq!(after(&story), Ok(()), "it has not phoned home");
    story.then(Event::PhonedHome);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    story.now += 2 * 86_400;
    assert_eq!(after(&story), Ok(()), "it was asked to phone home again");
    story.then(Event::PhonedHome);
    assert_eq!(after(&story), Err(ErrorCode::WorkflowEnded), "it was not asked to any more");
    story.state.success_on = Some(SuccessOn::Reboot);
    assert_eq!(after(&story), Ok(()), "its retry waits for no phone-home");
    let mut story = failed_at_the_seed();
    story.then(Event::PhonedHome);
    assert_eq!(after(&story), Ok(()), "its retry writes another unit");
}

#[test]
fn a_receipt_that_arrives_during_a_pause_is_remembered() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(Event::Paused(person()));
    story.then(connected(2, vec![]));
    story.then(report(2, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    assert_eq!(story.then(Event::Resumed), assign(1, 1));
}
