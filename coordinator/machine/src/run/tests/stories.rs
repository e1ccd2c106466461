//! A run by itself: installs, interruptions, receipts, deadlines.

use landfall_api::ActionState;

use super::*;
use crate::run::open_at_phone_home;

#[test]
fn a_run_goes_from_pending_to_succeeded_by_phone_home() {
    let mut story = Story::new();
    assert_eq!(story.then(connected(1, vec![])), assign(0, 1));
    let mut story = Story::installed();
    assert_eq!(story.state.phase, WorkflowPhase::Rebooting);
    assert_eq!(story.state.deadline, Some(at(story.now + 900)));
    // Netbooted again before it phoned home.
    assert_eq!(story.then(connected(2, vec![])), [Effect::Idle { boot_disk: true }]);
    story.then(Event::PhonedHome);
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded);
}

#[test]
fn a_writes_result_is_shown_without_its_last_progress() {
    let story = Story::installed();
    let progress = story.state.actions[0].progress.as_ref().expect("a finished write has a last progress");
    assert_eq!((progress.written_bytes, progress.stage.as_str()), (7, "done"));
}

#[test]
fn a_done_receipt_after_a_power_cut_counts_as_success() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Done)])), assign(1, 1));
    assert_eq!(story.state.actions[0].state, ActionState::Succeeded);
}

#[test]
fn an_intent_receipt_repeats_the_action_as_next_attempt() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Intent)])), assign(0, 2));
    assert_eq!(story.state.actions[0].failures, 0, "an interruption uses up no retry");
    assert_eq!(story.state.expected_receipts, [receipt(ReceiptState::Intent)]);
}

#[test]
fn a_disk_that_lost_its_done_receipt_is_not_rewritten() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    let effects = story.then(connected(2, vec![]));
    assert!(matches!(effects[..], [Effect::StopAgent { .. }]));
    assert_eq!(story.state.problem.unwrap().code, ErrorCode::ReceiptMismatch);
}

#[test]
fn an_interrupted_layout_is_made_anew_on_finished_disks() {
    let layout = json!({"name": "lay", "storage": {"disks": [{"partitions": [{"role": "data"}]}]}});
    let mut story = Story::of(super::list(json!([layout, {"name": "stop", "hold": {"message": ""}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Done)])), assign(0, 2), "another disk may be open");
    assert_eq!(story.then(connected(3, vec![receipt(ReceiptState::Intent)])), assign(0, 3));
    story.then(report(3, 0, 3, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    story.does(3, 0, 3);
    story.then(connected(4, vec![receipt(ReceiptState::Intent)]));
    assert_eq!(story.state.problem.unwrap().code, ErrorCode::ReceiptMismatch, "it is over");
}

#[test]
fn a_layout_that_is_filled_again_starts_nothing_meanwhile() {
    let layout = json!({"name": "lay", "storage": {"disks": [{"partitions": [{"role": "root"}]}]}});
    let digest = format!("sha256:{}", "0a".repeat(32));
    let root = json!({"name": "root", "unpack": {"url": "http://h/root.tar", "digest": digest}});
    let mut story = Story::of(super::list(json!([layout, root, {"name": "stop", "hold": {"message": ""}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Intent) }));
    story.does(1, 0, 1);
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Intent)])), assign(1, 2));
    // It ended, and its report was lost.
    story.then(report(2, 1, 2, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    assert_eq!(story.then(connected(3, vec![receipt(ReceiptState::Done)])), assign(1, 3));
    assert_eq!(story.then(connected(4, vec![receipt(ReceiptState::Intent)])), assign(1, 4));
    assert_eq!(story.state.expected_receipts, [receipt(ReceiptState::Intent)], "as the disk says");
    story.then(report(4, 1, 4, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    story.does(4, 1, 4);
    story.then(connected(5, vec![receipt(ReceiptState::Intent)]));
    assert_eq!(story.state.problem.unwrap().code, ErrorCode::ReceiptMismatch, "nothing fills it any more");
}

#[test]
fn a_commit_that_was_cut_is_made_again() {
    let layout = json!({"name": "lay", "storage": {"disks": [{"partitions": [{"role": "root"}]}]}});
    let mut story = Story::of(super::list(json!([layout, {"name": "restart", "reboot": {}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Intent) }));
    story.does(1, 0, 1);
    story.then(report(1, 1, 1, EventBody::Started));
    // Of several disks one was committed and taken back, because another failed.
    story.then(report(1, 1, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Intent)])), assign(1, 2));
    assert_eq!(story.state.expected_receipts, [receipt(ReceiptState::Intent)], "as the disk says");
    story.then(report(2, 1, 2, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    story.does(2, 1, 2);
    assert_eq!(story.state.expected_receipts, [receipt(ReceiptState::Done)]);
}

#[test]
fn a_layout_may_be_open_before_its_archive_is_due() {
    let layout = json!({"name": "lay", "storage": {"disks": [{"partitions": [{"role": "root"}]}]}});
    let digest = format!("sha256:{}", "0a".repeat(32));
    let root = json!({"name": "root", "unpack": {"url": "http://h/root.tar", "digest": digest}});
    let mut story = Story::of(super::list(json!([layout, {"name": "look", "hold": {"message": ""}}, root])));
    story.then(connected(1, vec![]));
    story.does(1, 0, 1);
    // The agent went on alone, filled the layout, and was filling it again when the power went.
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Done)])), assign(1, 2));
    assert_eq!(story.then(connected(3, vec![receipt(ReceiptState::Intent)])), assign(1, 3));
}

#[test]
fn one_finished_disk_is_no_finished_layout() {
    let layout = json!({"name": "lay", "storage": {"disks": [{"partitions": [{"role": "root"}]}]}});
    let mut story = Story::of(super::list(json!([layout, {"name": "stop", "hold": {"message": ""}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Done)])), assign(0, 2));
    let problem = Problem::new(ErrorCode::LeaseExpired, "the lease ended");
    assert_eq!(story.then(report(2, 0, 2, EventBody::Failed { problem, retryable: true })), assign(0, 3));
}

#[test]
fn a_late_phone_home_leaves_the_failed_workflow_failed() {
    let mut story = Story::installed();
    story.now += 901;
    story.then(Event::Tick);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    let problem = story.state.problem.as_ref().unwrap();
    assert_eq!(problem.code, ErrorCode::NoPhoneHome);
    assert!(problem.hint.contains("clock"), "{problem}");
    assert_eq!(story.then(connected(2, vec![])), [Effect::Idle { boot_disk: false }], "never a retry");
    story.then(Event::PhonedHome);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert!(story.state.phoned_home_at.is_some());
}

#[test]
fn without_phone_home_the_reboot_is_the_end() {
    let mut story = Story::new();
    story.state.actions[1].action =
        serde_json::from_value(json!({"name": "seed", "cloudInit": {"phoneHome": {"enabled": false}}})).unwrap();
    story.then(connected(1, vec![]));
    for index in 0..3 {
        story.then(report(1, index, 1, finished(index)));
    }
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded);
}

#[test]
fn failures_are_retried_as_often_as_the_policy_says() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    for attempt in 1..=3 {
        assert_eq!(story.state.phase, WorkflowPhase::Running);
        story.then(report(1, 0, attempt, EventBody::Started));
        story.then(report(1, 0, attempt, failed(true)));
    }
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert_eq!(story.state.actions[1].state, ActionState::Skipped);

    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, failed(false)));
    assert_eq!(story.state.phase, WorkflowPhase::Failed, "what is not retryable is not retried");
}

#[test]
fn a_failure_after_the_commit_is_never_retried() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    story.then(report(1, 0, 1, failed(true)));
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
}

#[test]
fn a_working_agent_gets_its_lease_renewed() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    let event = Event::AgentConnected { epoch: 2, receipts: vec![], still_running: true, protocol: 2 };
    assert_eq!(story.then(event), [Effect::RenewLease, Effect::Control]);
    story.then(report(2, 0, 1, finished(0)));
    assert_eq!(story.state.actions[0].state, ActionState::Succeeded);
}

#[test]
fn an_endless_action_stops_at_its_deadline() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.now += 5 * 3600;
    story.then(Event::Tick);
    let problem = story.state.problem.unwrap();
    assert_eq!(problem.code, ErrorCode::Timeout);
    assert!(problem.message.contains("attempt 1 of action \"write\""), "{problem}");
}

#[test]
fn an_expired_lease_reassigns_the_list_without_a_failure() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    assert_eq!(story.then(report(1, 0, 1, lease_expired())), assign(0, 2));
    assert_eq!(story.state.actions[0].failures, 0);
    // After the commit it is the next action that goes on.
    story.then(report(1, 0, 2, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    assert_eq!(story.then(report(1, 0, 2, lease_expired())), assign(1, 1));
}

#[test]
fn an_action_that_is_interrupted_without_end_gives_up() {
    let mut story = Story::new();
    for epoch in 1..100 {
        story.then(connected(epoch, vec![]));
    }
    assert_eq!(story.state.problem.unwrap().code, ErrorCode::LimitReached);
}

#[test]
fn an_early_phone_home_does_not_end_remaining_writes() {
    let write =
        |name: &str| json!({"name": name, "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}});
    let mut story = Story::of(list(json!([write("first"), {"name": "seed", "cloudInit": {}}, write("second")])));
    story.then(connected(1, vec![]));
    story.does(1, 0, 1);
    story.does(1, 1, 1);
    story.then(Event::PhonedHome);
    assert_eq!(story.state.phase, WorkflowPhase::Running);
    assert!(story.state.phoned_home_at.is_some());
}

#[test]
fn a_phone_home_proves_what_comes_before_its_seed() {
    let write = json!({"name": "write", "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}});
    let (seed, exec) =
        (json!({"name": "seed", "cloudInit": {}}), json!({"name": "run", "exec": {"command": ["true"]}}));
    let reboot = json!({"name": "restart", "reboot": {}});
    let cases = [
        // The list, how many actions were reported, how many are known to be done after a phone-home.
        (json!([write, seed, reboot]), 0, 3),
        (json!([write, seed, exec, reboot]), 0, 2),
        (json!([write, seed, exec, reboot]), 2, 2),
        (json!([write, seed, exec, reboot]), 3, 4),
        (json!([write, exec, seed, reboot]), 1, 4),
    ];
    for (actions, reported, done) in cases {
        let mut story = Story::of(list(actions.clone()));
        story.then(connected(1, vec![]));
        (0..reported).for_each(|index| drop(story.does(1, index, 1)));
        story.then(Event::PhonedHome);
        let states: Vec<_> = story.state.actions.iter().map(|a| a.state == ActionState::Succeeded).collect();
        assert_eq!(states.iter().filter(|done| **done).count(), done, "{actions} {reported}: {states:?}");
        let whole = done == states.len();
        let phase = if whole { WorkflowPhase::Succeeded } else { WorkflowPhase::Running };
        assert_eq!(story.state.phase, phase, "{actions} {reported}");
        let open = open_at_phone_home(&story.state, story.state.ended_at.unwrap_or_default());
        assert_eq!(open.is_none(), whole, "{actions} {reported}");
        if !whole {
            // The machine netboots again: its agent goes on, and the system's next phone-home ends the workflow.
            story.then(connected(2, vec![]));
            (2..4).for_each(|index| drop(story.does(2, index, story.state.actions[index as usize].attempt.max(1))));
            assert_eq!(story.state.phase, WorkflowPhase::Rebooting);
            story.then(Event::PhonedHome);
            assert_eq!(story.state.phase, WorkflowPhase::Succeeded);
        }
    }
}

#[test]
fn a_run_ends_where_the_template_says_it_has_succeeded() {
    let mut state = fresh();
    state.success_on = Some(landfall_api::SuccessOn::Reboot);
    let mut story = Story::of(state);
    story.then(connected(1, vec![]));
    (0..3).for_each(|index| drop(story.does(1, index, 1)));
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded, "the unit is there, and nothing waits for it");
    story.then(Event::PhonedHome);
    assert!(story.state.phoned_home_at.is_some());
}

#[test]
fn a_powered_off_machine_needs_no_phone_home() {
    let mut story = Story::of(list(json!([{"name": "seed", "cloudInit": {}}, {"name": "off", "powerOff": {}}])));
    story.then(connected(1, vec![]));
    story.does(1, 0, 1);
    story.does(1, 1, 1);
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded);
    assert!(story.state.rebooted_at.is_some());
}

#[test]
fn a_workflow_with_kexec_waits_for_the_phone_home() {
    let jump = |seed: serde_json::Value| {
        let mut state = fresh();
        let list = json!([{"name": "seed", "cloudInit": seed}, {"name": "jump", "kexec": {}}]);
        let actions: Vec<Action> = serde_json::from_value(list).unwrap();
        state.actions.splice(1.., actions.into_iter().map(ActionStatus::pending));
        state
    };
    let gone = |state: WorkflowStatus| {
        let mut story = Story::of(state);
        story.then(connected(1, vec![]));
        (0..3).for_each(|index| drop(story.does(1, index, 1)));
        story
    };
    let mut story = gone(jump(json!({})));
    assert_eq!(story.state.phase, WorkflowPhase::Rebooting);
    assert!(story.state.rebooted_at.is_some());
    assert_eq!(story.state.deadline, Some(at(story.now + 900)));
    // The jump failed, and the machine came back through firmware.
    assert_eq!(story.then(connected(2, vec![])), [Effect::Idle { boot_disk: true }]);
    story.then(Event::PhonedHome);
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded);

    let mut silent = gone(jump(json!({})));
    silent.now += 901;
    silent.then(Event::Tick);
    assert_eq!(silent.state.problem.unwrap().code, ErrorCode::NoPhoneHome);

    assert_eq!(gone(jump(json!({"phoneHome": {"enabled": false}}))).state.phase, WorkflowPhase::Succeeded);
    let enough = WorkflowStatus { success_on: Some(landfall_api::SuccessOn::Reboot), ..jump(json!({})) };
    assert_eq!(gone(enough).state.phase, WorkflowPhase::Succeeded);
}

#[test]
fn a_refused_kernel_fails_the_workflow_before_the_jump() {
    let mut story = Story::of(list(json!([{"name": "jump", "kexec": {"disk": {"name": "vda"}}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    let problem = Problem::new(ErrorCode::NoKernel, "none").at("/dev/vda3");
    story.then(report(1, 0, 1, EventBody::Failed { problem: problem.clone(), retryable: false }));
    assert_eq!((story.state.phase, story.state.problem), (WorkflowPhase::Failed, Some(problem)));
    assert!(story.state.rebooted_at.is_none(), "it never went down");
}

#[test]
fn the_whole_workflow_ends_at_its_own_deadline() {
    let mut state = fresh();
    state.timeout = Some("10m".parse().unwrap());
    let mut story = Story::of(state);
    story.then(connected(1, vec![]));
    assert_eq!(story.state.deadline, Some(at(story.now + 600)));
    story.then(report(1, 0, 1, EventBody::Started));
    story.now += 600;
    story.then(Event::Tick);
    let problem = story.state.problem.unwrap();
    assert_eq!(problem.code, ErrorCode::Timeout);
    assert!(
        problem.message.contains("the workflow did not end within its timeout") && problem.hint.contains("timeout"),
        "{problem}"
    );
}

#[test]
fn the_default_timeout_is_a_day_or_the_actions_sum() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    assert_eq!(story.state.end_by, Some(at(story.now + 24 * 3600)));
    let mut story = Story::of(list(json!([{"name": "wait", "timeout": "48h", "hold": {"message": "m"}}])));
    story.then(connected(1, vec![]));
    assert!(story.state.end_by > Some(at(story.now + 48 * 3600)));
}

#[test]
fn a_write_without_a_receipt_is_not_repeated_automatically() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Intent) }));
    assert!(matches!(story.then(connected(2, vec![]))[..], [Effect::StopAgent { .. }]));
    let problem = story.state.problem.unwrap();
    assert_eq!(problem.code, ErrorCode::ReceiptMismatch);
    assert!(problem.message.contains("may have been completed"), "{problem}");
}

/// Found by simulation (seed 2502): the number was given twice, and the second attempt's events counted as repeats.
#[test]
fn an_agent_ahead_of_its_receipt_uses_the_first_number() {
    let (state, _) = step(&CONTEXT, fresh(), &connected(1, vec![]), at(0));
    let done = vec![receipt(ReceiptState::Done)];
    let back = Event::AgentConnected { epoch: 2, receipts: done.clone(), still_running: true, protocol: 2 };
    let (state, effects) = step(&CONTEXT, state, &back, at(10));
    assert_eq!((effects, state.actions[1].attempt), (vec![Effect::RenewLease, Effect::Control], 1));
    let (_, effects) = step(&CONTEXT, state, &connected(3, done), at(20));
    assert_eq!(effects, assign(1, 2));
}
