//! What is done after a failure or a cancel.

use landfall_api::ActionState;

use super::*;

fn with_after(after: serde_json::Value) -> WorkflowStatus {
    let after: Vec<Action> = serde_json::from_value(after).unwrap();
    WorkflowStatus { on_failure: after.into_iter().map(ActionStatus::pending).collect(), ..fresh() }
}

fn failing() -> Story {
    let mut story = Story::of(with_after(json!([
        {"name": "look", "hold": {"message": "look at it"}}, {"name": "off", "powerOff": {}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    let effects = story.then(report(1, 0, 1, failed(false)));
    assert!(matches!(effects[..], [Effect::StopAgent { .. }, Effect::Assign { .. }]), "{effects:?}");
    assert_eq!(effects[1..], assign(3, 1));
    story
}

#[test]
fn on_failure_actions_run_and_keep_the_first_reason() {
    let mut story = failing();
    assert_eq!((story.state.word(), story.state.phase), ("Failing", WorkflowPhase::Running));
    assert_eq!(story.state.problem.as_ref().unwrap().code, ErrorCode::Truncated, "said at once");
    assert!(story.state.deadline.is_some());
    story.then(report(1, 3, 1, EventBody::Started));
    assert_eq!(story.then(Event::Resumed), [Effect::Control]);
    story.then(report(1, 4, 1, EventBody::Started));
    story.then(report(1, 4, 1, EventBody::Finished { result: ActionResult::PowerOff }));
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert_eq!(story.state.problem.as_ref().unwrap().code, ErrorCode::Truncated);
    assert!(story.state.on_failure.iter().all(|a| a.state == ActionState::Succeeded));
}

#[test]
fn a_failing_on_failure_action_keeps_the_first_reason() {
    let mut story = failing();
    story.then(report(1, 3, 1, EventBody::Started));
    let problem = Problem::new(ErrorCode::Internal, "no");
    story.then(report(1, 3, 1, EventBody::Failed { problem, retryable: false }));
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert_eq!(story.state.problem.as_ref().unwrap().code, ErrorCode::Truncated);
    assert_eq!(story.state.on_failure[1].state, ActionState::Skipped);
}

#[test]
fn on_failure_actions_run_after_a_cancel_too() {
    let mut story = Story::of(with_after(json!([{"name": "off", "powerOff": {}}])));
    story.then(connected(1, vec![]));
    let effects = story.then(Event::Cancelled(person()));
    assert_eq!(effects[1..], assign(3, 1));
    assert_eq!(story.state.word(), "Cancelling");
    story.then(Event::Cancelled(person()));
    assert_eq!(story.state.phase, WorkflowPhase::Cancelled);
}

#[test]
fn on_failure_actions_are_not_repeated_after_a_restart() {
    let mut story = failing();
    story.then(report(1, 3, 1, EventBody::Started));
    assert_eq!(story.then(connected(2, vec![])), [Effect::Idle { boot_disk: false }]);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
}

#[test]
fn a_restarted_installed_machine_boots_its_own_disk() {
    let mut story = Story::of(with_after(json!([{"name": "again", "reboot": {}}])));
    story.then(connected(1, vec![]));
    story.then(Event::Cancelled(person()));
    story.then(report(1, 3, 1, EventBody::Started));
    assert_eq!(story.then(connected(2, vec![])), [Effect::Idle { boot_disk: true }]);
    assert_eq!(story.state.phase, WorkflowPhase::Cancelled);
}

#[test]
fn an_agent_that_missed_the_failure_stops_first() {
    let mut story = failing();
    let back = Event::AgentConnected { epoch: 2, receipts: vec![], still_running: true, protocol: 2 };
    let effects = story.then(back);
    assert!(matches!(effects[..], [Effect::StopAgent { .. }, Effect::Assign { .. }]), "{effects:?}");
    assert_eq!(effects[1..], assign(3, 2));
}

#[test]
fn without_an_agent_a_workflow_ends_by_its_deadline() {
    let mut story = Story::of(with_after(json!([{"name": "off", "powerOff": {}}])));
    story.then(Event::Cancelled(person()));
    assert_eq!(story.state.phase, WorkflowPhase::Cancelled, "no agent has ever had it");
    let mut story = failing();
    story.now += 3 * 24 * 3600;
    story.then(Event::Tick);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    // An agent that let a deadline pass is not there to do anything.
    let mut story = Story::of(with_after(json!([{"name": "off", "powerOff": {}}])));
    story.then(connected(1, vec![]));
    story.now += 12 * 3600;
    assert!(matches!(story.then(Event::Tick)[..], [Effect::StopAgent { .. }]));
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
}

#[test]
fn an_agent_too_old_for_the_list_is_refused() {
    let old = Event::AgentConnected { epoch: 1, receipts: vec![], still_running: false, protocol: 1 };
    assert_eq!(Story::new().then(old.clone()), assign(0, 1), "nothing in it is new");
    let mut needy = vec![with_after(json!([{"name": "off", "powerOff": {}}]))];
    needy.push(list(json!([{"name": "wait", "hold": {"message": "m"}}])));
    needy.push(list(json!([{"name": "off", "powerOff": {}}])));
    needy.push(list(json!([{"name": "a", "branch": "a", "cloudInit": {}}])));
    needy.push(WorkflowStatus { takes_over: vec![Uuid::from_u128(3)], ..fresh() });
    let second = Event::AgentConnected { epoch: 1, receipts: vec![], still_running: false, protocol: 2 };
    for state in &needy {
        assert!(matches!(Story::of(state.clone()).then(second.clone())[..], [Effect::Assign { .. }]));
    }
    let jump = list(json!([{"name": "jump", "kexec": {"disk": {"name": "vda"}}}]));
    assert_eq!(Story::of(jump.clone()).then(connected(1, vec![])), assign(0, 1), "today's agent can");
    let file =
        list(json!([{"name": "motd", "writeFile": {"path": "/etc/motd", "content": "", "disk": {"name": "vda"}}}]));
    assert_eq!(Story::of(file.clone()).then(connected(1, vec![])), assign(0, 1), "today's agent can");
    let third = Event::AgentConnected { epoch: 1, receipts: vec![], still_running: false, protocol: 3 };
    assert!(matches!(Story::of(jump.clone()).then(third.clone())[..], [Effect::Assign { .. }]));
    let newer = [(jump.clone(), old.clone()), (jump, second), (file, third)];
    let cases = needy.into_iter().map(|state| (state, old.clone())).chain(newer);
    for (state, agent) in cases {
        let mut story = Story::of(state);
        assert_eq!(story.then(agent), [Effect::Idle { boot_disk: false }]);
        let problem = story.state.problem.unwrap();
        assert_eq!(problem.code, ErrorCode::VersionSkew);
        assert!(problem.hint.contains("boot image"), "{problem}");
        assert!(problem.hint.contains("writeFile one of protocol 4"), "{problem}");
    }
}
