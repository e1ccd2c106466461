//! Actions that are done only if a condition over results holds.

use landfall_api::{ActionOutcome, ActionState, HttpResult};

use super::*;
use crate::run::has_begun_to_write;

/// A call, a write and a seed that depend on it, and the restart.
fn conditional() -> WorkflowStatus {
    list(json!([
        {"name": "call", "http": {"url": "http://h/", "result": "text"}},
        {"name": "write", "when": "results.call.status == 201",
            "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}},
        {"name": "seed", "when": "results.write.succeeded", "cloudInit": {}},
        {"name": "restart", "reboot": {}},
    ]))
}

fn answered(status: u16) -> EventBody {
    EventBody::Finished { result: ActionResult::Http(HttpResult { status, body: "yes".into(), cut: false }) }
}

fn called() -> Story {
    let mut story = Story::of(conditional());
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    assert_eq!(story.then(report(1, 0, 1, answered(200))), [], "the agent goes on by itself");
    story
}

#[test]
fn an_action_that_is_left_out_counts_as_over() {
    let mut story = called();
    let outcome = ActionOutcome { succeeded: true, status: Some(200), body: Some("yes".into()) };
    assert_eq!(story.state.actions[0].known_outcome(), Some(outcome));
    for index in 1..3 {
        assert_eq!(story.state.actions[index as usize].attempt, 1);
        assert_eq!(story.then(report(1, index, 1, EventBody::Skipped)), []);
        let action = &story.state.actions[index as usize];
        assert_eq!((action.state, action.started_at, action.is_left_out()), (ActionState::Skipped, None, true));
        assert!(action.deadline.is_none() && story.state.deadline.is_some());
    }
    story.does(1, 3, 1);
    // The seed that would have phoned home was left out.
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded);
}

#[test]
fn a_restart_goes_on_behind_what_was_left_out() {
    let mut story = called();
    assert_eq!(story.then(connected(2, vec![])), assign(1, 2));
    story.then(report(2, 1, 2, EventBody::Skipped));
    assert_eq!(story.then(connected(3, vec![])), assign(2, 2));
    assert_eq!(story.state.actions[1].known_outcome(), Some(ActionOutcome::left_out()));
    // Late, of the attempt before.
    assert_eq!(story.then(report(3, 1, 2, EventBody::Started)), []);
    assert_eq!(story.state.actions[1].state, ActionState::Skipped);
}

#[test]
fn a_failure_leaves_what_was_left_out_as_it_is() {
    let mut story = called();
    story.then(report(1, 1, 1, EventBody::Skipped));
    story.then(report(1, 2, 1, EventBody::Started));
    story.then(report(1, 2, 1, failed(false)));
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert!(story.state.actions[1].is_left_out() && !story.state.actions[3].is_left_out());
    assert_eq!(story.state.actions[3].state, ActionState::Skipped);
    let mut again = Story::of(crate::run::retry_of(&super::persons::ended(&story), 1, vec![]).unwrap());
    assert!(again.state.actions[1].is_left_out() && again.state.actions[1].taken_over);
    assert_eq!(again.state.actions[0].known_outcome().and_then(|outcome| outcome.status), Some(200));
    assert_eq!(again.then(connected(1, vec![])), assign(2, 1));
}

#[test]
fn an_end_that_only_a_receipt_says_is_unknown() {
    let mut state = conditional();
    state.actions.swap(1, 2);
    let mut story = Story::of(state);
    story.then(connected(1, vec![]));
    let mut written = receipt(ReceiptState::Done);
    written.receipt.action_index = 2;
    assert_eq!(story.then(connected(2, vec![written])), assign(3, 1));
    let known = |index: usize| story.state.actions[index].known_outcome();
    assert_eq!(known(2), Some(ActionOutcome::done()), "the write's own receipt says that it was done");
    assert_eq!(known(1), None, "it had a condition: it may have been left out");
    assert_eq!(known(0), Some(ActionOutcome::done()), "what it was answered is lost");
}

#[test]
fn a_result_that_comes_behind_a_receipt_is_known() {
    let mut story = Story::of(conditional());
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    let mut written = receipt(ReceiptState::Done);
    written.receipt.action_index = 1;
    // The connection broke meanwhile; the agent goes on, and its reports come after its hello.
    let again = Event::AgentConnected { epoch: 2, receipts: vec![written], still_running: true, protocol: PROTOCOL };
    assert_eq!(story.then(again), [Effect::RenewLease, Effect::Control]);
    let status = |story: &Story| story.state.actions[0].known_outcome().and_then(|outcome| outcome.status);
    assert_eq!(status(&story), None);
    story.then(report(1, 0, 1, answered(200)));
    assert_eq!(status(&story), None, "of a session before");
    story.then(report(2, 0, 1, answered(201)));
    assert_eq!(status(&story), Some(201));
    story.then(report(2, 0, 1, answered(500)));
    assert_eq!(status(&story), Some(201), "it is known");
}

#[test]
fn a_write_that_has_begun_is_not_decided_again() {
    let mut story = called();
    assert!(!has_begun_to_write(RUN, &story.state, 1));
    let mut begun = receipt(ReceiptState::Intent);
    begun.receipt.action_index = 1;
    assert_eq!(story.then(connected(2, vec![begun])), assign(1, 2));
    assert!(has_begun_to_write(RUN, &story.state, 1) && !has_begun_to_write(RUN, &story.state, 2));
}

#[test]
fn a_branch_goes_on_past_what_was_left_out() {
    let hold = |name: &str, branch: &str, when: &str| {
        let mut action = json!({"name": name, "branch": branch, "hold": {"message": "x"}});
        if !when.is_empty() {
            action["when"] = when.into();
        }
        action
    };
    let mut story = Story::of(list(json!([
        {"name": "call", "http": {"url": "http://h/"}},
        hold("a", "x", "results.call.status == 1"), hold("b", "y", ""), hold("c", "x", "results.a.succeeded"),
        {"name": "last", "hold": {"message": "x"}},
    ])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(report(1, 0, 1, answered(200)));
    story.then(report(1, 1, 1, EventBody::Skipped));
    assert_eq!((story.state.actions[3].attempt, story.state.actions[4].attempt), (1, 0));
    story.then(report(1, 3, 1, EventBody::Skipped));
    assert_eq!(story.state.actions[4].attempt, 0, "the other branch is not through");
    story.does(1, 2, 1);
    assert_eq!(story.state.actions[4].attempt, 1);
}
