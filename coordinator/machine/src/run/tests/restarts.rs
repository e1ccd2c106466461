//! A machine that restarts in the middle of an action.

use landfall_api::{ConditionType, Reason, Workflow, WorkflowSpec};

use super::*;
use crate::run::conditions::derive;

fn rebooted(story: &mut Story, boot: u32) {
    story.then(Event::Rebooted { boot_id: format!("boot-{boot}") });
}

/// Restarts the machine in each attempt until the workflow has ended; how many attempts were begun.
fn restarts_for_ever(mut story: Story) -> (u32, WorkflowStatus) {
    for boot in 1..100 {
        let epoch = u64::from(boot);
        story.then(connected(epoch, vec![]));
        if story.state.phase != WorkflowPhase::Running {
            return (boot - 1, story.state);
        }
        story.then(report(epoch, 0, boot, EventBody::Started));
        rebooted(&mut story, boot);
    }
    panic!("the workflow goes on: {:?}", story.state);
}

#[test]
fn a_machine_that_dies_in_each_attempt_fails_after_five() {
    let (begun, state) = restarts_for_ever(Story::new());
    assert_eq!((begun, state.phase), (6, WorkflowPhase::Failed));
    let problem = state.problem.unwrap();
    assert_eq!(problem.code, ErrorCode::LimitReached);
    for words in ["\"write\"", "6. time", "attempt 6", "5 unexpected restarts", "maxRestarts"] {
        assert!(problem.to_string().contains(words), "{words}: {problem}");
    }
    assert_eq!(state.actions[0].failures, 0, "a restart is no failed attempt");
}

#[test]
fn a_program_with_disks_never_runs_twice_by_itself() {
    let device = json!({"disk": {"serial": "D1"}, "path": "/dev/scratch"});
    for (devices, begins) in [(json!([device]), 1), (json!([]), 6)] {
        let mut story = Story::new();
        let container = json!({"image": "oci://r/i@sha256:0a", "devices": devices});
        let action = json!({"name": "write", "runContainer": container});
        let action: landfall_api::Action = serde_json::from_value(action).unwrap();
        story.state.actions[0] = ActionStatus::pending(action);
        assert_eq!(restarts_for_ever(story).0, begins);
    }
}

#[test]
fn a_program_that_lost_its_lease_keeps_no_disks() {
    let container = json!({"image": "oci://r/i@sha256:0a", "devices": [{"disk": {"serial": "D1"}, "path": "/dev/x"}]});
    let action: landfall_api::Action =
        serde_json::from_value(json!({"name": "write", "runContainer": container})).unwrap();
    for pauses in [false, true] {
        let mut story = Story::new();
        story.state.actions[0] = ActionStatus::pending(action.clone());
        story.then(connected(1, vec![]));
        story.then(report(1, 0, 1, EventBody::Started));
        if pauses {
            story.then(Event::Paused(super::person()));
        }
        let problem = Problem::new(ErrorCode::LeaseExpired, "the lease ended");
        story.then(report(1, 0, 1, EventBody::Failed { problem, retryable: true }));
        if pauses {
            story.then(Event::Resumed);
            story.then(connected(2, vec![]));
        }
        assert_eq!(story.state.problem.as_ref().map(|problem| problem.code), Some(ErrorCode::LimitReached), "{pauses}");
    }
}

#[test]
fn a_template_sets_how_many_restarts_are_allowed() {
    for allowed in [0, 2, 7] {
        let mut story = Story::new();
        let mut action = (*story.state.actions[0].action).clone();
        action.retry = serde_json::from_value(json!({"maxAttempts": 3, "maxRestarts": allowed})).unwrap();
        story.state.actions[0] = ActionStatus::pending(action);
        assert_eq!(restarts_for_ever(story).0, allowed + 1);
    }
}

#[test]
fn a_condition_says_in_which_attempt_the_machine_restarted() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    rebooted(&mut story, 2);
    // The same boot asks again before it is given the list.
    rebooted(&mut story, 2);
    story.then(connected(2, vec![]));
    let restarts = story.state.actions[0].restarts.clone().unwrap();
    assert_eq!((restarts.count, restarts.attempt, restarts.boot_id.as_str()), (1, 1, "boot-2"));
    let mut workflow = Workflow {
        api_version: landfall_api::API_VERSION.into(),
        kind: landfall_api::Kind::Workflow,
        metadata: landfall_api::Metadata::default(),
        spec: WorkflowSpec::default(),
        status: Some(story.state),
    };
    assert!(derive(&mut workflow, None, at(story.now)));
    let conditions = workflow.status.unwrap().conditions;
    let restarted = conditions.iter().find(|c| c.kind == ConditionType::Restarted).expect("no condition Restarted");
    assert_eq!(restarted.reason, Reason::MachineRestarted);
    for words in ["attempt 1", "\"write\"", "boot boot-2", "restart 1 of at most 5"] {
        assert!(restarted.message.contains(words), "{words}: {}", restarted.message);
    }
}

#[test]
fn an_expected_restart_is_not_counted() {
    // Nothing was under way, or what was under way is the restart.
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    rebooted(&mut story, 2);
    story.then(connected(2, vec![]));
    for index in 0..2 {
        let attempt = story.state.actions[index as usize].attempt;
        story.then(report(2, index, attempt, EventBody::Started));
        story.then(report(2, index, attempt, finished(index)));
    }
    story.then(report(2, 2, 1, EventBody::Started));
    rebooted(&mut story, 3);
    assert!(story.state.actions.iter().all(|action| action.restarts.is_none()), "{:?}", story.state.actions);
}
